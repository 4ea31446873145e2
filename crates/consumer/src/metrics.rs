//! The daemon's metrics. Names and labels are part of the interface: docs and dashboards use them.

use batchweave_store::counting::Counted;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// All metrics; registered once per daemon.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) steps_delivered: IntCounterVec,
    pub(crate) frames_delivered: IntCounter,
    pub(crate) bytes_needed: IntCounter,
    pub(crate) bytes_fetched: IntCounter,
    pub(crate) checksum_failures: IntCounter,
    pub(crate) refused_frames: IntCounter,
    pub(crate) wait_seconds: CounterVec,
    pub(crate) sessions: IntGauge,
    pub(crate) sessions_total: IntCounter,
    pub(crate) frames_held: IntGaugeVec,
    pub(crate) arena_bytes: IntGaugeVec,
    pub(crate) head_step: IntGauge,
    pub(crate) rank_step: IntGaugeVec,
    pub(crate) marks: IntCounterVec,
}

struct Maker<'a>(&'a Registry);

impl Maker<'_> {
    fn add<C: Collector + Clone + 'static>(
        &self,
        made: prometheus::Result<C>,
    ) -> prometheus::Result<C> {
        let collector = made?;
        self.0.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.add(IntCounter::new(full(name), help))
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntCounterVec> {
        self.add(IntCounterVec::new(Opts::new(full(name), help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.add(IntGauge::new(full(name), help))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(full(name), help), labels))
    }
}

fn full(name: &str) -> String {
    format!("batchweave_consumer_{name}")
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let m = Maker(registry);
        let wait = Opts::new(
            full("rank_wait_seconds_total"),
            "Time that ranks said they waited, by cause.",
        );
        Ok(Self {
            steps_delivered: m.counters("steps_delivered_total", "Steps sent whole, by rank.", &["dp_rank"])?,
            frames_delivered: m.counter("frames_delivered_total", "Slices sent to ranks.")?,
            bytes_needed: m.counter("needed_bytes_total", "Payload of distinct frames sent to ranks.")?,
            bytes_fetched: m.counter(
                "fetched_bytes_total",
                "Bytes of data objects read from the store; over needed_bytes_total: read amplification.",
            )?,
            checksum_failures: m.counter("checksum_failures_total", "Frames that were wrong when fetched.")?,
            refused_frames: m.counter("refused_frames_total", "Frames refused to ranks: wrong twice, or missing.")?,
            wait_seconds: m.add(CounterVec::new(wait, &["dp_rank", "cause"]))?,
            sessions: m.gauge("sessions", "Connected ranks.")?,
            sessions_total: m.counter("sessions_total", "Ranks that ever connected.")?,
            frames_held: m.gauges("held_frames", "Frames sent and not released, by rank.", &["dp_rank"])?,
            arena_bytes: m.gauges("arena_bytes", "Shared memory: held by ranks, used, total.", &["part"])?,
            head_step: m.gauge("head_step", "First step that is not committed yet.")?,
            rank_step: m.gauges("rank_step", "Next step to send, by rank.", &["dp_rank"])?,
            marks: m.counters("marks_total", "Checkpoint marks, by outcome.", &["outcome"])?,
        })
    }
}

/// Requests to the store, read from its counters when metrics are gathered.
struct StoreMetrics {
    counted: Counted,
    families: [IntCounterVec; 3],
}

/// Registers the counters of a store.
pub(crate) fn register_store(registry: &Registry, counted: Counted) -> prometheus::Result<()> {
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
