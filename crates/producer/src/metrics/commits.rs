//! The metrics of the commit task.

use batchweave_daemon::metrics::Maker;
use batchweave_log::CommitProgress;
use prometheus::{Histogram, IntCounter, IntGauge};

#[derive(Debug)]
pub(super) struct CommitMetrics {
    commits: IntCounter,
    lost: IntCounter,
    announced: IntCounter,
    combined: IntCounter,
    refused: IntCounter,
    leading: IntGauge,
    pub(super) tgbs: IntCounter,
    pub(super) batches: IntGauge,
    head: IntGauge,
    version: IntGauge,
    latency: Histogram,
}

impl CommitMetrics {
    pub(super) fn new(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            commits: m.counter("commits_total", "Log records that this process won.")?,
            lost: m.counter(
                "lost_commits_total",
                "Versions of the log that another writer took first.",
            )?,
            announced: m.counter(
                "announced_entries_total",
                "Entries announced as intents, for the next leader to commit.",
            )?,
            combined: m.counter(
                "combined_entries_total",
                "Other producers' entries in records that this process won.",
            )?,
            refused: m.counter(
                "refused_intents_total",
                "Objects under intents/ that are not intents; ignored.",
            )?,
            leading: m.gauge(
                "leading",
                "1 while this producer combines the others' commits.",
            )?,
            tgbs: m.counter(
                "tgbs_total",
                "Global batches that this process made visible.",
            )?,
            batches: m.gauge(
                "batches",
                "Batches of this producer in the stream, over all its terms.",
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
                "Time from durable and allowed to visible; of several commits at once the last.",
            )?,
        })
    }

    /// Takes over the numbers of the commit task.
    pub(super) fn update(&self, now: &CommitProgress) {
        if now.next_seq.cast_signed() > self.batches.get() && !now.latency.is_zero() {
            self.latency.observe(now.latency.as_secs_f64());
        }
        if let Some(version) = now.version {
            self.version.set(version.cast_signed());
        }
        let more = |counter: &IntCounter, total: u64| {
            counter.inc_by(total.saturating_sub(counter.get()));
        };
        more(&self.commits, now.records);
        more(&self.lost, now.lost);
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
