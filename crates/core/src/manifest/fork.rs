//! A fork: a stream that goes on where its parent stood at some step. Its log begins with a state of its own, which
//! `stream.json` names by its hash, in place of the empty one.
//!
//! Invariants:
//! - the state is a function of the parent's records up to the first one behind which all steps below the fork are
//!   assigned, so that every fold of them gives the same bytes;
//! - each producer begins at its first batch with a step of the fork, whatever its entries were in the parent.

mod build;

use std::collections::BTreeMap;
use std::sync::Arc;

use rpds::VectorSync;
use serde::{Deserialize, Serialize};

pub use self::build::{Border, LeftBehind};
use super::invariants;
use super::lanes::Lanes;
use super::stages::Stages;
use super::state::{Manifest, MixtureState, ProducerState};
use crate::error::FormatError;
use crate::ids::{Hash, ProducerName, Step, StreamId};
use crate::limits::{FORK_BYTES_MAX, FORK_REPEATED_MAX};
use crate::stream::{ParentStream, StreamConfig};
use crate::{json, keys};

/// The content of `fork.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForkState {
    /// Format of this object; 1.
    pub format: u32,
    /// The id of the parent.
    pub stream: StreamId,
    /// The first step of the fork.
    pub step: Step,
    /// Under `lanes`: the lane of that step, as an index into the producers of `stream.json`.
    pub turn: u32,
    /// The producers by name, all of them retired: the first opening of each in the fork has the next term.
    pub producers: BTreeMap<ProducerName, ProducerState>,
    /// The last mixture that begins for some producer at or before its first batch in the fork.
    pub mixture: MixtureState,
    /// The stages that begin so for some producer.
    #[serde(default, skip_serializing_if = "Stages::is_empty")]
    pub stages: Stages,
}

impl ForkState {
    /// Returns the bytes to store.
    pub fn to_json(&self) -> Vec<u8> {
        json::compact(self)
    }

    /// Decodes the state that `parent` names.
    pub fn from_json(bytes: &[u8], parent: &ParentStream) -> Result<Self, FormatError> {
        let rule = |reason: &str| Err(FormatError::rule(keys::FORK, reason));
        if Hash::sha256(bytes) != parent.state {
            return rule("is not the object that stream.json names by its hash");
        }
        let read: Self = json::parse(bytes, keys::FORK, FORK_BYTES_MAX)?;
        FormatError::check_stream(keys::FORK, read.stream, parent.stream)?;
        if read.step != parent.step {
            return rule("begins at another step than stream.json says");
        }
        if read.to_json() != bytes {
            return rule("is not in its canonical form");
        }
        match read.producers.iter().find_map(|(_, p)| broken_rule(p)) {
            Some(reason) => rule(reason),
            None => Ok(read),
        }
    }
}

/// Returns the rule that an inherited producer breaks.
fn broken_rule(p: &ProducerState) -> Option<&'static str> {
    if !p.retired || p.finished || p.opened != 0 || p.began != 0 {
        return Some("has a producer that is not retired, or was opened in the fork");
    }
    if !p.cursor.fits() {
        return Some("has a cursor that is too large");
    }
    let repeated = p.again.as_ref().map_or(0, |again| again.digests.len());
    if repeated > FORK_REPEATED_MAX || repeated as u64 > p.next_seq {
        return Some("has more digests than a producer can repeat batches");
    }
    None
}

impl Manifest {
    /// Returns the state of a fork before version 0. `stream_json` are the bytes as stored: the chain begins there.
    pub fn forked(
        stream: StreamConfig,
        stream_json: &[u8],
        state: ForkState,
    ) -> Result<Self, FormatError> {
        let broken = |reason: String| FormatError::rule(keys::FORK, reason);
        if state.step != stream.first_step() {
            let reason = "begins at another step than stream.json says";
            return Err(broken(reason.to_owned()));
        }
        let none = std::iter::empty();
        let lanes = Lanes::stored(&stream, state.turn, 0, BTreeMap::new(), none);
        if let Some(other) = state.producers.keys().find(|name| !lanes.allows(name)) {
            return Err(broken(format!(
                "has producer {other}, which stream.json does not name"
            )));
        }
        let producers = state.producers.into_iter();
        let manifest = Self {
            lanes,
            producers: producers.map(|(name, p)| (name, Arc::new(p))).collect(),
            next_step: state.step,
            open_steps: VectorSync::new_sync(),
            watermark: state.step,
            mixture: Arc::new(state.mixture),
            stages: Arc::new(state.stages),
            ..Self::new(stream, stream_json)
        };
        invariants::check(&manifest).map_err(broken)?;
        Ok(manifest)
    }
}
