//! The daemon's metrics. Names are part of the interface: docs and dashboards use them.

use batchweave_log::Committed;
use batchweave_store::counting::Counted;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

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
    /// Objects uploaded.
    pub objects: IntCounter,
    /// Their bytes.
    pub object_bytes: IntCounter,
    commits: IntCounter,
    lost: IntCounter,
    batches: IntGauge,
    head: IntGauge,
    latency: Gauge,
}

fn full(name: &str) -> String {
    format!("batchweave_producer_{name}")
}

impl Metrics {
    /// Makes and registers them.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        fn add<C: Collector + Clone + 'static>(
            registry: &Registry,
            made: prometheus::Result<C>,
        ) -> prometheus::Result<C> {
            let collector = made?;
            registry.register(Box::new(collector.clone()))?;
            Ok(collector)
        }
        let counter = |name, help| add(registry, IntCounter::new(full(name), help));
        let gauge = |name, help| add(registry, IntGauge::new(full(name), help));
        Ok(Self {
            documents: counter(
                "documents_total",
                "Documents tokenized since the start of this process.",
            )?,
            bad_documents: counter(
                "bad_documents_total",
                "Bad documents left out; each is in the log with its place.",
            )?,
            text_bytes: counter(
                "text_bytes_total",
                "Bytes of the tokenized documents' texts.",
            )?,
            tokens: counter("tokens_total", "Tokens of documents, end tokens included.")?,
            objects: counter("objects_total", "Data objects uploaded.")?,
            object_bytes: counter("object_bytes_total", "Bytes of the uploaded data objects.")?,
            commits: counter("commits_total", "Log records that this process won.")?,
            lost: counter(
                "lost_commits_total",
                "Versions of the log that another writer took first.",
            )?,
            batches: gauge(
                "batches",
                "Batches of this producer in the stream, over all its epochs.",
            )?,
            head: gauge(
                "head_step",
                "First step of the stream that is not committed yet, as of the last commit.",
            )?,
            latency: add(
                registry,
                Gauge::new(
                    full("commit_latency_seconds"),
                    "Last commit: from durable to visible.",
                ),
            )?,
        })
    }

    /// Takes over the commit task's numbers.
    pub fn committed(&self, now: &Committed) {
        self.commits
            .inc_by(now.records.saturating_sub(self.commits.get()));
        self.lost.inc_by(now.lost.saturating_sub(self.lost.get()));
        self.batches.set(now.next_seq.cast_signed());
        self.head.set(now.next_step.cast_signed());
        self.latency.set(now.latency.as_secs_f64());
    }
}

/// Requests to the store, read from its counters when metrics are gathered.
struct StoreMetrics {
    counted: Counted,
    families: [IntCounterVec; 3],
}

/// Registers the counters of a store.
pub fn register_store(registry: &Registry, counted: Counted) -> prometheus::Result<()> {
    let family = |name: &str, help: &str| IntCounterVec::new(Opts::new(full(name), help), &["op"]);
    let families = [
        family("store_requests_total", "Requests to the store, by kind.")?,
        family(
            "store_errors_total",
            "Failed requests, by kind; a 404 at the head of the log is one.",
        )?,
        family(
            "store_bytes_total",
            "Bytes to and from the store, by kind of request.",
        )?,
    ];
    registry.register(Box::new(StoreMetrics { counted, families }))
}

impl Collector for StoreMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.families.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for (op, count) in self.counted.counts().iter() {
            let values = [count.requests, count.errors, count.bytes];
            for (family, value) in self.families.iter().zip(values) {
                let counter = family.with_label_values(&[op.name()]);
                counter.inc_by(value.saturating_sub(counter.get()));
            }
        }
        self.families.iter().flat_map(Collector::collect).collect()
    }
}
