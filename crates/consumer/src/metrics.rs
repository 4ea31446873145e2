//! The daemon's metrics. Names and labels are part of the interface: docs and dashboards use them.

use batchweave_daemon::metrics::Maker;
use batchweave_store::counting::Counted;
use prometheus::{CounterVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

const PREFIX: &str = "batchweave_consumer";

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
    pub(crate) incomplete_marks: IntGaugeVec,
    pub(crate) attempt: IntGaugeVec,
    pub(crate) superseded: IntCounter,
    pub(crate) deliveries_lost: IntCounter,
    pub(crate) ledgers: IntCounterVec,
    pub(crate) ledger_recalled: IntCounter,
    pub(crate) ledger_holes: IntCounter,
    pub(crate) awaited_lane: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let m = Maker::new(registry, PREFIX);
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
            wait_seconds: m.seconds(
                "rank_wait_seconds_total",
                "Time that ranks said they waited, by cause.",
                &["dp_rank", "cause"],
            )?,
            sessions: m.gauge("sessions", "Connected ranks.")?,
            sessions_total: m.counter("sessions_total", "Ranks that ever connected.")?,
            frames_held: m.gauges("held_frames", "Frames sent and not released, by rank.", &["dp_rank"])?,
            arena_bytes: m.gauges("arena_bytes", "Shared memory: held by ranks, used, total.", &["part"])?,
            head_step: m.gauge("head_step", "First step that is not committed yet.")?,
            rank_step: m.gauges("rank_step", "Next step to send, by rank.", &["dp_rank"])?,
            marks: m.counters("marks_total", "Checkpoint marks, by outcome.", &["outcome"])?,
            incomplete_marks: m.gauges(
                "incomplete_marks",
                "Marks of the newest attempt below its last one that lack coordinates, by job.",
                &["job"],
            )?,
            attempt: m.gauges("attempt", "Number of the newest attempt, by job.", &["job"])?,
            superseded: m.counter("superseded_sessions_total", "Sessions ended by a newer attempt.")?,
            deliveries_lost: m.counter(
                "deliveries_lost_total",
                "Reports that the ledger had no room for: told from the store's indexes instead.",
            )?,
            ledgers: m.counters("ledgers_total", "Ledger objects, by outcome.", &["outcome"])?,
            ledger_recalled: m.counter(
                "ledger_recalled_steps_total",
                "Steps that an earlier daemon delivered and this one told from the store's indexes.",
            )?,
            ledger_holes: m.counter("ledger_holes_total", "Times that steps could not be told: the run can't be proved there.")?,
            awaited_lane: m.gauges(
                "awaited_lane",
                "Version since which this lane's producer is awaited; one lane at a time.",
                &["lane"],
            )?,
        })
    }
}

impl Metrics {
    /// A rank is gone: a gauge that stays would show it standing still.
    pub(crate) fn forget_rank(&self, dp_rank: &str) {
        for gauges in [&self.frames_held, &self.rank_step] {
            // An error says that there is none, which is what is wanted.
            let _ = gauges.remove_label_values(&[dp_rank]);
        }
    }
}

/// Registers the counters of a store.
pub(crate) fn register_store(registry: &Registry, counted: Counted) -> prometheus::Result<()> {
    Maker::new(registry, PREFIX).counted(counted)
}
