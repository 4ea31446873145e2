//! Stages: the shapes of batches, which change at sequence numbers that the log gives to each producer. Stage 0 is that
//! of stream.json.
//!
//! All stages and all their numbers are kept, since the stage of a step follows from its producer and its number; both
//! are bounded by `STAGES_MAX`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{Hash, ProducerName, Seq, StageName};
use crate::limits::{NUMBER_MAX, STAGES_MAX};

/// The shape of the batches of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageState {
    pub name: StageName,
    /// Rows or bins in a slice.
    pub rows_per_slice: u32,
    /// Tokens that a row advances by.
    pub seq_len: u32,
    /// The form of slices, as in the name of the stream's tokenizer; empty for plain rows.
    pub form: String,
    /// SHA-256 over the settings of producers that decide the bytes.
    pub fingerprint: Hash,
    /// The mixture that began with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixture: Option<u64>,
}

impl StageState {
    /// Returns whether slices have bins instead of rows, as their form says first.
    pub fn is_balanced(&self) -> bool {
        self.form.split(", ").next() == Some("balanced")
    }
}

/// The changes of a producer that was never opened, by the sequence numbers from which they are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    pub stages: BTreeMap<Seq, u64>,
    pub mixtures: BTreeMap<Seq, u64>,
}

/// The stages of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stages {
    /// By id, from 1 on without gaps.
    pub all: BTreeMap<u64, StageState>,
    /// The changes of lanes that were never opened.
    pub unopened: BTreeMap<ProducerName, Changes>,
}

impl Stages {
    /// Returns whether no stage was set.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the id of the newest stage; 0 before any.
    pub fn newest(&self) -> u64 {
        self.all.keys().next_back().copied().unwrap_or(0)
    }

    /// Returns the changes of a producer that was never opened: it begins in the newest stage, unless the log gives it
    /// numbers of its own.
    pub(super) fn of_unopened(&self, name: &ProducerName) -> Changes {
        if let Some(own) = self.unopened.get(name) {
            return own.clone();
        }
        let Some((id, newest)) = self.all.last_key_value() else {
            return Changes::default();
        };
        Changes {
            stages: [(0, *id)].into(),
            mixtures: newest.mixture.map(|id| (0, id)).into_iter().collect(),
        }
    }

    /// Returns the first rule that these stages break, in words.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let dense = self.all.keys().copied().eq(1..=self.all.len() as u64);
        if !dense || self.all.len() as u64 > STAGES_MAX {
            return Some("I10: the stages are not numbered one after another");
        }
        let mixtures = self.all.values().filter_map(|stage| stage.mixture);
        let unopened = self.unopened.values();
        let changes = unopened.clone().flat_map(|c| &c.mixtures);
        let mut numbers = mixtures.chain(changes.flat_map(|(seq, id)| [*seq, *id]));
        if numbers.any(|number| number > NUMBER_MAX) {
            return Some("I7: its numbers are above the limit");
        }
        let mut own = unopened.map(|changes| &changes.stages);
        let known = own.all(|stages| self.has(stages));
        (!known).then_some("I10: a lane has a stage that was never set")
    }

    /// Returns whether all of a producer's stages were set.
    pub(super) fn has(&self, own: &BTreeMap<Seq, u64>) -> bool {
        own.iter()
            .all(|(seq, id)| *seq <= NUMBER_MAX && self.all.contains_key(id))
    }
}

/// Returns the id in force at `seq`; 0 before the first one.
pub fn in_force(changes: &BTreeMap<Seq, u64>, seq: Seq) -> u64 {
    let before = changes.range(..=seq).next_back();
    before.map_or(0, |(_, id)| *id)
}
