//! The ranks of a node as rows: step, distance to the head, steps read ahead, and of the last seconds the steps
//! received and the share that each waited, by cause.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use prometheus::proto::MetricFamily;
use serde::Serialize;

use super::families::{ROWS_MAX, labels, sum, value};
use super::stages::{Counts, StageTimes, Stages};

/// Samples that rates and shares cover: ten seconds.
const SAMPLES: usize = 5;

/// The metrics of the table, and of the stages of the ranks' slices. All but `head` and `stages` have the label
/// `dp_rank`; `waits` has `cause` too.
#[derive(Debug, Clone, Copy)]
pub struct Ranks {
    pub head: &'static str,
    pub step: &'static str,
    pub ahead: &'static str,
    pub held: &'static str,
    /// A counter of steps.
    pub delivered: &'static str,
    /// A counter of seconds.
    pub waits: &'static str,
    pub stages: Stages,
}

/// The row of one rank in the page's table.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct RankRow {
    rank: String,
    /// The next step that it gets.
    step: u64,
    /// Committed steps from that one on.
    behind: u64,
    /// Steps read ahead of it.
    ahead: u64,
    /// Frames that it has not released.
    held: u64,
    /// Steps per second that it was sent in the last ten seconds.
    steps_per_second: f64,
    /// Share of the last ten seconds that it waited.
    waiting: f64,
    /// The same by cause, as the label `cause` has it, without zeros.
    causes: BTreeMap<String, f64>,
    /// The cause that took most of these seconds; empty without a wait.
    why: String,
}

/// The counters at one moment.
#[derive(Debug)]
struct Sample {
    /// Seconds by rank and cause.
    waits: BTreeMap<(String, String), f64>,
    delivered: BTreeMap<u64, f64>,
    stages: Counts,
}

/// The counters of the last samples, oldest first.
#[derive(Debug, Default)]
pub(super) struct RecentRanks {
    samples: VecDeque<Sample>,
    covered: Duration,
}

impl RecentRanks {
    pub(super) fn sample(&mut self, ranks: &Ranks, families: &[MetricFamily], every: Duration) {
        self.samples.push_back(Sample {
            waits: seconds(ranks, families),
            delivered: by_rank(families, ranks.delivered),
            stages: Counts::sample(&ranks.stages, families),
        });
        if self.samples.len() > SAMPLES + 1 {
            self.samples.pop_front();
        }
        self.covered = every * (self.samples.len() as u32 - 1);
    }

    /// Returns the oldest and the newest sample, and the seconds between them; `None` before the second one.
    fn ends(&self) -> Option<(&Sample, &Sample, f64)> {
        let ends = self.samples.front().zip(self.samples.back());
        let seconds = self.covered.as_secs_f64();
        ends.filter(|_| seconds > 0.0)
            .map(|(first, last)| (first, last, seconds))
    }

    /// Returns the rows, by rank.
    pub(super) fn rows(&self, ranks: &Ranks, families: &[MetricFamily]) -> Vec<RankRow> {
        let [step, ahead, held] =
            [ranks.step, ranks.ahead, ranks.held].map(|name| by_rank(families, name));
        let head = sum(families, ranks.head);
        let row = |(rank, at): (&u64, &f64)| {
            let of = |values: &BTreeMap<u64, f64>| values.get(rank).map_or(0, |v| *v as u64);
            let causes = self.causes(*rank);
            let most = causes.iter().max_by(|a, b| a.1.total_cmp(b.1));
            RankRow {
                rank: rank.to_string(),
                step: *at as u64,
                behind: (head - at).max(0.0) as u64,
                ahead: of(&ahead),
                held: of(&held),
                steps_per_second: self.steps_per_second(*rank),
                // A sum of nothing is -0.0.
                waiting: causes.values().fold(0.0, |all, share| all + share).min(1.0),
                why: most.map_or_else(String::new, |(cause, _)| cause.clone()),
                causes,
            }
        };
        step.iter().take(ROWS_MAX).map(row).collect()
    }

    /// Returns the durations of the stages in the covered time.
    pub(super) fn stages(&self, ranks: &Ranks) -> Vec<StageTimes> {
        self.ends().map_or_else(Vec::new, |(first, last, seconds)| {
            last.stages.since(&first.stages, &ranks.stages, seconds)
        })
    }

    fn steps_per_second(&self, rank: u64) -> f64 {
        self.ends().map_or(0.0, |(first, last, seconds)| {
            let [before, now] = [first, last].map(|one| one.delivered.get(&rank).unwrap_or(&0.0));
            (now - before) / seconds
        })
    }

