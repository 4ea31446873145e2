//! The daemon's metrics. Names are part of the interface: docs and dashboards use them.

mod balance;
mod commits;
mod json_beyond;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use batchweave_core::ids::Seq;
use batchweave_daemon::health::Health;
use batchweave_daemon::metrics::Maker;
use batchweave_log::CommitProgress;
use batchweave_store::counting::Counted;
use prometheus::{CounterVec, Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

pub use self::balance::BalanceMetrics;
use self::commits::CommitMetrics;
pub use json_beyond::JsonBeyondMetrics;

const PREFIX: &str = "batchweave_producer";

/// The metrics of a producer; registered once per daemon.
#[derive(Debug)]
pub struct Metrics {
    /// Number of documents tokenized.
    pub documents: IntCounter,
    /// Number of bad documents left out.
    pub bad_documents: IntCounter,
    /// Number of folders of inboxes that are left out.
    pub bad_folders: IntGauge,
    /// Numbers and surrogates that Python writes and standard JSON has not.
    pub json_beyond: JsonBeyondMetrics,
    /// Bytes of the texts of tokenized documents.
    pub text_bytes: IntCounter,
    /// Number of tokens of documents, end tokens included.
    pub tokens: IntCounter,
    /// Number of tokens that only fill up rows.
    pub padding: IntCounter,
    pub balance: BalanceMetrics,
    /// Number of data objects uploaded.
    pub objects: IntCounter,
    /// Bytes of the uploaded data objects.
    pub object_bytes: IntCounter,
    commits: CommitMetrics,
    pub flow_control: FlowControlMetrics,
    pub sources: SourceMetrics,
    pub function: FunctionMetrics,
    /// The share of the run that is done, from 0 to 1; 0 while unknown.
    pub share: Gauge,
    made: Mutex<Made>,
}

/// The tokens of batches on their way into the stream.
#[derive(Debug, Default)]
struct Made {
    /// Number and own tokens of each batch that is made and not visible yet.
    waiting: VecDeque<(Seq, u64)>,
    /// Own tokens of the batches that this process made visible.
    visible: u64,
    /// Tokens of the last, partial batch, which was dropped.
    dropped: u64,
}

/// The metrics of the user's own function.
#[derive(Debug, Clone)]
pub struct FunctionMetrics {
    /// Number of documents that it left out.
    pub dropped: IntCounter,
    /// Number of its processes that ended.
    pub deaths: IntCounter,
}

impl FunctionMetrics {
    fn new(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            dropped: m.counter(
                "function_dropped_documents_total",
                "Documents for which the function of [transform] returned None.",
            )?,
            deaths: m.counter(
                "function_process_ends_total",
                "Processes of this function that ended and were started again.",
            )?,
        })
    }
}

/// The metrics of several sources; their labels are the names in the configuration.
#[derive(Debug)]
pub struct SourceMetrics {
    /// Number of documents by source.
    pub documents: IntCounterVec,
    /// Number of tokens by source, end tokens included.
    pub tokens: IntCounterVec,
    /// Number of complete passes by source.
    pub passes: IntGaugeVec,
    /// Number of the mixture of the last document.
    pub mixture: IntGauge,
    /// Number of the stage of the last batch, by its name.
    pub stage: IntGaugeVec,
}

impl SourceMetrics {
    fn new(m: &Maker<'_>) -> prometheus::Result<Self> {
        let labels = &["source"];
        Ok(Self {
            documents: m.counters(
                "source_documents_total",
                "Documents by source; only with [[sources]].",
                labels,
            )?,
            tokens: m.counters(
                "source_tokens_total",
                "Tokens of documents by source, end tokens included; only with [[sources]].",
                labels,
            )?,
            passes: m.gauges(
                "source_passes",
                "Complete passes by source; only with [[sources]].",
                labels,
            )?,
            mixture: m.gauge(
                "mixture",
                "Number of the mixture of the last document; 0 is the configuration.",
            )?,
            stage: m.gauges(
                "stage",
                "Number of the stage of the last batch, by its name; absent for the shape of stream.json.",
                &["stage"],
            )?,
        })
    }

    /// Counts a document of `source`.
    pub(crate) fn count(&self, source: &str, tokens: u64) {
        self.documents.with_label_values(&[source]).inc();
        self.tokens.with_label_values(&[source]).inc_by(tokens);
    }
}

/// The metrics of flow control: the lead over the jobs, and holds.
#[derive(Debug)]
pub struct FlowControlMetrics {
    /// 1 while commits are held back.
    pub held: IntGauge,
    /// Seconds for which commits were held back, by bound.
    pub held_seconds: CounterVec,
    /// Number of steps ahead of the slowest job.
    pub steps: IntGauge,
    /// Bytes of these steps; counted only with a bound in bytes.
    pub bytes: IntGauge,
}

impl FlowControlMetrics {
    fn new(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            held: m.gauge(
                "held",
                "1 while a bound of [ahead] holds back commits.",
            )?,
            held_seconds: m.seconds(
                "held_seconds_total",
                "Seconds for which a bound held back commits, by bound.",
                &["bound"],
            )?,
            steps: m.gauge(
                "ahead_steps",
                "Steps that the slowest job has not received, as last seen; counted only with a bound.",
            )?,
            bytes: m.gauge(
                "ahead_bytes",
                "Bytes of these steps; counted only with a bound in bytes.",
            )?,
        })
    }
}

