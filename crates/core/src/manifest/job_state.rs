//! The state of jobs: their attempts, and the ranges of steps that those pass over.

use serde::{Deserialize, Serialize};

use super::entry::{AttemptOpened, Axis, Parent};
use crate::guards;
use crate::ids::{AttemptId, AttemptNo, RequestId, Step, Version};

/// One attempt of an open job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptState {
    /// Number of the attempt within the incarnation.
    pub number: AttemptNo,
    pub id: AttemptId,
    /// The version that opened the attempt.
    pub opened: Version,
    /// The checkpoint that it started from.
    pub parent: Option<Parent>,
    pub start: Step,
    pub dp_size: u32,
    pub mesh: Vec<Axis>,
    /// The head of the stream when the next attempt opened: this attempt has read no step from there on,
    /// and has no mark or checkpoint beyond. `None` for the newest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Step>,
}

impl AttemptState {
    /// Returns the state of an attempt that a version has just opened.
    pub(crate) fn opened_by(entry: &AttemptOpened, version: Version, number: AttemptNo) -> Self {
        Self {
            number,
            id: entry.attempt,
            opened: version,
            parent: entry.parent,
            start: entry.start,
            dp_size: entry.dp_size,
            mesh: entry.mesh.clone(),
            head: None,
        }
    }
}

/// The state of an open job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobState {
    /// The version of its open record: the incarnation.
    pub opened: Version,
    /// First step that the job reads.
    pub start: Step,
    pub keep: u32,
    /// The job keeps data from reclamation.
    pub holds: bool,
    pub paces: bool,
    pub lease_seconds: Option<u64>,
    /// Attempts in order, without those that ended below the watermark, which can't be restarted from.
    pub attempts: Vec<AttemptState>,
}

impl JobState {
    /// Returns the number of attempts opened, removed ones included.
    pub fn attempts_opened(&self) -> AttemptNo {
        self.attempts.last().map_or(0, |newest| newest.number + 1)
    }

    /// Returns an attempt by its number, unless it was removed.
    pub fn attempt(&self, number: AttemptNo) -> Option<&AttemptState> {
        self.attempts.iter().find(|a| a.number == number)
    }

    /// Ends the newest attempt, since the next one opens while the stream's next step is `next_step`.
    /// `skips` are the quarantines that the newest attempt may pass over.
    pub(super) fn supersede(&mut self, next_step: Step, skips: &[QuarantineState]) {
        let Some(newest) = self.attempts.last_mut() else {
            return;
        };
        let mut head = next_step;
        // A rank may be behind ranges that were quarantined ahead of time.
        while let Some(range) = skips
            .iter()
            .find(|q| q.in_force_at(newest.opened) && (q.first..=q.last).contains(&head))
        {
            head = range.last + 1;
        }
        newest.head = Some(head);
    }

    /// Removes the attempts that ended below the watermark, up to the first that did not.
    pub(super) fn forget_attempts(&mut self, watermark: Step) {
        let over = |a: &&AttemptState| {
            let early = guards::forgets_all_superseded_attempts();
            a.head.is_some_and(|head| head < watermark || early)
        };
        let over = self.attempts.iter().take_while(over).count();
        self.attempts.drain(..over);
    }
}

/// A range of steps that is excluded from attempts opened while it is in force.
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
    /// Returns whether an attempt opened by the record of `version` passes over the range. Only versions
    /// count, so a range added or lifted by the same record does not.
    pub fn in_force_at(&self, version: Version) -> bool {
        self.added < version && self.lifted.is_none_or(|lifted| version < lifted)
    }
}
