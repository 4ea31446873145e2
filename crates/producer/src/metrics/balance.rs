//! The metrics of bins of equal cost.

use std::fmt::Write as _;

use batchweave_daemon::figures::grouped;
use batchweave_daemon::metrics::Maker;
use prometheus::{Gauge, IntCounter};

use crate::packing::{Bins, Shape};

/// The metrics of `packing.mode = "balanced"`.
#[derive(Debug)]
pub struct BalanceMetrics {
    imbalance: Gauge,
    fill: Gauge,
    late: IntCounter,
    /// Number of documents that were cut to the tokens of a bin.
    pub truncated_documents: IntCounter,
    /// Number of tokens that were cut off.
    pub truncated_tokens: IntCounter,
}

impl BalanceMetrics {
    pub(super) fn new(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            imbalance: m.ratio_gauge(
                "batch_imbalance",
                "Cost of the last batch's dearest slice over the mean of its slices; only with packing.mode = \"balanced\".",
            )?,
            fill: m.ratio_gauge(
                "fill",
                "Tokens in the bins of the last batch over those that they can hold; only with packing.mode = \"balanced\".",
            )?,
            late: m.counter(
                "late_documents_total",
                "Documents that fitted in no bin of their window and are in the next one.",
            )?,
            truncated_documents: m.counter(
                "truncated_documents_total",
                "Documents cut to the tokens of a bin by packing.balanced.long = \"truncate\".",
            )?,
            truncated_tokens: m.counter(
                "truncated_tokens_total",
                "Tokens cut off by packing.balanced.long = \"truncate\".",
            )?,
        })
    }

    /// Describes the last batch and what was late or cut; `None` where the last batch has no bins.
    pub(crate) fn text(&self) -> Option<String> {
        let imbalance = self.imbalance.get();
        if imbalance == 0.0 {
            return None;
        }
        let mut text = format!(
            "the dearest slice of the last batch costs {imbalance:.3} times the mean, its bins are {:.1} % full",
            100.0 * self.fill.get()
        );
        for (number, what) in [
            (self.late.get(), "documents waited a window"),
            (self.truncated_documents.get(), "were cut to a bin"),
        ] {
            if number > 0 {
                let _ = write!(text, "; {} {what}", grouped(number));
            }
        }
        Some(text)
    }

    /// Notes a batch of rows, where bins may have come before.
    pub(crate) fn no_bins(&self) {
        self.imbalance.set(0.0);
        self.fill.set(0.0);
    }

    /// Notes the bins of a batch or of some of its slices, which have `shape`.
    pub(crate) fn made(&self, bins: &Bins, shape: Shape) {
        let room = bins.ends.len() as f64 * f64::from(shape.seq_len);
        self.imbalance.set(bins.cost.imbalance());
        self.fill.set(bins.tokens.len() as f64 / room.max(1.0));
        self.late.inc_by(bins.late);
    }
}
