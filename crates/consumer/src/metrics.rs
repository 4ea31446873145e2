//! The daemon's metrics. Their names and labels are an interface: docs and dashboards use them.

use batchweave_core::stream::StreamConfig;
use batchweave_daemon::health::Health;
use batchweave_daemon::metrics::Maker;
use batchweave_store::counting::Counted;
use prometheus::{
    CounterVec, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

use crate::losses::Losses;

const PREFIX: &str = "batchweave_consumer";

/// All metrics; registered once per daemon.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) steps_delivered: IntCounterVec,
    pub(crate) frames_delivered: IntCounter,
    pub(crate) bytes_needed: IntCounter,
    pub(crate) bytes_fetched: IntCounter,
    pub(crate) hedged_reads: IntCounter,
    pub(crate) throttled_reads: IntCounter,
    pub(crate) quick_polls: IntCounter,
    pub(crate) reads_allowed: IntGauge,
    pub(crate) checksum_failures: IntCounter,
    pub(crate) refused_frames: IntCounter,
    pub(crate) wait_seconds: CounterVec,
    pub(crate) sessions: IntGauge,
    pub(crate) sessions_total: IntCounter,
    pub(crate) frames_held: IntGaugeVec,
    pub(crate) arena_bytes: IntGaugeVec,
    pub(crate) head_step: IntGauge,
    pub(crate) watermark: IntGauge,
    pub(crate) rank_step: IntGaugeVec,
    pub(crate) ahead_steps: IntGaugeVec,
    pub(crate) ahead_bytes: IntGauge,
    slice_tokens: IntGauge,
    slice_rows: IntGauge,
    pub(crate) marks: IntCounterVec,
    pub(crate) incomplete_marks: IntGaugeVec,
    pub(crate) attempt: IntGaugeVec,
    pub(crate) superseded: IntCounter,
    pub(crate) deliveries_lost: IntCounter,
    pub(crate) ledgers: IntCounterVec,
    pub(crate) reported_steps: IntCounterVec,
    pub(crate) values: IntCounterVec,
    pub(crate) losses: Losses,
    pub(crate) ledger_recalled: IntCounter,
    pub(crate) ledger_holes: IntCounter,
    pub(crate) awaited_lane: IntGaugeVec,
    pub(crate) stages: Stages,
}

/// The time that slices spend in each stage between the store and a rank.
#[derive(Debug)]
pub(crate) struct Stages {
    /// Waiting for a permit to read.
    pub(crate) wait: Histogram,
    /// From the request to its last byte in the arena.
    pub(crate) fetch: Histogram,
    /// Summing the bytes of a request while they arrive.
    pub(crate) crc: Histogram,
    /// From queueing a frame for a rank to its message in the socket.
    pub(crate) handover: Histogram,
}

