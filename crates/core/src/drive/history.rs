//! The mixtures of a log, from its records folded one by one, and the mixture of each step.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::ids::{ProducerName, Seq, Step, Version};
use crate::manifest::rules::Validity;
use crate::manifest::{Entry, Folded, Manifest};
use crate::order::{MixtureSpec, Weight};

/// A mixture as its entry has it.
#[derive(Debug, Clone, PartialEq)]
pub struct MixtureInLog {
    /// The version that set it.
    pub version: Version,
    /// The first batch of each producer.
    pub from: BTreeMap<ProducerName, Seq>,
    /// Its weights by source; empty where another program wrote them.
    pub weights: BTreeMap<String, Weight>,
    /// The stored reason, of changes that a driver made.
    pub why: Option<Value>,
    /// The first step wholly of the mixture before, when this one was set.
    pub whole_before: Step,
}

/// A producer that has not reached a mixture yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "producer {producer} begins mixture {mixture} with its batch {from}, and has {placed} in the stream so far"
)]
pub struct NotWhole {
    pub producer: ProducerName,
    pub mixture: u64,
    pub from: Seq,
    pub placed: Seq,
}

/// All mixtures of a log.
#[derive(Debug, Clone, Default)]
pub struct MixtureHistory {
    mixtures: BTreeMap<u64, MixtureInLog>,
    /// The first batch of each run of batches with one mixture.
    begins: BTreeMap<ProducerName, BTreeMap<Seq, u64>>,
    /// The last step of each producer with each mixture.
    last: BTreeMap<ProducerName, BTreeMap<u64, Step>>,
}

impl MixtureHistory {
    /// Applies the effects of the record of `version`.
    pub fn note(&mut self, version: Version, folded: &Folded) {
        if let Some(record) = &folded.record {
            for (entry, verdict) in record.entries.iter().zip(&folded.entries) {
                if matches!(verdict, Ok(Validity::Applies)) {
                    self.apply(version, entry);
                }
            }
        }
        for placed in &folded.placed {
            let begins = self.begins.get(&placed.producer);
            let run = begins.and_then(|all| all.range(..=placed.seq).next_back());
            let id = run.map_or(0, |(_, id)| *id);
            let last = self.last.entry(placed.producer.clone()).or_default();
            last.insert(id, placed.step);
        }
    }

    fn apply(&mut self, version: Version, entry: &Entry) {
        match entry {
            Entry::Mixture(e) => self.set(version, e.id, &e.from, &e.spec, e.why.clone()),
            Entry::Stage(e) => {
                if let Some(mixture) = &e.mixture {
                    self.set(version, mixture.id, &e.from, &mixture.spec, None);
                }
            }
            Entry::Batch(e) => {
                let begins = self.begins.entry(e.producer.clone()).or_default();
                let before = begins.last_key_value().map_or(0, |(_, id)| *id);
                if before != e.mixture {
                    begins.insert(e.first_seq, e.mixture);
                }
            }
            _ => {}
        }
    }

    fn set(
        &mut self,
        version: Version,
        id: u64,
        from: &BTreeMap<ProducerName, Seq>,
        spec: &Value,
        why: Option<Value>,
    ) {
        let spec = MixtureSpec::read(spec).unwrap_or_default();
        let own = spec.mixtures.into_iter().find(|mixture| mixture.id == id);
        let mixture = MixtureInLog {
            version,
            from: from.clone(),
            weights: own.map(|own| own.weights).unwrap_or_default(),
            why,
            whole_before: self.whole_from(id.saturating_sub(1)),
        };
        self.mixtures.insert(id, mixture);
    }

    /// Returns the mixture of that number, if this log set it.
    pub fn mixture(&self, id: u64) -> Option<&MixtureInLog> {
        self.mixtures.get(&id)
    }

    /// Returns all mixtures below `end` with a reason, the newest first.
    pub fn reasons(&self, end: u64) -> impl Iterator<Item = (u64, &Value)> {
        let all = self.mixtures.range(..end).rev();
        all.filter_map(|(id, mixture)| Some((*id, mixture.why.as_ref()?)))
    }

    /// Returns the first step from which on the producers of mixture `id` have no earlier one: 0 of the configured mixture.
    /// It is certain once each of them has reached it, or has ended.
    pub fn first_whole(&self, id: u64, m: &Manifest) -> Result<Step, NotWhole> {
        let Some(mixture) = self.mixtures.get(&id) else {
            return Ok(0);
        };
        for (name, &from) in &mixture.from {
            let Some(state) = m.producer(name) else {
                continue;
            };
            let placed = state.next_seq - m.waiting_of(name).min(state.next_seq);
            if placed < from && !state.finished && !state.retired {
                return Err(NotWhole {
                    producer: name.clone(),
                    mixture: id,
                    from,
                    placed,
                });
            }
        }
        Ok(self.whole_from(id))
    }

    fn whole_from(&self, id: u64) -> Step {
        let Some(mixture) = self.mixtures.get(&id) else {
            return 0;
        };
        let own = mixture.from.keys().filter_map(|name| self.last.get(name));
        let earlier = own.filter_map(|last| last.range(..id).map(|(_, step)| *step).max());
        earlier.max().map_or(0, |step| step + 1)
    }
}
