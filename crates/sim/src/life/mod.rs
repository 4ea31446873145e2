//! Lifecycle worlds: beside the producers of a faulty world there are jobs whose attempts read
//! their data and make marks, reclaimers that delete what is no longer needed, and people.
//!
//! - `plan`: what there is; `run`: who is started, and the quiet pass at the end;
//! - `job`: a job's supervisor, which opens and restarts it; `memory`: the restart points it knows;
//! - `node`: the trainer of one data coordinate; `signs`: its marks and progress;
//! - `reclaimer`: the real one, killed and frozen; `person`: decisions by command.

mod job;
mod memory;
mod node;
pub(crate) mod person;
pub mod plan;
mod reclaimer;
mod run;
mod signs;

use batchweave_core::ids::{AttemptNo, JobName, ProducerName, Seq, Step, Version};

pub use plan::LifePlan;
pub(crate) use run::{quiet, run};

/// Names of actors that may delete data begin so.
pub(crate) const RECLAIMER: &str = "reclaimer";

/// One step as a data coordinate received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Whose trainer.
    pub job: JobName,
    /// Which incarnation.
    pub opened: Version,
    /// In which attempt.
    pub attempt: AttemptNo,
    /// The data coordinate.
    pub coordinate: u32,
    /// The step.
    pub step: Step,
    /// Whose TGB.
    pub producer: ProducerName,
    /// Which.
    pub seq: Seq,
}

/// The name of job `number`.
pub(crate) fn name(number: u32) -> JobName {
    // A letter and digits are a valid name.
    match format!("j{number}").parse() {
        Ok(name) => name,
        Err(e) => unreachable!("{e}"),
    }
}
