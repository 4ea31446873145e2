//! Lifecycle worlds: beside the producers of a faulty world, jobs read the data and make marks,
//! reclaimers delete unneeded data, and people give commands.
//!
//! - `run`: starts jobs, reclaimers and people, and the last pass when all is quiet;
//! - `job_supervisor`: opens and restarts a job; `job`: the state that it shares with its ranks;
//!   `restart_points`: the restart points that the job knows;
//! - `node`: a machine with the consumer daemon's own code;
//! - `rank`: the trainer of one data coordinate; `socket`: its connection; `rank_errors`: its reaction to
//!   errors of the daemon; `attempt_status`: its attempt by the log;
//! - `reports`: the losses that ranks report; `driver`: changes the mixture by them, killed and frozen, alone or beside
//!   another one;
//! - `reclaimer`: the real one, killed and frozen; `people`: decisions by command.

mod attempt_status;
mod driver;
mod job;
mod job_supervisor;
mod node;
mod people;
mod rank;
mod rank_errors;
mod reclaimer;
pub(crate) mod reports;
mod restart_points;
mod run;
mod socket;

use batchweave_core::ids::JobName;

pub(crate) use run::{quiet, run};

/// Names of actors that may delete data begin with this.
pub(crate) const RECLAIMER: &str = "reclaimer";

/// The name of job `number`.
pub(crate) fn name(number: u32) -> JobName {
    // A letter and digits are a valid name.
    match format!("j{number}").parse() {
        Ok(name) => name,
        Err(e) => unreachable!("{e}"),
    }
}
