//! The command line of `batchweave-sim`.

pub mod commit;
pub mod faults;
pub mod follow;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::plan::Plan;

/// Deterministic simulation of the commit protocol.
#[derive(Debug, Parser)]
#[command(name = "batchweave-sim", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Worlds full of faults, one a seed; checks that nothing is lost, doubled or reordered.
    Faults(faults::Arguments),
    /// The same with jobs, checkpoints, reclaimers and zombies; checks that no reader misses an object
    /// and that nothing is left behind.
    Lifecycle(faults::Arguments),
    /// Many producers at a given rate: latencies, attempts and requests of the commits.
    Commit(commit::Arguments),
    /// Thousands of nodes that follow one log: reads of its newest key, and time from commit to
    /// delivery.
    Follow(follow::Arguments),
}

/// Runs the program; exit code 0: all is well, 1: a rule was broken, 70: it could not run.
pub fn main() -> ExitCode {
    let out = &mut std::io::stdout().lock();
    let done = match Arguments::parse().command {
        Command::Commit(arguments) => commit::run(&arguments, out),
        Command::Follow(arguments) => follow::run(&arguments, out),
        Command::Faults(arguments) => faults::run(&arguments, Plan::draw, out),
        Command::Lifecycle(arguments) => faults::run(&arguments, Plan::draw_lifecycle, out),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("batchweave-sim: {e}");
            ExitCode::from(70)
        }
    }
}
