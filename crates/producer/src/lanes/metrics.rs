//! The metrics of several producers on one page: those of each have its name as a label.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Registry, Result};

use crate::metrics::Metrics;

/// The metrics of the producers by lane; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct LaneMetrics {
    lanes: Arc<Mutex<Vec<Lane>>>,
}

#[derive(Debug)]
struct Lane {
    name: String,
    registry: Registry,
    metrics: Arc<Metrics>,
}

impl LaneMetrics {
    /// Puts the metrics of all lanes on the page of `registry`.
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let lanes = Self::default();
        let about = Desc::new(
            "batchweave_producer_by_lane".to_owned(),
            "Stands for the metrics of all lanes; never on the page.".to_owned(),
            Vec::new(),
            HashMap::new(),
        )?;
        registry.register(Box::new(OfAll(lanes.clone(), about)))?;
        Ok(lanes)
    }

    /// Returns the metrics of `lane`, which go on where it ran in this daemon before.
    pub(super) fn of(&self, lane: &str) -> Result<Arc<Metrics>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lanes.iter().find(|known| known.name == lane) {
            return Ok(known.metrics.clone());
        }
        let labels = HashMap::from([("producer".to_owned(), lane.to_owned())]);
        let registry = Registry::new_custom(None, Some(labels))?;
        let metrics = Arc::new(Metrics::new(&registry)?);
        lanes.push(Lane {
            name: lane.to_owned(),
            registry,
            metrics: metrics.clone(),
        });
        Ok(metrics)
    }
}

/// The registry merges families of one name from all its collectors.
struct OfAll(LaneMetrics, Desc);

impl Collector for OfAll {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.1]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let lanes = self.0.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes
            .iter()
            .flat_map(|lane| lane.registry.gather())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_the_metrics_of_all_lanes() {
        let registry = Registry::new();
        let lanes = LaneMetrics::new(&registry).unwrap();
        lanes.of("a").unwrap().documents.inc_by(3);
        lanes.of("b").unwrap().documents.inc_by(5);
        lanes.of("a").unwrap().documents.inc();
        let families = registry.gather();
        let found: Vec<_> = families
            .iter()
            .filter(|family| family.name() == "batchweave_producer_documents_total")
            .flat_map(MetricFamily::get_metric)
            .map(|metric| {
                (
                    metric.get_label()[0].value().to_owned(),
                    metric.get_counter().get_value(),
                )
            })
            .collect();
        assert_eq!(found, [("a".to_owned(), 4.0), ("b".to_owned(), 5.0)]);
    }
}
