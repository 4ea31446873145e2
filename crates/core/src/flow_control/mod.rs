//! Back-pressure: how far a producer may commit, from the folded state and the positions of the jobs
//! that pace (protocol.md, Back-pressure). A position is the progress of a job's newest attempt,
//! never a mark: checkpoints may be further apart than a producer may be ahead.
//!
//! Invariants:
//! - whoever folded all before a record and asks the [`Gate`] writes nothing above the ceiling;
//! - nobody is held for ever while every job that paces reads on: when the slowest has read all there
//!   is, the owner of the first missing step may commit one item, whatever its size;
//! - under `lanes` that owner is never held by what waits for its turn, only by what can be read.

mod gate;
mod sizes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

pub use gate::Gate;
pub use sizes::Sizes;

use crate::ids::{AttemptNo, JobName, ProducerName, Step, Version};
use crate::manifest::Manifest;
use crate::manifest::state::{AttemptState, JobState};

/// What bounds a producer; `None` is no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Steps ahead of the slowest job that paces.
    pub steps: Option<u64>,
    /// Bytes ahead of it.
    pub bytes: Option<u64>,
    /// While no job paces: steps above the watermark.
    pub no_job: Option<u64>,
    /// Under `lanes`: TGBs of one lane that wait for their turn.
    pub lane_lead: Option<u64>,
}

impl Limits {
    /// Whether anything is bounded.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Whether positions of jobs matter.
    pub fn follow_jobs(&self) -> bool {
        self.steps.is_some() || self.bytes.is_some()
    }
}

/// How far the newest attempt of a job was seen to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobPosition {
    /// The job's incarnation.
    pub opened: Version,
    /// The attempt.
    pub attempt: AttemptNo,
    /// All its coordinates have received the steps below.
    pub step: Step,
}

/// The job that holds all back, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Slowest {
    /// Its name.
    pub job: JobName,
    /// Its newest attempt, if it has one.
    pub attempt: Option<AttemptNo>,
    /// Its position.
    pub position: Step,
}

/// What a producer knows of jobs, and what bounds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowControl {
    /// The bounds.
    pub limits: Limits,
    /// Positions as last seen; one that is not of its job's newest attempt counts for nothing.
    pub positions: BTreeMap<JobName, JobPosition>,
}

impl FlowControl {
    /// Nothing is known yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            positions: BTreeMap::new(),
        }
    }

    /// The slowest of the jobs that pace.
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

    /// The highest `next_step` after a commit; `None` is no bound in steps.
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

/// The open jobs that hold producers back.
pub fn pacing_jobs(m: &Manifest) -> impl Iterator<Item = (&JobName, &JobState)> {
    m.jobs().iter().filter(|(_, job)| job.paces)
}

/// Which bound holds a producer back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Steps ahead of the slowest job.
    Steps(u64),
    /// Bytes ahead of it.
    Bytes(u64),
    /// Steps above the watermark while no job paces.
    NoJob(u64),
    /// TGBs that wait for their turn.
    #[serde(rename = "lead")]
    LaneLead(u64),
}

/// Why a producer may not commit what it has, and who is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldBack {
    /// The bound.
    pub bound: Bound,
    /// The job that all wait for; none when no job paces.
    pub by: Option<Slowest>,
    /// The lane whose turn it is, when its TGBs are waited for.
    pub lane: Option<ProducerName>,
    /// The head of the stream.
    pub next_step: Step,
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.next_step;
        match (self.bound, &self.by) {
            (Bound::LaneLead(most), _) => {
                let lane = self.lane.as_ref().map_or("another lane", |l| l.as_str());
                write!(
                    f,
                    "held back by lane {lane}: step {head} is its turn, and at most {most} batches of \
                     this lane may wait (ahead.lane_lead)"
                )
            }
            (Bound::NoJob(most), _) => write!(
                f,
                "held back: no open job paces, and without one the stream may go {most} steps beyond \
                 the watermark, it has {head} (ahead.when_no_job, ahead.no_job_steps)"
            ),
            (bound, by) => {
                match by {
                    Some(slowest) => write!(f, "held back by {slowest}")?,
                    None => write!(f, "held back by a job")?,
                }
                match bound {
                    Bound::Bytes(most) => {
                        write!(
                            f,
                            "; the stream may be {most} bytes ahead (ahead.max_bytes)"
                        )?;
                    }
                    Bound::Steps(most) | Bound::NoJob(most) | Bound::LaneLead(most) => {
                        write!(
                            f,
                            "; the stream may be {most} steps ahead (ahead.max_steps)"
                        )?;
                    }
                }
                write!(f, ", and has {head} steps")
            }
        }
    }
}

impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (job, position) = (&self.job, self.position);
        match self.attempt {
            Some(attempt) => write!(
                f,
                "job {job}, whose attempt {attempt} is at step {position}"
            ),
            None => write!(f, "job {job}, which is to begin at step {position}"),
        }
    }
}

/// How far the stream is ahead of its slowest job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Backlog {
    /// The slowest job that paces.
    pub slowest: Slowest,
    /// Steps that it has not received.
    pub steps: u64,
    /// Their bytes and those of TGBs that wait for their turn; `None`: not known by this state alone.
    pub bytes: Option<u64>,
}

/// How far the stream is ahead of the slowest job that paces; `None` without one.
pub fn backlog(m: &Manifest, pace: &FlowControl, sizes: Option<&Sizes>) -> Option<Backlog> {
    let slowest = pace.slowest(m)?;
    let steps = m.next_step().saturating_sub(slowest.position);
    let from = slowest.position.max(m.watermark());
    let bytes = sizes.and_then(|sizes| sizes.from(from));
    Some(Backlog {
        slowest,
        steps,
        bytes: bytes.map(|bytes| bytes.saturating_add(m.waiting_bytes())),
    })
}
