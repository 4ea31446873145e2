//! Intents that were read and are of no use: which those are is remembered, so that they are neither
//! read nor counted again. Bounded; who is forgotten is read once more.

use std::collections::BTreeMap;

use batchweave_core::ids::{Epoch, Seq};
use batchweave_core::keys;
use batchweave_core::limits::INTENTS_PER_ROUND;
use batchweave_core::manifest::Manifest;

/// Keys that are remembered.
const KEYS_MAX: usize = 8 * INTENTS_PER_ROUND;

/// All of the state that a verdict on a producer's intent can change with, until it is dead by its
/// key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stand {
    epoch: Epoch,
    next_seq: Seq,
    mixture: u64,
    sealed: bool,
}

impl Stand {
    fn of(manifest: &Manifest, key: &str) -> Option<Self> {
        let (name, ..) = keys::parse_intent(key)?;
        let state = manifest.producer(&name);
        let next_seq = state.map_or(0, |p| p.next_seq);
        Some(Self {
            epoch: state.map_or(0, |p| p.epoch),
            next_seq,
            mixture: manifest.mixture_at(&name, next_seq),
            sealed: manifest.sealed(),
        })
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Useless {
    /// Can never be committed, or could not as things stood.
    keys: BTreeMap<String, Option<Stand>>,
    count: u64,
}

impl Useless {
    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    fn note(&mut self, key: String, stand: Option<Stand>) {
        if self.keys.insert(key, stand).is_none() {
            self.count += 1;
        }
        if self.keys.len() > KEYS_MAX {
            self.keys.pop_first();
        }
    }

    /// It can never be committed.
    pub(super) fn never(&mut self, key: String) {
        self.note(key, None);
    }

    /// It can't be committed as things stand.
    pub(super) fn not_now(&mut self, key: String, manifest: &Manifest) {
        let stand = Stand::of(manifest, &key);
        self.note(key, stand);
    }

    /// Takes out of a list what is known to be of no use; returns what can be deleted of it. `whole`:
    /// all intents were listed, so what is not in the list is gone.
    pub(super) fn sort_out(
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
            Some(Some(stand)) => {
                let same = Stand::of(manifest, key) == Some(*stand);
                if same {
                    there.insert(key.clone(), Some(*stand));
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
