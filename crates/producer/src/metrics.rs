//! The daemon's metrics. Names are part of the interface: docs and dashboards use them.

use batchweave_daemon::health::Health;
use batchweave_daemon::metrics::Maker;
use batchweave_log::CommitProgress;
use batchweave_store::counting::Counted;
use prometheus::{CounterVec, Histogram, IntCounter, IntGauge, Registry};

const PREFIX: &str = "batchweave_producer";

/// All metrics; registered once per daemon.
#[derive(Debug)]
pub struct Metrics {
    /// Documents tokenized.
    pub documents: IntCounter,
    /// Documents left out.
    pub bad_documents: IntCounter,
    /// Bytes of their texts.
    pub text_bytes: IntCounter,
    /// Tokens packed.
    pub tokens: IntCounter,
    /// Tokens that only fill rows up.
    pub padding: IntCounter,
    /// Objects uploaded.
    pub objects: IntCounter,
    /// Their bytes.
    pub object_bytes: IntCounter,
    commits: IntCounter,
    lost: IntCounter,
    announced: IntCounter,
    combined: IntCounter,
    refused: IntCounter,
    leading: IntGauge,
    batches: IntGauge,
    tgbs: IntCounter,
    head: IntGauge,
    version: IntGauge,
    latency: Histogram,
    /// How far the stream is ahead, and who holds this producer back.
    pub flow_control: FlowControlMetrics,
}

/// See [`Metrics::flow_control`].
#[derive(Debug)]
pub struct FlowControlMetrics {
    /// 1 while something is held back.
    pub held: IntGauge,
    /// Seconds for which something was held, by bound.
    pub held_seconds: CounterVec,
    /// Steps ahead of the slowest job.
    pub steps: IntGauge,
    /// Their bytes, with a bound in bytes.
    pub bytes: IntGauge,
}

impl FlowControlMetrics {
    fn new(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            held: m.gauge(
                "held",
                "1 while a bound of [ahead] holds back what is ready; /readyz says which and by whom.",
            )?,
            held_seconds: m.seconds(
                "held_seconds_total",
                "Seconds for which a bound held back what was ready, by bound.",
                &["bound"],
            )?,
            steps: m.gauge(
                "ahead_steps",
                "Steps that the slowest job that paces has not received, as last seen; counted only with a bound.",
            )?,
            bytes: m.gauge(
                "ahead_bytes",
                "Their bytes; counted only with a bound in bytes.",
            )?,
        })
    }
}

impl Metrics {
    /// Makes and registers them.
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
                "Bad documents left out; each is in the log with its place.",
            )?,
            text_bytes: m.counter(
                "text_bytes_total",
                "Bytes of the tokenized documents' texts.",
            )?,
            tokens: m.counter("tokens_total", "Tokens of documents, end tokens included.")?,
            padding: m.counter(
                "padding_tokens_total",
                "Tokens that fill rows up: what packing.mode = \"best_fit\" wastes.",
            )?,
            objects: m.counter("objects_total", "Data objects uploaded.")?,
            object_bytes: m.counter("object_bytes_total", "Bytes of the uploaded data objects.")?,
            commits: m.counter("commits_total", "Log records that this process won.")?,
            lost: m.counter(
                "lost_commits_total",
                "Versions of the log that another writer took first.",
            )?,
            announced: m.counter(
                "announced_entries_total",
                "Entries announced as intents, for whoever commits next.",
            )?,
            combined: m.counter(
                "combined_entries_total",
                "Other producers' entries in records that this process won.",
            )?,
            refused: m.counter(
                "refused_intents_total",
                "Objects under intents/ that are none: ignored.",
            )?,
            leading: m.gauge(
                "leading",
                "1 while this producer combines the others' commits.",
            )?,
            tgbs: m.counter("tgbs_total", "Global batches that this process made visible.")?,
            batches: m.gauge(
                "batches",
                "Batches of this producer in the stream, over all its epochs.",
            )?,
            head: m.gauge(
                "head_step",
                "First step of the stream that is not committed yet, as of the last commit.",
            )?,
            version: m.gauge(
                "log_version",
                "The last version of the log that this process won.",
            )?,
            latency: m.histogram(
                "commit_latency_seconds",
                "From durable and allowed to visible, of the commits seen; of several at once the last.",
            )?,
            flow_control: FlowControlMetrics::new(m)?,
        })
    }

    /// The producer goes on at this batch.
    pub fn begin(&self, next_seq: u64) {
        self.batches.set(next_seq.cast_signed());
    }

    /// Takes over the commit task's numbers.
    pub fn committed(&self, now: &CommitProgress) {
        if now.next_seq.cast_signed() > self.batches.get() && !now.latency.is_zero() {
            self.latency.observe(now.latency.as_secs_f64());
        }
        if let Some(version) = now.version {
            self.version.set(version.cast_signed());
        }
        self.commits
            .inc_by(now.records.saturating_sub(self.commits.get()));
        self.lost.inc_by(now.lost.saturating_sub(self.lost.get()));
        let more = |counter: &IntCounter, total: u64| {
            counter.inc_by(total.saturating_sub(counter.get()));
        };
        more(&self.announced, now.announced);
        more(&self.combined, now.combined);
        more(&self.refused, now.refused_intents);
        self.leading.set(i64::from(now.leading));
        let before = self.batches.get().cast_unsigned();
        self.tgbs.inc_by(now.next_seq.saturating_sub(before));
        self.batches.set(now.next_seq.max(before).cast_signed());
        self.head.set(now.next_step.cast_signed());
    }
}

/// Registers what every daemon tells of itself, and the counters of its store.
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
