//! The command line of `batchweave-sim`.

pub mod commit;
pub mod faults;
pub mod follow;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::plan::Plan;

/// Simulates the commit protocol deterministically.
#[derive(Debug, Parser)]
#[command(name = "batchweave-sim", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run faulty worlds, one per seed: checks that no data is lost, doubled or reordered
    Faults(faults::Arguments),
    /// Run faulty worlds with jobs, checkpoints, reclaimers and zombies: checks that no reader
    /// misses an object and that no object is left over
    Lifecycle(faults::Arguments),
    /// Run many producers at a given rate: latencies, attempts and requests of the commits
    Commit(commit::Arguments),
    /// Run thousands of nodes that follow one log: reads of its newest key, and time from commit to
    /// delivery
    Follow(follow::Arguments),
}

/// Runs the program. Exit code 0: success, 1: a rule was broken, 70: it could not run.
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
