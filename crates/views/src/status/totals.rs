//! How much is in the stream: tokens, documents and bytes, by the newest records and some provenance objects. No
//! data object is read.

use std::collections::BTreeSet;

use batchweave_console::output::{bytes, count_grouped};
use batchweave_console::sources;
use batchweave_core::ids::Step;
use batchweave_core::provenance::Provenance;
use batchweave_daemon::figures::grouped;
use batchweave_log::{Located, Log};
use futures::{StreamExt, stream};
use serde::Serialize;

use super::commits::{Commits, NewestRecords};

/// Most provenance objects that are read; of more, this many are selected evenly.
const SAMPLES: usize = 16;

/// Averages per step, from what was read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PerStep {
    tokens: f64,
    bytes: f64,
    /// Documents that begin in a step; `None` without provenance.
    documents: Option<f64>,
    /// The steps whose records were read, and those whose provenance was.
    seen: (u64, u64),
}

/// The content of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    tokens: u64,
    /// Documents, once for each pass in which they were read; `None` without provenance.
    documents: Option<u64>,
    /// Bytes of the stored slices.
    bytes: u64,
    /// Whether tokens and bytes are sums, not the newest records' average times the steps.
    exact: bool,
    /// Whether this holds for the documents too.
    documents_exact: bool,
}

impl PerStep {
    /// Reads the averages; `log` is folded up to the newest of these records. Without the provenance of most samples
    /// documents are unknown: what reclamation left would not stand for the rest.
    pub(super) async fn read(log: &mut Log, newest: &NewestRecords) -> Self {
        let (chosen, tried) = chosen(log, newest).await;
        let inputs = log.manifest().stream().batch_items();
        let store = log.store().as_ref();
        let reads = chosen.iter().map(|key| sources::provenance(store, key));
        let read: Vec<Provenance> = stream::iter(reads)
            .buffer_unordered(SAMPLES)
            .filter_map(|one| async { one.ok() })
            .collect()
            .await;
        let steps: u64 = read.iter().map(|one| one.tgbs.len() as u64).sum();
        let documents: u64 = read.iter().map(|one| begun(one, inputs)).sum();
        let known = steps > 0 && 2 * read.len() > tried;
        let (documents, steps) = if known { (documents, steps) } else { (0, 0) };
        let mut per_step = Self {
            documents: (steps > 0).then(|| average(documents, steps)),
            seen: (0, steps),
            ..Self::default()
        };
        per_step.add(&newest.sums);
        per_step
    }

    /// Takes over the sums of all records that were read.
    pub(super) fn add(&mut self, sums: &Commits) {
        self.tokens = average(sums.tokens, sums.tgbs);
        self.bytes = average(sums.tgb_bytes, sums.tgbs);
        self.seen.0 = sums.tgbs;
    }

    /// Returns the content of `steps` steps.
    pub(super) fn times(&self, steps: Step) -> Totals {
        let total = |average: f64| (average * steps as f64).round() as u64;
        Totals {
            tokens: total(self.tokens),
            documents: self.documents.map(total),
            bytes: total(self.bytes),
            exact: self.seen.0 == steps,
            documents_exact: self.seen.1 == steps,
        }
    }

    /// Returns the bytes of this number of steps.
    pub(super) fn bytes_of(&self, steps: Step) -> u64 {
        (self.bytes * steps as f64).round() as u64
    }

    /// Returns the tokens of a step.
    pub(super) fn tokens(&self) -> f64 {
        self.tokens
    }
}

fn average(sum: u64, of: u64) -> f64 {
    sum as f64 / of.max(1) as f64
}

/// Returns the keys of provenance objects from all over the stream, and the number of places that were tried.
async fn chosen(log: &mut Log, newest: &NewestRecords) -> (BTreeSet<String>, usize) {
    let first = log.manifest().stream().first_step();
    let steps = log.manifest().next_step().saturating_sub(first);
    if newest.sums.tgbs >= steps {
        let every = newest.provenance.len().div_ceil(SAMPLES).max(1);
        let keys: BTreeSet<String> = newest.provenance.iter().step_by(every).cloned().collect();
        let tried = keys.len();
        return (keys, tried);
    }
    let mut keys = BTreeSet::new();
    for n in 0..SAMPLES as u64 {
        if let Ok(Located::At(entry)) = log.locate(first + n * (steps / SAMPLES as u64)).await {
            keys.extend(entry.tgb.provenance.clone());
        }
    }
    (keys, SAMPLES)
}

/// Returns the number of documents that begin in these TGBs.
fn begun(provenance: &Provenance, inputs: u64) -> u64 {
    let pieces = provenance.tgbs.iter().flat_map(|tgb| tgb.counted(inputs));
    pieces.filter(|piece| piece.skip == 0).count() as u64
}

impl Totals {
    /// Formats the content of `steps` steps on one line.
    pub(super) fn text(&self, steps: Step) -> String {
        if steps == 0 {
            return "none yet".to_owned();
        }
        let about = |exact: bool| if exact { "" } else { "about " };
        let mut parts = vec![
            count_grouped(steps, "step"),
            format!("{}{} tokens", about(self.exact), grouped(self.tokens)),
        ];
        if let Some(documents) = self.documents {
            let documents = count_grouped(documents, "document");
            parts.push(format!("{}{documents}", about(self.documents_exact)));
        }
        parts.push(format!("{}{}", about(self.exact), bytes(self.bytes)));
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_is_an_estimate() {
        let per_step = PerStep {
            tokens: 16_384.0,
            bytes: 33_792.0,
            documents: Some(3.5),
            seen: (10, 4),
        };
        assert_eq!(
            per_step.times(10).text(10),
            "10 steps, 163,840 tokens, about 35 documents, 330.0 KiB"
        );
        assert_eq!(
            per_step.times(4000).text(4000),
            "4,000 steps, about 65,536,000 tokens, about 14,000 documents, about 128.9 MiB"
        );
        let none = PerStep::default();
        assert_eq!(none.times(0).text(0), "none yet");
        assert_eq!(none.times(1).documents, None);
    }
}
