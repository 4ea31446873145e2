//! Intents that were read and cannot be committed: their keys are remembered, so that they are neither read
//! nor counted again. Bounded; a forgotten intent is read once more.

use std::collections::BTreeMap;

use batchweave_core::ids::{Epoch, Seq};
use batchweave_core::keys;
use batchweave_core::limits::INTENTS_PER_ROUND;
use batchweave_core::manifest::Manifest;

/// Refused intents that are remembered at most.
const KEYS_MAX: usize = 8 * INTENTS_PER_ROUND;

/// The state on which the validity of a producer's intent depends, until its key alone shows that it is
/// obsolete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RelevantState {
    epoch: Epoch,
    next_seq: Seq,
    mixture: u64,
    stage: u64,
    sealed: bool,
}

impl RelevantState {
    fn for_key(manifest: &Manifest, key: &str) -> Option<Self> {
        let (name, ..) = keys::parse_intent(key)?;
        let state = manifest.producer(&name);
        let next_seq = state.map_or(0, |p| p.next_seq);
        Some(Self {
            epoch: state.map_or(0, |p| p.epoch),
            next_seq,
            mixture: manifest.mixture_at(&name, next_seq),
            stage: manifest.stage_at(&name, next_seq),
            sealed: manifest.sealed(),
        })
    }
}

/// Intents that cannot be committed.
#[derive(Debug, Default)]
pub(super) struct RefusedIntents {
    /// With the state in which it could not be committed; `None`: it never can be.
    keys: BTreeMap<String, Option<RelevantState>>,
    count: u64,
}

impl RefusedIntents {
    /// The number of intents refused.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    fn note(&mut self, key: String, state: Option<RelevantState>) {
        if self.keys.insert(key, state).is_none() {
            self.count += 1;
        }
        if self.keys.len() > KEYS_MAX {
            self.keys.pop_first();
        }
    }

    /// Notes an intent that can never be committed.
    pub(super) fn never(&mut self, key: String) {
        self.note(key, None);
    }

    /// Notes an intent that cannot be committed in the current state.
    pub(super) fn not_now(&mut self, key: String, manifest: &Manifest) {
        let state = RelevantState::for_key(manifest, &key);
        self.note(key, state);
    }

    /// Removes refused intents from a list; returns those that can be deleted. `whole`: all intents were
    /// listed, so one that is not in the list is gone.
    pub(super) fn remove_from(
        &mut self,
        listed: &mut Vec<(String, u64)>,
        manifest: &Manifest,
        whole: bool,
    ) -> Vec<String> {
        let mut hopeless = Vec::new();
        let mut there = BTreeMap::new();
        listed.retain(|(key, _)| match self.keys.get(key) {
            None => true,
            Some(None) => {
                hopeless.push(key.clone());
                there.insert(key.clone(), None);
                false
            }
            Some(Some(before)) => {
                let same = RelevantState::for_key(manifest, key) == Some(*before);
                if same {
                    there.insert(key.clone(), Some(*before));
                }
                !same
            }
        });
        if whole {
            self.keys = there;
        }
        hopeless
    }
}
