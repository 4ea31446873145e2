//! Durations of the stages of a slice, from two samples of a histogram.

use std::collections::BTreeMap;

use prometheus::proto::{Metric, MetricFamily};
use serde::Serialize;

use super::families::labels;

/// A histogram of seconds with the label `stage`.
#[derive(Debug, Clone, Copy)]
pub struct Stages {
    pub metric: &'static str,
    /// The values of the label, in the order in which a slice passes the stages.
    pub names: &'static [&'static str],
}

/// The durations of a stage; `None` without any slice.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct StageTimes {
    stage: &'static str,
    per_second: f64,
    p50_seconds: Option<f64>,
    p99_seconds: Option<f64>,
}

/// Numbers of durations up to each bound; the last bound is infinite.
type Buckets = Vec<(f64, f64)>;

/// The buckets of each stage.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<String, Buckets>);

impl Counts {
    pub(super) fn sample(stages: &Stages, families: &[MetricFamily]) -> Self {
        let family = families.iter().filter(|f| f.name() == stages.metric);
        let metrics = family.flat_map(MetricFamily::get_metric);
        let pairs =
            metrics.filter_map(|metric| Some((labels(metric).remove("stage")?, buckets(metric))));
        Self(pairs.collect())
    }

    /// Returns the durations of all stages in the seconds since the sample `before`.
    pub(super) fn since(&self, before: &Self, stages: &Stages, seconds: f64) -> Vec<StageTimes> {
        let times = |stage: &&'static str| {
            let then = before.0.get(*stage).map_or(&[][..], Vec::as_slice);
            let now = self.0.get(*stage).map_or(&[][..], Vec::as_slice);
            let grown = now.iter().enumerate().map(|(at, (bound, count))| {
                let before = then.get(at).map_or(0.0, |(_, before)| *before);
                (*bound, count - before)
            });
            let grown: Buckets = grown.collect();
            StageTimes {
                stage,
                per_second: grown.last().map_or(0.0, |(_, count)| count / seconds),
                p50_seconds: quantile(&grown, 0.5),
                p99_seconds: quantile(&grown, 0.99),
            }
        };
        stages.names.iter().map(times).collect()
    }
}

fn buckets(metric: &Metric) -> Buckets {
    let all = metric.get_histogram();
    let finite = all
        .get_bucket()
        .iter()
        .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count() as f64));
    let total = all.get_sample_count() as f64;
    finite.chain([(f64::INFINITY, total)]).collect()
}

/// Estimates a quantile as Prometheus does: evenly spread within a bucket. `None` without any duration.
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

#[cfg(test)]
mod tests {
    use prometheus::{HistogramOpts, HistogramVec, Registry};

    use super::*;

    #[test]
    fn rates_and_quantiles_are_of_the_time_between() {
        const STAGES: Stages = Stages {
            metric: "stages",
            names: &["wait", "fetch"],
        };
        let registry = Registry::new();
        let options = HistogramOpts::new("stages", "s").buckets(vec![0.01, 0.03]);
        let stages = HistogramVec::new(options, &["stage"]).unwrap();
        registry.register(Box::new(stages.clone())).unwrap();
        let fetched = |seconds, times: u32| {
            for _ in 0..times {
                stages.with_label_values(&["fetch"]).observe(seconds);
            }
        };
        fetched(0.005, 5);
        let before = Counts::sample(&STAGES, &registry.gather());
        fetched(0.005, 10);
        fetched(0.02, 10);
        let now = Counts::sample(&STAGES, &registry.gather());
        let times = now.since(&before, &STAGES, 2.0);
        let idle = StageTimes {
            stage: "wait",
            per_second: 0.0,
            p50_seconds: None,
            p99_seconds: None,
        };
        assert_eq!(times[0], idle);
        assert_eq!((times[1].stage, times[1].per_second), ("fetch", 10.0));
        assert_eq!(times[1].p50_seconds, Some(0.01));
        let p99 = times[1].p99_seconds.unwrap();
        assert!((0.0295..0.03).contains(&p99), "{p99}");
        // A duration above all bounds counts as the largest one.
        fetched(9.0, 100);
        let slow = Counts::sample(&STAGES, &registry.gather());
        assert_eq!(slow.since(&now, &STAGES, 1.0)[1].p50_seconds, Some(0.03));
    }
}
