//! The first batch of each producer in a new stage.

use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::manifest::Manifest;
use batchweave_core::stream::StreamOrder;
use serde::Serialize;

use crate::mixture::Begin;
use batchweave_console::CliError;

/// The first batch of a producer in a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ProducerBegin {
    pub(super) producer: ProducerName,
    /// The batches that it has committed.
    pub(super) committed: Seq,
    pub(super) from: Seq,
}

/// Those of all producers that the entry must name.
#[derive(Debug, Clone)]
pub(super) struct Begins(pub(super) Vec<ProducerBegin>);

/// Returns the producers that have not finished, and the lanes that were never opened.
fn producers(m: &Manifest) -> Vec<ProducerName> {
    let open = m.producers().filter(|(_, p)| !p.finished);
    let open = open.map(|(name, _)| name.clone());
    let lanes = m
        .stream()
        .producers
        .iter()
        .filter(|name| m.stream().order == StreamOrder::Lanes && m.producer(name).is_none());
    open.chain(lanes.cloned()).collect()
}

impl Begin {
    /// Returns the first batch of each producer; `mixed` means that a mixture begins with the stage.
    pub(super) fn producers(self, m: &Manifest, mixed: bool) -> Result<Begins, CliError> {
        let begins = self.by(m)?;
        begins.refuse_taken(m)?;
        let one = |name: ProducerName| {
            let state = m.producer(&name);
            let committed = state.map_or(0, |p| p.next_seq);
            let newest = |changes: &std::collections::BTreeMap<Seq, u64>| {
                changes.keys().next_back().copied().unwrap_or(0)
            };
            let set = newest(&m.stages_of(&name));
            let mixtures = state.filter(|_| mixed).map_or(0, |p| newest(&p.mixtures));
            let earlier = set.max(mixtures);
            let from = match begins.at_step(&name) {
                None => begins.after(committed).max(earlier),
                Some((step, from)) if from < earlier => {
                    return Err(CliError::Refused(format!(
                        "producer {name} changes already with its batch {earlier}, which comes after step {step}; choose a later \
                         step"
                    )));
                }
                Some((_, from)) => from,
            };
            Ok(ProducerBegin {
                producer: name,
                committed,
                from,
            })
        };
        let all: Result<Vec<_>, CliError> = producers(m).into_iter().map(one).collect();
        let all = all?;
        if all.is_empty() && m.producer_count() > 0 {
            return Err(CliError::Refused(
                "all producers of this stream have finished: no batch can have another shape"
                    .to_owned(),
            ));
        }
        Ok(Begins(all))
    }
}
