//! The metrics of JSON that Python writes and the standard has not.

use batchweave_daemon::metrics::Maker;
use prometheus::IntCounter;

/// The metrics of JSON beyond the standard.
#[derive(Debug)]
pub struct JsonBeyondMetrics {
    /// Numbers that are NaN, infinite or too large for a double.
    pub numbers: IntCounter,
    /// Halves of surrogate pairs.
    pub surrogates: IntCounter,
}

impl JsonBeyondMetrics {
    pub(super) fn new(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            numbers: m.counter(
                "json_non_finite_numbers_total",
                "Numbers in documents that are NaN or infinite.",
            )?,
            surrogates: m.counter(
                "json_lone_surrogates_total",
                "Halves of surrogate pairs in documents, each of which became U+FFFD.",
            )?,
        })
    }
}