impl Metrics {
    /// Creates and registers the metrics.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        Self::make(&Maker::new(registry, PREFIX))
    }

    fn make(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            documents: m.counter(
                "documents_total",
                "Documents tokenized since the start of this process.",
            )?,
            bad_documents: m.counter(
                "bad_documents_total",
                "Bad documents left out.",
            )?,
            bad_folders: m.gauge(
                "inbox_bad_folders",
                "Folders of inboxes that are left out; the log names them.",
            )?,
            json_beyond: JsonBeyondMetrics::new(m)?,
            text_bytes: m.counter(
                "text_bytes_total",
                "Bytes of the tokenized documents' texts.",
            )?,
            tokens: m.counter("tokens_total", "Tokens of documents, end tokens included.")?,
            padding: m.counter(
                "padding_tokens_total",
                "Tokens that only fill up rows.",
            )?,
            balance: BalanceMetrics::new(m)?,
            objects: m.counter("objects_total", "Data objects uploaded.")?,
            object_bytes: m.counter("object_bytes_total", "Bytes of the uploaded data objects.")?,
            commits: CommitMetrics::new(m)?,
            flow_control: FlowControlMetrics::new(m)?,
            sources: SourceMetrics::new(m)?,
            function: FunctionMetrics::new(m)?,
            share: m.ratio_gauge(
                "done_ratio",
                "Share of the input that is read, or of producer.limit, from 0 to 1; 0 where neither is known.",
            )?,
            made: Mutex::default(),
        })
    }

    /// Sets the number of batches that the producer starts from. Those that were made and not committed are made again.
    pub fn begin(&self, next_seq: u64) {
        self.commits.batches.set(next_seq.cast_signed());
        self.made().waiting.clear();
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the batch `seq` is made, with this number of tokens that are in no other.
    pub fn batch_made(&self, seq: Seq, tokens: u64) {
        self.made().waiting.push_back((seq, tokens));
    }

    /// Sets the number of tokens of the last, partial batch, which is left out at the end.
    pub fn batch_dropped(&self, tokens: u64) {
        self.made().dropped = tokens;
    }

    /// Returns the tokens of documents in the batches that this process made visible, and those that were dropped at
    /// the end.
    pub(crate) fn tokens_visible(&self) -> (u64, u64) {
        let made = self.made();
        (made.visible, made.dropped)
    }

    /// Returns the number of batches of this producer in the stream, over all its terms.
    pub(crate) fn batches(&self) -> u64 {
        self.commits.batches.get().max(0).cast_unsigned()
    }

    /// Returns the number of batches that this process made visible.
    pub(crate) fn batches_visible(&self) -> u64 {
        self.commits.tgbs.get()
    }

    /// Takes over the numbers of the commit task.
    pub fn committed(&self, now: &CommitProgress) {
        let mut made = self.made();
        while let Some((_, tokens)) = made.waiting.pop_front_if(|(seq, _)| *seq < now.next_seq) {
            made.visible += tokens;
        }
        drop(made);
        self.commits.update(now);
    }
}

/// The metrics of a daemon that runs `producer.lanes`; all others then have the label `producer`.
#[derive(Debug)]
pub(crate) struct DaemonMetrics {
    /// Number of lanes that this daemon runs.
    pub(crate) lanes: IntGauge,
    /// Number of lanes taken over from other daemons.
    pub(crate) takeovers: IntCounter,
    /// Number of lanes that other daemons took over.
    pub(crate) lost: IntCounter,
}

impl DaemonMetrics {
    /// Creates and registers the metrics.
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Self::make(&Maker::new(registry, PREFIX))
    }

    fn make(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            lanes: m.gauge(
                "lanes",
                "Lanes that this daemon runs; only with producer.lanes.",
            )?,
            takeovers: m.counter(
                "takeovers_total",
                "Lanes taken over from other daemons; only with producer.lanes.",
            )?,
            lost: m.counter(
                "lost_lanes_total",
                "Lanes that another daemon took over; only with producer.lanes.",
            )?,
        })
    }
}

/// Registers the metrics that all daemons have, and the request counters of the store.
pub fn register(registry: &Registry, counted: Counted, health: &Health) -> prometheus::Result<()> {
    shared(&Maker::new(registry, PREFIX), counted, health)
}

fn shared(m: &Maker<'_>, counted: Counted, health: &Health) -> prometheus::Result<()> {
    m.process(env!("CARGO_PKG_VERSION"), health)?;
    health.watch_store(counted.clone());
    m.counted(counted)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use batchweave_daemon::metrics::page;
    use batchweave_store::memory::MemoryStore;

    use super::*;

    #[test]
    fn docs_metrics_md_shows_these() {
        let registry = Registry::new();
        let m = Maker::new(&registry, PREFIX);
        Metrics::make(&m).unwrap();
        DaemonMetrics::make(&m).unwrap();
        let counted = Counted::new(MemoryStore::new());
        shared(&m, counted, &Health::default()).unwrap();
        let made = m.described();
        let faults: Vec<String> = made.iter().flat_map(page::faults).collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        if let Err(why) = page::compare(&docs, "producer", &made) {
            panic!("{why}");
        }
    }
}
