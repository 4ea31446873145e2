//! The report of `batchweave top`, from two scrapes of a daemon's metrics.

use std::collections::BTreeMap;

use serde::Serialize;

use super::scrape::Scrape;

/// The stages of a slice, in order.
const STAGES: [&str; 4] = ["wait", "fetch", "crc", "handover"];

/// A node in the interval between two scrapes.
#[derive(Debug, Serialize)]
pub(super) struct NodeReport {
    pub(super) admin: String,
    pub(super) ready: bool,
    /// The text of `/readyz`.
    pub(super) doing: String,
    /// Length of the interval.
    pub(super) seconds: f64,
    pub(super) ranks: Vec<RankReport>,
    /// Bytes in the arena that no rank holds.
    pub(super) ahead_bytes: u64,
    pub(super) arena: Arena,
    pub(super) fetched_bytes_per_second: f64,
    pub(super) stages: Vec<StageTimes>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Arena {
    pub(super) held: u64,
    pub(super) used: u64,
    pub(super) total: u64,
}

/// One rank. Shares are fractions of the interval.
#[derive(Debug, Serialize)]
pub(super) struct RankReport {
    pub(super) dp_rank: String,
    pub(super) step: u64,
    pub(super) steps_per_second: f64,
    /// Share of time in `next()`.
    pub(super) waiting: f64,
    /// Share of time in `next()` by cause, without zeros.
    pub(super) causes: BTreeMap<String, f64>,
    pub(super) ahead_steps: u64,
    /// Seconds until they are used up at the present rate; `None` while the rank takes none.
    pub(super) ahead_seconds: Option<f64>,
    pub(super) held_frames: u64,
}

/// Durations of a stage in the interval; `None` without any slice.
#[derive(Debug, Serialize)]
pub(super) struct StageTimes {
    pub(super) stage: &'static str,
    pub(super) per_second: f64,
    pub(super) p50_seconds: Option<f64>,
    pub(super) p99_seconds: Option<f64>,
}

/// Two scrapes and the seconds between them.
struct Interval<'a> {
    before: &'a Scrape,
    now: &'a Scrape,
    seconds: f64,
}

impl Interval<'_> {
    fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.now.sum(name, labels).max(0.0) as u64
    }

    /// Returns the growth of a counter; a restarted daemon counts from 0.
    fn grown(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let (before, now) = (self.before.sum(name, labels), self.now.sum(name, labels));
        if now < before { now } else { now - before }
    }

    fn rate(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.grown(name, labels) / self.seconds
    }

    fn rank(&self, dp_rank: &str) -> RankReport {
        let own = [("dp_rank", dp_rank)];
        let wait = "rank_wait_seconds_total";
        let mut causes = BTreeMap::new();
        for cause in self.now.labels(wait, "cause") {
            let share = self.rate(wait, &[own[0], ("cause", &cause)]);
            if share > 0.0 {
                causes.insert(cause, share);
            }
        }
        let steps_per_second = self.rate("steps_delivered_total", &own);
        let ahead_steps = self.gauge("ahead_steps", &own);
        RankReport {
            dp_rank: dp_rank.to_owned(),
            step: self.gauge("rank_step", &own),
            steps_per_second,
            // A sum of nothing is -0.0.
            waiting: causes.values().fold(0.0, |all, share| all + share),
            causes,
            ahead_steps,
            ahead_seconds: (steps_per_second > 0.0).then(|| ahead_steps as f64 / steps_per_second),
            held_frames: self.gauge("held_frames", &own),
        }
    }

    fn stage(&self, stage: &'static str) -> StageTimes {
        let own = [("stage", stage)];
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for bound in self.now.labels("stage_seconds_bucket", "le") {
            let count = self.grown("stage_seconds_bucket", &[own[0], ("le", &bound)]);
            let bound = bound.parse().unwrap_or(f64::INFINITY);
            buckets.push((bound, count));
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        StageTimes {
            stage,
            per_second: self.rate("stage_seconds_count", &own),
            p50_seconds: quantile(&buckets, 0.5),
            p99_seconds: quantile(&buckets, 0.99),
        }
    }
}

/// Estimates a quantile as Prometheus does: evenly spread within a bucket. `buckets` are cumulative, by
/// upper bound.
fn quantile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let total = buckets.last()?.1;
    if total <= 0.0 {
        return None;
    }
    let rank = share * total;
    let mut below = (0.0, 0.0);
    for &(bound, count) in buckets {
        if count >= rank {
            if bound.is_infinite() {
                return Some(below.0);
            }
            let inside = (rank - below.1) / (count - below.1).max(f64::MIN_POSITIVE);
            return Some(below.0 + (bound - below.0) * inside);
        }
        below = (bound, count);
    }
    None
}

impl NodeReport {
    /// Returns the report of a daemon that does not answer.
    pub(super) fn absent(admin: &str, why: String) -> Self {
        Self {
            admin: admin.to_owned(),
            ready: false,
            doing: why,
            seconds: 0.0,
            ranks: Vec::new(),
            ahead_bytes: 0,
            arena: Arena::default(),
            fetched_bytes_per_second: 0.0,
            stages: Vec::new(),
        }
    }

    pub(super) fn between(admin: &str, before: &Scrape, now: &Scrape) -> Self {
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let interval = Interval {
            before,
            now,
            seconds: seconds.max(1e-3),
        };
        let mut ranks: Vec<_> = now
            .labels("rank_step", "dp_rank")
            .into_iter()
            .map(|dp_rank| interval.rank(&dp_rank))
            .collect();
        ranks.sort_by_key(|rank| rank.dp_rank.parse::<u32>().unwrap_or(u32::MAX));
        let part = |part| interval.gauge("arena_bytes", &[("part", part)]);
        Self {
            admin: admin.to_owned(),
            ready: now.ready,
            doing: now.doing.clone(),
            seconds,
            ranks,
            ahead_bytes: interval.gauge("ahead_bytes", &[]),
            arena: Arena {
                held: part("held"),
                used: part("used"),
                total: part("total"),
            },
            fetched_bytes_per_second: interval.rate("fetched_bytes_total", &[]),
            stages: STAGES.map(|stage| interval.stage(stage)).into(),
        }
    }
}
