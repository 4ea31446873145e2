//! Lifecycle worlds: beside the producers of a faulty world there are jobs whose attempts read
//! their data and make marks, reclaimers that delete what is no longer needed, and people.
//!
//! - `plan`: what there is; `run`: who is started, and the quiet pass at the end;
//! - `job`: a job's supervisor, which opens and restarts it; `memory`: the restart points it knows;
//! - `node`: a machine with the consumer daemon's own code; `rank`: the trainer of one data coordinate, with
//!   `socket`, `faults` and `rights`;
//! - `reclaimer`: the real one, killed and frozen; `person`: decisions by command.

mod faults;
mod job;
mod memory;
mod node;
pub(crate) mod person;
pub mod plan;
mod rank;
mod reclaimer;
mod rights;
mod run;
mod socket;

use std::time::Duration;

use batchweave_core::ids::{AttemptId, JobName, Step};

pub use plan::LifePlan;
pub(crate) use run::{quiet, run};

/// Names of actors that may delete data begin so.
pub(crate) const RECLAIMER: &str = "reclaimer";

/// A session of a rank, once its daemon has let it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The job that the trainer belongs to.
    pub job: JobName,
    /// In which attempt.
    pub attempt: AttemptId,
    /// The data coordinate.
    pub coordinate: u32,
    /// The daemon's run.
    pub instance: String,
    /// The step from which the rank goes on.
    pub next_step: Step,
    /// When it was let in.
    pub at: Duration,
}

/// One step as a rank received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The session, by its place among all.
    pub session: usize,
    /// The job that the trainer belongs to.
    pub job: JobName,
    /// In which attempt.
    pub attempt: AttemptId,
    /// The data coordinate.
    pub coordinate: u32,
    /// The step.
    pub step: Step,
    /// CRC32C of each slice's data, as it stood in shared memory.
    pub sums: Vec<u32>,
    /// When.
    pub at: Duration,
}

/// A rank was told that its mark is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// The job that the trainer belongs to.
    pub job: JobName,
    /// In which attempt.
    pub attempt: AttemptId,
    /// The data coordinate.
    pub coordinate: u32,
    /// The step at which the checkpoint restarts.
    pub step: Step,
    /// When.
    pub at: Duration,
}

/// The name of job `number`.
pub(crate) fn name(number: u32) -> JobName {
    // A letter and digits are a valid name.
    match format!("j{number}").parse() {
        Ok(name) => name,
        Err(e) => unreachable!("{e}"),
    }
}
