//! The bounds of a producer, and the reason why one holds it back.

use std::fmt;

use serde::Serialize;

use super::Slowest;
use crate::ids::{ProducerName, Step};

/// The bounds of a producer; `None` means unbounded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Steps ahead of the slowest job that paces.
    pub steps: Option<u64>,
    /// Bytes ahead of the slowest job.
    pub bytes: Option<u64>,
    /// Steps above the watermark, while no job paces.
    pub no_job: Option<u64>,
    /// Under `lanes`, TGBs of one lane that wait for their turn.
    pub lane_lead: Option<u64>,
}

impl Limits {
    /// Returns whether there is any bound.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Returns whether a bound depends on the positions of jobs.
    pub fn follow_jobs(&self) -> bool {
        self.steps.is_some() || self.bytes.is_some()
    }
}

/// The bound that holds a producer back.
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

/// The reason why a producer may not commit its next item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldBack {
    pub bound: Bound,
    /// The job that all producers wait for; `None` when no job paces.
    pub by: Option<Slowest>,
    /// The lane whose turn it is, when its TGBs are missing.
    pub lane: Option<ProducerName>,
    /// The next step of the stream.
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
                 the watermark, it has {head}; open a job, or set ahead.no_job_steps (it follows \
                 ahead.max_steps)"
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
