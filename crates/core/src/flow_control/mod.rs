//! Flow control: how far a producer may commit ahead of the jobs, by the folded state and the positions of the
//! jobs that pace (protocol.md, Back-pressure). A position is the progress of a job's newest attempt, never a
//! mark: checkpoints may be further apart than a producer may be ahead.
//!
//! - `limits`: the bounds, and why one holds a producer back; `positions`: the jobs' positions;
//! - `gate`: whether the next commit is within the bounds; `sizes`: bytes of the newest steps;
//! - `schedule`: when positions are read.
//!
//! Invariants:
//! - a producer that has folded all earlier records and asks the [`Gate`] writes nothing above the ceiling;
//! - no producer is held for ever while every job that paces reads on: when the slowest has read all steps,
//!   the owner of the first missing step may commit one item of any size;
//! - under `lanes` TGBs that wait for their turn never hold that owner, only readable steps do.

mod gate;
mod limits;
mod positions;
mod schedule;
mod sizes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

pub use gate::Gate;
pub use limits::{Bound, HeldBack, Limits};
pub use positions::{JobPosition, Slowest, pacing_jobs};
pub use schedule::{PositionRead, PositionSchedule};
pub use sizes::Sizes;

use crate::ids::{JobName, Step};
use crate::manifest::Manifest;
use crate::manifest::state::AttemptState;

/// The bounds of a producer and the positions of the jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowControl {
    pub limits: Limits,
    /// Positions last read; one that is not of its job's newest attempt is ignored.
    pub positions: BTreeMap<JobName, JobPosition>,
}

impl FlowControl {
    /// Returns the state before any position is known.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            positions: BTreeMap::new(),
        }
    }

    /// Returns the slowest of the jobs that flow.
    pub fn slowest(&self, m: &Manifest) -> Option<Slowest> {
        let known = |job: &JobName, opened, attempt: &AttemptState| {
            let seen = self.positions.get(job)?;
            let same = seen.opened == opened && seen.attempt == attempt.number;
            same.then_some(seen.step.max(attempt.start))
        };
        let all = pacing_jobs(m).map(|(name, job)| {
            let newest = job.attempts.last();
            let position = match newest {
                Some(attempt) => known(name, job.opened, attempt).unwrap_or(attempt.start),
                None => job.start,
            };
            Slowest {
                job: name.clone(),
                attempt: newest.map(|a| a.number),
                position,
            }
        });
        all.min_by_key(|s| s.position)
    }

    /// Returns the highest `next_step` that a commit may reach; `None` when steps are unbounded.
    pub fn ceiling(&self, m: &Manifest) -> Option<Step> {
        match self.slowest(m) {
            Some(slowest) => self
                .limits
                .steps
                .map(|steps| slowest.position.saturating_add(steps)),
            None => self
                .limits
                .no_job
                .map(|steps| m.watermark().saturating_add(steps)),
        }
    }
}

/// The distance from the slowest job that paces to the head of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Backlog {
    /// The slowest job that paces.
    pub slowest: Slowest,
    /// Steps that the job has not received.
    pub steps: u64,
    /// Bytes of these steps and of TGBs that wait for their turn; `None` when this state alone does not
    /// show them.
    pub bytes: Option<u64>,
}

/// Returns the backlog of the slowest job that paces; `None` without one.
pub fn backlog(m: &Manifest, flow: &FlowControl, sizes: Option<&Sizes>) -> Option<Backlog> {
    let slowest = flow.slowest(m)?;
    let steps = m.next_step().saturating_sub(slowest.position);
    let from = slowest.position.max(m.watermark());
    let bytes = sizes.and_then(|sizes| sizes.from(from));
    Some(Backlog {
        slowest,
        steps,
        bytes: bytes.map(|bytes| bytes.saturating_add(m.waiting_bytes())),
    })
}
