//! The mixtures that the log sets, with weights for the sources of this producer.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::order::{MixtureSpec, SamplerState, SpecError, Weight};
use batchweave_log::ChangesInLog;
use tokio::sync::watch;

use crate::error::RunError;
use crate::sources::SourcePlan;

/// The weights of mixtures, by number.
pub(crate) type WeightsByMixture = BTreeMap<u64, Vec<Weight>>;

/// A producer's sources, for which mixtures give weights.
#[derive(Debug, Clone)]
pub(crate) struct MixedSources {
    pub(crate) producer: ProducerName,
    pub(crate) plans: Vec<Arc<SourcePlan>>,
    /// The weights of the configuration.
    pub(crate) weights: Vec<Weight>,
}

impl MixedSources {
    /// Returns the weights of all mixtures that a sampler at `state` and the batches to come need.
    pub(crate) fn needed(
        &self,
        log: &ChangesInLog,
        state: &SamplerState,
    ) -> Result<WeightsByMixture, RunError> {
        let next = state.next.iter().map(|(id, _)| *id);
        let later = log.from.values().copied().filter(|id| *id > state.mix);
        let ids = next.chain(later).chain([state.mix]);
        self.weights(log, ids.filter(|id| *id > 0))
    }

    fn weights(
        &self,
        log: &ChangesInLog,
        ids: impl Iterator<Item = u64>,
    ) -> Result<WeightsByMixture, RunError> {
        let sources = self.plans.iter().zip(&self.weights);
        let sources: Vec<(&str, Weight)> = sources
            .map(|(plan, weight)| (plan.name(), *weight))
            .collect();
        let failed = |mixture| {
            move |why: SpecError| RunError::Mixture {
                producer: self.producer.to_string(),
                mixture,
                why,
            }
        };
        let weights = |id| {
            let spec = MixtureSpec::read(&log.last.spec).map_err(failed(id))?;
            Ok((id, spec.weights(id, &sources).map_err(failed(id))?))
        };
        ids.map(weights).collect()
    }
}

/// Changes that the log has for this producer.
#[derive(Debug)]
pub(super) struct NewMixtures {
    /// Mixtures by the first batch of each.
    pub(super) from: BTreeMap<Seq, u64>,
    pub(super) weights: WeightsByMixture,
}

/// The changes that the commit task sees in the log.
#[derive(Debug)]
pub(super) struct MixtureWatch {
    sources: MixedSources,
    log: watch::Receiver<ChangesInLog>,
    /// The changes of this producer at the last call; only the one in force and later ones.
    seen: BTreeMap<Seq, u64>,
}

impl MixtureWatch {
    pub(super) fn new(sources: MixedSources, log: watch::Receiver<ChangesInLog>) -> Self {
        let seen = log.borrow().from.clone();
        Self { sources, log, seen }
    }

    /// Returns the changes of this producer and their weights, if there are more than at the last call.
    pub(super) fn changed(&mut self) -> Result<Option<NewMixtures>, RunError> {
        // A closed channel means that the commit task has ended, so no change follows.
        if !self.log.has_changed().unwrap_or(false) {
            return Ok(None);
        }
        let log = self.log.borrow_and_update().clone();
        let last = log.from.iter().next_back();
        // The last mixture may be that of other producers.
        let Some((from, mixture)) = last.filter(|last| self.seen.iter().next_back() != Some(*last))
        else {
            return Ok(None);
        };
        let weights = self.sources.weights(&log, log.from.values().copied())?;
        tracing::info!(mixture, from, "the mixture of the sources changes");
        self.seen.clone_from(&log.from);
        Ok(Some(NewMixtures {
            from: log.from,
            weights,
        }))
    }
}
