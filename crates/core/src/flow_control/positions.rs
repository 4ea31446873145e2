//! Positions of jobs: the progress of each job's newest attempt.

use std::fmt;

use serde::Serialize;

use crate::ids::{AttemptNo, JobName, Step, Version};
use crate::manifest::Manifest;
use crate::manifest::state::JobState;

/// The last known position of a job's newest attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobPosition {
    pub opened: Version,
    pub attempt: AttemptNo,
    /// The first step that some coordinate has not received.
    pub step: Step,
}

/// The job with the lowest position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Slowest {
    pub job: JobName,
    /// Its newest attempt, if it has one.
    pub attempt: Option<AttemptNo>,
    pub position: Step,
}

/// Returns the open jobs that hold producers back.
pub fn pacing_jobs(m: &Manifest) -> impl Iterator<Item = (&JobName, &JobState)> {
    m.jobs().iter().filter(|(_, job)| job.paces)
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
