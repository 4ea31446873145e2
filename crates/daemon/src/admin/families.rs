//! The values of metrics, by family.

use std::collections::BTreeMap;

use prometheus::proto::{Metric, MetricFamily, MetricType};

pub(super) const ROWS_MAX: usize = 64;

pub(super) fn labels(metric: &Metric) -> BTreeMap<String, String> {
    let pairs = metric
        .get_label()
        .iter()
        .map(|pair| (pair.name().to_owned(), pair.value().to_owned()));
    pairs.collect()
}

pub(super) fn sum(families: &[MetricFamily], name: &str) -> f64 {
    let family = families.iter().filter(|family| family.name() == name);
    family
        .flat_map(|f| f.get_metric().iter().map(|m| value(f.get_field_type(), m)))
        .sum()
}

/// Returns the value; of a histogram, the mean.
pub(super) fn value(kind: MetricType, metric: &Metric) -> f64 {
    match kind {
        MetricType::COUNTER => metric.get_counter().get_value(),
        MetricType::HISTOGRAM => {
            let all = metric.get_histogram();
            all.get_sample_sum() / (all.get_sample_count().max(1) as f64)
        }
        _ => metric.get_gauge().get_value(),
    }
}
