//! Metrics of the losses that ranks report: averages over about the last 64 values, for people who watch a run.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use batchweave_daemon::metrics::Maker;
use batchweave_wire::StepValues;
use prometheus::{GaugeVec, IntGauge};

/// The weight of earlier values when one is added: about the last 64 count.
const KEPT: f64 = 1.0 - 1.0 / 64.0;
/// Sources with a gauge of their own, as many as a producer may have; others are in "other".
const SOURCES_MAX: usize = 64;
/// Names of the averages over all tokens, and over further sources.
const ALL: &str = "all";
const OTHER: &str = "other";

/// The averages, by name of the gauge: sum and weight.
#[derive(Debug)]
pub(crate) struct Losses {
    averages: Mutex<BTreeMap<String, (f64, f64)>>,
    loss: GaugeVec,
    trained: IntGauge,
}

impl Losses {
    pub(crate) fn make(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            averages: Mutex::default(),
            loss: m.number_gauges(
                "loss",
                "Mean loss of a token in about the last 64 values that ranks reported, by number of the source; all: of all tokens.",
                &["source"],
            )?,
            trained: m.gauge("trained_step", "Newest step that a rank reported as trained.")?,
        })
    }

    /// Notes that ranks trained steps up to `step`.
    pub(crate) fn trained(&self, step: u64) {
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        self.trained.set(self.trained.get().max(step));
    }

    /// Adds the values of one rank's step.
    pub(crate) fn note(&self, values: &StepValues) {
        let mut averages = self.averages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut add = |name: String, sum: f64, weight: f64| {
            if weight == 0.0 {
                return;
            }
            let one = averages.entry(name.clone()).or_default();
            *one = (one.0 * KEPT + sum, one.1 * KEPT + weight);
            self.loss.with_label_values(&[&name]).set(one.0 / one.1);
        };
        add(ALL.to_owned(), values.sum, values.weight);
        for one in &values.sources {
            let name = match usize::from(one.source) {
                n if n < SOURCES_MAX => n.to_string(),
                _ => OTHER.to_owned(),
            };
            add(name, one.sum.into(), one.weight.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use batchweave_wire::SourceLoss;
    use prometheus::Registry;

    use super::*;

    #[test]
    fn averages_are_weighted_by_tokens_and_follow_the_last_values() {
        let registry = Registry::new();
        let losses = Losses::make(&Maker::new(&registry, "batchweave_consumer")).unwrap();
        let value = |name: &str| losses.loss.with_label_values(&[name]).get();
        let source = |source, sum, weight| SourceLoss {
            source,
            sum,
            weight,
        };
        let mut values = StepValues {
            sum: 9.0,
            weight: 3.0,
            sources: vec![
                source(0, 8.0, 2.0),
                source(7, 1.0, 1.0),
                source(999, 0.0, 0.0),
            ],
            ..StepValues::default()
        };
        losses.note(&values);
        let is = |name, expected: f64| assert!((value(name) - expected).abs() < 1e-9, "{name}");
        is("all", 3.0);
        is("0", 4.0);
        is("7", 1.0);
        (values.sum, values.weight) = (3.0, 3.0);
        values.sources = vec![source(999, 2.0, 1.0)];
        for _ in 0..1000 {
            losses.note(&values);
        }
        assert!((value("all") - 1.0).abs() < 1e-6, "{}", value("all"));
        is("0", 4.0);
        is("other", 2.0);
        losses.trained(7);
        losses.trained(5);
        assert_eq!(losses.trained.get(), 7);
    }
}
