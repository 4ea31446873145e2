//! What the fold keeps of jobs: their attempts, and the ranges of steps that those pass over.

use serde::{Deserialize, Serialize};

use super::entry::{Axis, Parent};
use crate::guards;
use crate::ids::{AttemptId, AttemptNo, RequestId, Step, Version};

/// One attempt of an open job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptState {
    /// Its number within the incarnation.
    pub number: AttemptNo,
    pub id: AttemptId,
    /// The version that opened it.
    pub opened: Version,
    /// Where it came from.
    pub parent: Option<Parent>,
    pub start: Step,
    pub dp_size: u32,
    pub mesh: Vec<Axis>,
    /// Where the stream ended when its successor opened: nobody of it has read a step from there on,
    /// and no mark or checkpoint of it lies beyond. None for the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Step>,
}

/// One open job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobState {
    /// The version of its open record: the incarnation.
    pub opened: Version,
    /// First step that it asked for.
    pub start: Step,
    pub keep: u32,
    /// Keeps data from reclamation.
    pub holds: bool,
    pub paces: bool,
    pub lease_seconds: Option<u64>,
    /// Attempts in order, without those that ended below the watermark: nobody can restart from what
    /// they have done.
    pub attempts: Vec<AttemptState>,
}

impl JobState {
    /// How many attempts were opened so far, those that are forgotten included.
    pub fn attempts_opened(&self) -> AttemptNo {
        self.attempts.last().map_or(0, |newest| newest.number + 1)
    }

    /// An attempt by its number, unless it is forgotten.
    pub fn attempt(&self, number: AttemptNo) -> Option<&AttemptState> {
        self.attempts.iter().find(|a| a.number == number)
    }

    /// The next attempt opens while the stream's next step is `next_step`. Under `skips`, ranges that
    /// the newest one passes over.
    pub(super) fn supersede(&mut self, next_step: Step, skips: &[QuarantineState]) {
        let Some(newest) = self.attempts.last_mut() else {
            return;
        };
        let mut head = next_step;
        // A rank may stand behind ranges that were quarantined ahead of time.
        while let Some(range) = skips
            .iter()
            .find(|q| q.in_force_at(newest.opened) && (q.first..=q.last).contains(&head))
        {
            head = range.last + 1;
        }
        newest.head = Some(head);
    }

    /// Forgets the attempts that ended below the watermark, up to one that did not.
    pub(super) fn forget_attempts(&mut self, watermark: Step) {
        let over = |a: &&AttemptState| {
            let early = guards::forgets_all_superseded_attempts();
            a.head.is_some_and(|head| head < watermark || early)
        };
        let over = self.attempts.iter().take_while(over).count();
        self.attempts.drain(..over);
    }
}

/// A range of steps that attempts pass over which were opened while it was in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuarantineState {
    pub id: RequestId,
    pub first: Step,
    pub last: Step,
    pub reason: String,
    /// The version that added it.
    pub added: Version,
    /// The version that lifted it.
    pub lifted: Option<Version>,
}

impl QuarantineState {
    /// Whether an attempt that the record of `version` opened passes over it: by versions alone, so one
    /// added or lifted by the same record does not count.
    pub fn in_force_at(&self, version: Version) -> bool {
        self.added < version && self.lifted.is_none_or(|lifted| version < lifted)
    }
}