impl Stages {
    fn make(m: &Maker<'_>) -> prometheus::Result<Self> {
        let all = m.histograms("stage_seconds", "Times of slices by stage.", &["stage"])?;
        let stage = |name| all.with_label_values(&[name]);
        Ok(Self {
            wait: stage("wait"),
            fetch: stage("fetch"),
            crc: stage("crc"),
            handover: stage("handover"),
        })
    }
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Self::make(&Maker::new(registry, PREFIX))
    }

    fn make(m: &Maker<'_>) -> prometheus::Result<Self> {
        let values = values(m)?;
        Ok(Self {
            steps_delivered: m.counters("steps_delivered_total", "Steps sent whole, by rank.", &["dp_rank"])?,
            frames_delivered: m.counter("frames_delivered_total", "Slices sent to ranks.")?,
            bytes_needed: m.counter("needed_bytes_total", "Payload of distinct frames sent to ranks.")?,
            bytes_fetched: m.counter(
                "fetched_bytes_total",
                "Bytes of data objects read from the store; over needed_bytes_total: read amplification.",
            )?,
            hedged_reads: m.counter("hedged_reads_total", "Reads sent a second time because the answer was late.")?,
            throttled_reads: m.counter("throttled_reads_total", "Reads that the store throttled.")?,
            quick_polls: m.counter(
                "quick_polls_total",
                "Polls of the log that follow.quick_polls allowed.",
            )?,
            reads_allowed: m.gauge("reads_allowed", "Reads that may be in flight.")?,
            checksum_failures: m.counter("checksum_failures_total", "Frames that were wrong when fetched.")?,
            refused_frames: m.counter("refused_frames_total", "Frames refused to ranks: wrong twice, or missing.")?,
            wait_seconds: m.seconds(
                "rank_wait_seconds_total",
                "Time that ranks waited, as they reported it, by cause.",
                &["dp_rank", "cause"],
            )?,
            sessions: m.gauge("sessions", "Connected ranks.")?,
            sessions_total: m.counter("sessions_total", "Ranks that ever connected.")?,
            frames_held: m.gauges("held_frames", "Frames sent and not released, by rank.", &["dp_rank"])?,
            arena_bytes: m.gauges("arena_bytes", "Shared memory: held by ranks, used, total.", &["part"])?,
            head_step: m.gauge("head_step", "First step that is not committed yet.")?,
            watermark: m.gauge("watermark_step", "Oldest step that some live job may still need.")?,
            rank_step: m.gauges("rank_step", "Next step to send, by rank.", &["dp_rank"])?,
            ahead_steps: m.gauges(
                "ahead_steps",
                "Whole steps in the arena that the rank was not sent yet.",
                &["dp_rank"],
            )?,
            ahead_bytes: m.gauge("ahead_bytes", "Bytes in the arena that no rank holds: read ahead, or being read.")?,
            slice_tokens: m.gauge("slice_tokens", "Tokens of one slice, to convert frames into tokens.")?,
            slice_rows: m.gauge("slice_rows", "Rows (samples) of one slice.")?,
            marks: m.counters("marks_total", "Checkpoint marks, by outcome.", &["outcome"])?,
            incomplete_marks: m.gauges(
                "incomplete_marks",
                "Marks of the newest attempt below its last one that lack coordinates, by training job.",
                &["training_job"],
            )?,
            attempt: m.gauges("attempt", "Number of the newest attempt, by training job; -1 before the first.", &["training_job"])?,
            superseded: m.counter("superseded_sessions_total", "Sessions ended by a newer attempt.")?,
            deliveries_lost: m.counter(
                "deliveries_lost_total",
                "Reports that the ledger had no room for.",
            )?,
            ledgers: m.counters("ledgers_total", "Ledger objects, by outcome.", &["outcome"])?,
            reported_steps: m.counters(
                "reported_steps_total",
                "Steps that ranks reported, by outcome: trained, left_out, reported_twice; refused ranges: not_received, scattered.",
                &["outcome"],
            )?,
            values,
            losses: Losses::make(m)?,
            ledger_recalled: m.counter(
                "ledger_recalled_steps_total",
                "Steps that an earlier daemon delivered and this one recorded from the store's indexes.",
            )?,
            ledger_holes: m.counter("ledger_holes_total", "Times that delivered steps could not be recorded: the run can't be proved there.")?,
            awaited_lane: m.gauges(
                "awaited_lane",
                "Version since which this lane's producer is awaited; one lane at a time.",
                &["lane"],
            )?,
            stages: Stages::make(m)?,
        })
    }
}

impl Metrics {
    /// Sets the gauges of a slice's size.
    pub(crate) fn shape(&self, stream: &StreamConfig) {
        let rows = i64::from(stream.rows_per_slice);
        self.slice_rows.set(rows);
        self.slice_tokens.set(rows * i64::from(stream.seq_len));
    }

    /// Removes the gauges of a rank that is gone, which would show it as stalled.
    pub(crate) fn forget_rank(&self, dp_rank: &str) {
        for gauges in [&self.frames_held, &self.rank_step, &self.ahead_steps] {
            // An error means that the gauge does not exist.
            let _ = gauges.remove_label_values(&[dp_rank]);
        }
    }
}

fn values(m: &Maker<'_>) -> prometheus::Result<IntCounterVec> {
    let values = m.counters(
        "values_total",
        "Losses of steps that ranks reported, by outcome: kept whole, cut (without rows, documents or sources) or dropped, \
         for lack of memory; then stored or lost.",
        &["outcome"],
    )?;
    // A loss that never came is 0, not absent.
    for outcome in ["kept", "cut", "dropped", "stored", "lost"] {
        values.with_label_values(&[outcome]);
    }
    Ok(values)
}

/// Registers the metrics of every daemon, and the counters of its store.
pub(crate) fn register(
    registry: &Registry,
    counted: Counted,
    health: &Health,
) -> prometheus::Result<()> {
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
        let reclaims = crate::reclaimer::described();
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        for (part, made) in [("consumer", m.described()), ("reclaim", reclaims)] {
            let faults: Vec<String> = made.iter().flat_map(page::faults).collect();
            assert!(faults.is_empty(), "{}", faults.join("\n"));
            if let Err(why) = page::compare(&docs, part, &made) {
                panic!("{why}");
            }
        }
    }
}
