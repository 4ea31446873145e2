//! The ranks of a node as rows: step, distance to the head, steps read ahead, and the share of the last
//! seconds that each waited, with the cause that took most of it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use prometheus::proto::MetricFamily;
use serde::Serialize;

use super::status_page::{ROWS_MAX, labels, sum, value};

/// Samples that a share of waiting covers: ten seconds.
const SAMPLES: usize = 5;

/// The metrics of the table. All but `head` have the label `dp_rank`; `waits` has `cause` too.
#[derive(Debug, Clone, Copy)]
pub struct Ranks {
    pub head: &'static str,
    pub step: &'static str,
    pub ahead: &'static str,
    pub held: &'static str,
    /// A counter of seconds.
    pub waits: &'static str,
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
    /// Share of the last ten seconds that it waited.
    waiting: f64,
    /// The cause that took most of these seconds, as the label `cause` has it; empty without a wait.
    why: String,
}

type Seconds = BTreeMap<(String, String), f64>;

/// The counters of the last samples, oldest first.
#[derive(Debug, Default)]
pub(super) struct Waits {
    samples: VecDeque<Seconds>,
    covered: Duration,
}

impl Waits {
    pub(super) fn sample(&mut self, ranks: &Ranks, families: &[MetricFamily], every: Duration) {
        self.samples.push_back(seconds(ranks, families));
        if self.samples.len() > SAMPLES + 1 {
            self.samples.pop_front();
        }
        self.covered = every * (self.samples.len() as u32 - 1);
    }

    /// Returns the rows, by rank.
    pub(super) fn rows(&self, ranks: &Ranks, families: &[MetricFamily]) -> Vec<RankRow> {
        let [step, ahead, held] =
            [ranks.step, ranks.ahead, ranks.held].map(|name| by_rank(families, name));
        let head = sum(families, ranks.head);
        let row = |(rank, at): (&u64, &f64)| {
            let (waiting, why) = self.waited(*rank);
            let of = |values: &BTreeMap<u64, f64>| values.get(rank).map_or(0, |v| *v as u64);
            RankRow {
                rank: rank.to_string(),
                step: *at as u64,
                behind: (head - at).max(0.0) as u64,
                ahead: of(&ahead),
                held: of(&held),
                waiting,
                why,
            }
        };
        step.iter().take(ROWS_MAX).map(row).collect()
    }

    /// Returns the share of the covered time that a rank waited, and the largest cause.
    fn waited(&self, rank: u64) -> (f64, String) {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return (0.0, String::new());
        };
        let rank = rank.to_string();
        let of_rank = last.iter().filter(|((of, _), _)| *of == rank);
        let grown: Vec<_> = of_rank
            .map(|(key, now)| (now - first.get(key).unwrap_or(&0.0), &key.1))
            .filter(|(seconds, _)| *seconds > 0.0)
            .collect();
        let all: f64 = grown.iter().map(|(seconds, _)| seconds).sum();
        let most = grown.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        let covered = self.covered.as_secs_f64();
        let share = if covered > 0.0 {
            (all / covered).min(1.0)
        } else {
            0.0
        };
        (
            share,
            most.map(|(_, cause)| (*cause).clone()).unwrap_or_default(),
        )
    }
}

fn seconds(ranks: &Ranks, families: &[MetricFamily]) -> Seconds {
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

/// Returns a gauge's values by rank; a label that is not a number is left out.
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
    use prometheus::{CounterVec, IntGauge, IntGaugeVec, Opts, Registry};

    use super::*;

    const RANKS: Ranks = Ranks {
        head: "head",
        step: "step",
        ahead: "ahead",
        held: "held",
        waits: "waits",
    };

    #[test]
    fn a_row_has_the_distance_to_the_head_and_the_largest_cause() {
        let registry = Registry::new();
        let head = IntGauge::new("head", "h").unwrap();
        let gauges = |name| IntGaugeVec::new(Opts::new(name, "h"), &["dp_rank"]).unwrap();
        let [step, ahead, held] = ["step", "ahead", "held"].map(gauges);
        let waits = CounterVec::new(Opts::new("waits", "w"), &["dp_rank", "cause"]).unwrap();
        registry.register(Box::new(head.clone())).unwrap();
        registry.register(Box::new(waits.clone())).unwrap();
        for gauge in [&step, &ahead, &held] {
            registry.register(Box::new(gauge.clone())).unwrap();
        }
        head.set(40);
        for (rank, at) in [("2", 30), ("10", 44)] {
            step.with_label_values(&[rank]).set(at);
            ahead.with_label_values(&[rank]).set(3);
        }
        held.with_label_values(&["2"]).set(1);
        let mut seen = Waits::default();
        for _ in 0..9 {
            waits.with_label_values(&["2", "fetching"]).inc_by(0.25);
            waits.with_label_values(&["2", "producing"]).inc_by(0.75);
            seen.sample(&RANKS, &registry.gather(), Duration::from_secs(2));
        }
        let rows = seen.rows(&RANKS, &registry.gather());
        let row = |rank: &str, step, behind, held, waiting, why: &str| RankRow {
            rank: rank.to_owned(),
            step,
            behind,
            ahead: 3,
            held,
            waiting,
            why: why.to_owned(),
        };
        let expected = [
            row("2", 30, 10, 1, 0.5, "producing"),
            row("10", 44, 0, 0, 0.0, ""),
        ];
        assert_eq!(rows, expected);
        assert_eq!(seen.samples.len(), SAMPLES + 1);
    }
}
