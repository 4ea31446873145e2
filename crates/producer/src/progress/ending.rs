//! The last lines of the log: the totals of the run, and a warning when they amount to nothing.

use std::time::Duration;

use batchweave_core::ids::Seq;

use crate::config::{PackingMode, ProducerConfig, RunLimit};
use crate::metrics::Metrics;
use crate::outcome::Outcome;

/// The totals of a run of the daemon.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Totals {
    /// Batches that this run made visible.
    pub(crate) batches: u64,
    pub(crate) documents: u64,
    pub(crate) bad_documents: u64,
    /// Tokens of these documents.
    pub(crate) tokens: u64,
    /// Tokens of documents in the batches that this run made visible, and those of a partial batch that was dropped.
    pub(crate) stored: u64,
    pub(crate) dropped: u64,
    /// Tokens that only fill up rows.
    pub(crate) padding: u64,
    /// Documents that were cut to a bin, and their tokens that were cut off.
    pub(crate) truncated: [u64; 2],
    /// Bytes of the documents' texts or arrays.
    pub(crate) text_bytes: u64,
    /// Bytes of the stored data objects.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

impl Totals {
    /// Returns the totals of a run that took this time.
    pub(crate) fn read(metrics: &Metrics, took: Duration) -> Self {
        let (stored, dropped) = metrics.tokens_visible();
        Self {
            stored,
            dropped,
            batches: metrics.batches_visible(),
            documents: metrics.documents.get(),
            bad_documents: metrics.bad_documents.get(),
            tokens: metrics.tokens.get(),
            padding: metrics.padding.get(),
            truncated: [
                metrics.balance.truncated_documents.get(),
                metrics.balance.truncated_tokens.get(),
            ],
            text_bytes: metrics.text_bytes.get(),
            bytes: metrics.object_bytes.get(),
            seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
        }
    }
}

/// Returns the message at the end of a run; `None` where the stream is sealed.
fn message(outcome: &Outcome, config: &ProducerConfig, totals: &Totals) -> Option<&'static str> {
    Some(match outcome {
        Outcome::Finished { .. } if config.producer.limit != RunLimit::None => {
            "finished: all input up to producer.limit is in the stream"
        }
        Outcome::Finished { .. } if totals.dropped > 0 => {
            "finished: all input is in the stream, but for the last, partial batch (packing.last_batch)"
        }
        Outcome::Finished { .. } => "finished: all input is in the stream",
        Outcome::Stopped { .. } => "stopped; a restart continues from here",
        Outcome::Sealed => return None,
    })
}

/// Logs the end of a run that produced, and returns its outcome. `lane` names it where a daemon has several.
pub(crate) fn produced(
    outcome: Outcome,
    config: &ProducerConfig,
    totals: &Totals,
    lane: Option<&str>,
) -> Outcome {
    let Some(message) = message(&outcome, config, totals) else {
        return sealed();
    };
    let batches = outcome.batches().unwrap_or(totals.batches);
    // Earlier runs made the others, whose documents are not counted here.
    let all = totals.batches == batches;
    let if_all = |number: u64| all.then_some(number);
    let if_new = |number: u64| (!all).then_some(number);
    let some = |number: u64| Some(number).filter(|number| *number > 0);
    tracing::info!(
        lane,
        batches,
        new_batches = if_new(totals.batches),
        documents = if_all(totals.documents),
        new_documents = if_new(totals.documents),
        tokens = if_all(totals.stored),
        new_tokens = if_new(totals.stored),
        dropped_tokens = some(totals.dropped),
        truncated_documents = some(totals.truncated[0]),
        truncated_tokens = some(totals.truncated[1]),
        padding = totals.padding,
        text_bytes = totals.text_bytes,
        bytes = totals.bytes,
        seconds = totals.seconds,
        "{message}"
    );
    if outcome == (Outcome::Finished { batches: 0 }) {
        tracing::warn!(lane, "finished with 0 batches: {}", reason(config, totals));
    }
    outcome
}

/// Returns why a run over all input made no batch, and what to do about it.
fn reason(config: &ProducerConfig, totals: &Totals) -> String {
    let Totals {
        documents,
        bad_documents,
        tokens,
        ..
    } = totals;
    if *documents == 0 && *bad_documents > 0 {
        return format!(
            "all {bad_documents} documents were left out as bad; the warnings above have the reasons"
        );
    }
    if *documents == 0 {
        return "the input has no document for this producer; check source.paths and source.format, and \
                whether the input has enough files or blocks for all producers that share it"
            .to_owned();
    }
    let shape = config.shape();
    let rows = shape.rows() as u64;
    let (unit, factors, needed) = match config.packing.mode {
        PackingMode::Opaque => ("samples", "slices x rows_per_slice", rows),
        PackingMode::Balanced => (
            "tokens",
            "0.98 x slices x micro_batches x tokens",
            shape.tokens() as u64 * 98 / 100,
        ),
        _ => (
            "tokens",
            "slices x rows_per_slice x seq_len",
            shape.tokens() as u64,
        ),
    };
    format!(
        "its {documents} documents are {tokens} {unit}, and a batch takes {needed} ({factors}); use a new stream \
         with a smaller batch, more documents, more source.epochs or packing.last_batch = \"pad\""
    )
}

/// Logs that an earlier run has finished, and returns the outcome.
pub(crate) fn finished_before(batches: Seq, lane: Option<&str>) -> Outcome {
    tracing::info!(lane, batches, "finished: all input is in the stream");
    if batches == 0 {
        tracing::warn!(
            lane,
            "finished with 0 batches, in an earlier run: its input was less than a batch; use a new stream with a \
             smaller batch or more documents"
        );
    }
    Outcome::Finished { batches }
}

/// Logs that the stream takes no batches, and returns the outcome.
pub(crate) fn sealed() -> Outcome {
    tracing::info!("the stream has ended or is sealed; nothing to do");
    Outcome::Sealed
}

/// Logs a stop while the producer was still starting, and returns the outcome.
pub(crate) fn stopped_early() -> Outcome {
    tracing::info!("stopped before the producer was opened");
    Outcome::Stopped { batches: None }
}

/// Logs a stop while the producer held before a stage that it lacks, and returns the outcome.
pub(crate) fn stopped_holding(batches: Option<Seq>) -> Outcome {
    tracing::info!(
        batches,
        "stopped while holding before a stage; a restart continues from here"
    );
    Outcome::Stopped { batches }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_no_batch_has_its_remedy() {
        let mut config = ProducerConfig::default();
        (config.stream.slices, config.stream.rows_per_slice) = (4, 2);
        config.stream.seq_len = 256;
        let mut totals = Totals::default();
        let why = reason(&config, &totals);
        assert!(why.contains("no document for this producer"), "{why}");
        totals.bad_documents = 3;
        let why = reason(&config, &totals);
        assert!(
            why.starts_with("all 3 documents were left out as bad"),
            "{why}"
        );
        (totals.documents, totals.tokens) = (5, 812);
        let why = reason(&config, &totals);
        assert!(
            why.starts_with("its 5 documents are 812 tokens, and a batch takes 2048 (slices x"),
            "{why}"
        );
        config.packing.mode = PackingMode::Opaque;
        let why = reason(&config, &totals);
        assert!(
            why.contains("812 samples, and a batch takes 8 (slices"),
            "{why}"
        );
    }
}