    /// Returns the shares of the covered time that a rank waited, by cause.
    fn causes(&self, rank: u64) -> BTreeMap<String, f64> {
        let Some((first, last, covered)) = self.ends() else {
            return BTreeMap::new();
        };
        let rank = rank.to_string();
        let of_rank = last.waits.iter().filter(|((of, _), _)| *of == rank);
        let grown = of_rank.map(|(key, now)| {
            let seconds = now - first.waits.get(key).unwrap_or(&0.0);
            (key.1.clone(), seconds / covered)
        });
        grown.filter(|(_, share)| *share > 0.0).collect()
    }
}

fn seconds(ranks: &Ranks, families: &[MetricFamily]) -> BTreeMap<(String, String), f64> {
    let family = families.iter().filter(|f| f.name() == ranks.waits);
    let metrics = family.flat_map(|f| f.get_metric().iter().map(move |m| (f, m)));
    let pairs = metrics.map(|(family, metric)| {
        let mut labels = labels(metric);
        let [rank, cause] =
            ["dp_rank", "cause"].map(|name| labels.remove(name).unwrap_or_default());
        ((rank, cause), value(family.get_field_type(), metric))
    });
    pairs.collect()
}

/// Returns a metric's values by rank; a label that is not a number is left out.
fn by_rank(families: &[MetricFamily], name: &str) -> BTreeMap<u64, f64> {
    let family = families.iter().filter(|f| f.name() == name);
    let metrics = family.flat_map(|f| f.get_metric().iter().map(move |m| (f, m)));
    let pairs = metrics.filter_map(|(family, metric)| {
        let rank = labels(metric).remove("dp_rank")?.parse().ok()?;
        Some((rank, value(family.get_field_type(), metric)))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use prometheus::{CounterVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

    use super::*;

    const RANKS: Ranks = Ranks {
        head: "head",
        step: "step",
        ahead: "ahead",
        held: "held",
        delivered: "delivered",
        waits: "waits",
        stages: Stages {
            metric: "stages",
            names: &["fetch"],
        },
    };

    #[test]
    fn a_row_has_the_distance_to_the_head_the_rate_and_the_causes() {
        let registry = Registry::new();
        let head = IntGauge::new("head", "h").unwrap();
        let gauges = |name| IntGaugeVec::new(Opts::new(name, "h"), &["dp_rank"]).unwrap();
        let [step, ahead, held] = ["step", "ahead", "held"].map(gauges);
        let waits = CounterVec::new(Opts::new("waits", "w"), &["dp_rank", "cause"]).unwrap();
        let delivered = IntCounterVec::new(Opts::new("delivered", "d"), &["dp_rank"]).unwrap();
        registry.register(Box::new(head.clone())).unwrap();
        registry.register(Box::new(waits.clone())).unwrap();
        registry.register(Box::new(delivered.clone())).unwrap();
        for gauge in [&step, &ahead, &held] {
            registry.register(Box::new(gauge.clone())).unwrap();
        }
        head.set(40);
        for (rank, at) in [("2", 30), ("10", 44)] {
            step.with_label_values(&[rank]).set(at);
            ahead.with_label_values(&[rank]).set(3);
        }
        held.with_label_values(&["2"]).set(1);
        let mut seen = RecentRanks::default();
        for _ in 0..9 {
            delivered.with_label_values(&["2"]).inc_by(20);
            waits.with_label_values(&["2", "fetching"]).inc_by(0.25);
            waits.with_label_values(&["2", "producing"]).inc_by(0.75);
            seen.sample(&RANKS, &registry.gather(), Duration::from_secs(2));
        }
        let rows = seen.rows(&RANKS, &registry.gather());
        let two = RankRow {
            rank: "2".to_owned(),
            step: 30,
            behind: 10,
            ahead: 3,
            held: 1,
            steps_per_second: 10.0,
            waiting: 0.5,
            causes: [("fetching", 0.125), ("producing", 0.375)]
                .map(|(cause, share)| (cause.to_owned(), share))
                .into(),
            why: "producing".to_owned(),
        };
        let idle = RankRow {
            rank: "10".to_owned(),
            step: 44,
            behind: 0,
            ahead: 3,
            held: 0,
            steps_per_second: 0.0,
            waiting: 0.0,
            causes: BTreeMap::new(),
            why: String::new(),
        };
        assert_eq!(rows, [two, idle]);
        assert_eq!(seen.samples.len(), SAMPLES + 1);
    }
}
