//! The batchweave command: one verb per file, each with its arguments, what it finds out, how it
//! prints that, and its tests.
//!
//! Invariants:
//! - Results go to standard output, errors and warnings to standard error.
//! - With `--json` standard output is one JSON object (`log`: one per line) and nothing else.
//! - Only `init`, `seal`, `job`, `quarantine`, `retire`, `reclaim`, `repair`, `doctor` and `demo` write to a
//!   store; every other verb needs read permissions only.
#![forbid(unsafe_code)]

mod admin;
mod args;
mod as_of;
mod bench;
mod context;
mod demo;
mod describe;
mod dev_s3;
mod doctor;
mod error;
mod frames;
mod generate;
mod init;
mod job;
mod log;
mod output;
mod plan;
mod quarantine;
mod reclaim;
mod repair;
mod retire;
mod seal;
mod show;
mod sources;
mod standing;
mod status;
mod top;
mod verify;
mod r#where;

use std::ffi::OsString;

use batchweave_daemon::Exit;
use batchweave_daemon::telemetry::{self, LogConfig};
use clap::error::ErrorKind;

use crate::args::{Cli, Verb};
use crate::context::Context;
use crate::error::CliError;

/// Runs the command line `args` (the program's name first) and says how it ended.
pub async fn run(args: impl IntoIterator<Item = OsString>) -> Exit {
    let cli = match Cli::parse_args(args) {
        Ok(cli) => cli,
        Err(e) => return refused(&e),
    };
    telemetry::init(&LogConfig {
        level: cli.verb.log_level().into(),
        ..LogConfig::default()
    });
    match Box::pin(dispatch(cli)).await {
        Ok(exit) => exit,
        // Whoever reads our output has seen enough: `batchweave log | head`.
        Err(e) if e.is_closed_pipe() => Exit::Ok,
        Err(e) => {
            eprintln!("error: {e}");
            e.exit()
        }
    }
}

async fn dispatch(cli: Cli) -> Result<Exit, CliError> {
    let context = Context::new(cli.global);
    match cli.verb {
        Verb::Init(args) => init::run(&args, &context).await,
        Verb::Status(args) => status::run(&args, &context).await,
        Verb::Log(args) => log::run(&args, &context).await,
        Verb::Show(args) => show::run(&args, &context).await,
        Verb::Where(args) => r#where::run(&args, &context).await,
        Verb::Seal(args) => seal::run(&args, &context).await,
        Verb::Job(args) => job::run(&args, &context).await,
        Verb::Quarantine(args) => quarantine::run(&args, &context).await,
        Verb::Retire(args) => retire::run(&args, &context).await,
        Verb::Reclaim(args) => reclaim::run(&args, &context).await,
        Verb::Repair(args) => repair::run(&args, &context).await,
        Verb::Doctor(args) => doctor::run(&args, &context).await,
        Verb::Verify(args) => verify::run(&args, &context).await,
        Verb::Plan(args) => plan::run(&args, &context),
        Verb::Top(args) => top::run(&args, &context).await,
        Verb::Bench(args) => bench::run(&args, &context).await,
        Verb::DevS3(args) => dev_s3::run(args, &context).await,
        Verb::Demo(args) => Box::pin(demo::run(args, &context)).await,
        Verb::Generate(args) => generate::run(&args),
        Verb::DemoRank(args) => Ok(demo::rank::run(&args)?),
    }
}

/// Help and version are answers; anything else is a wrong command line.
fn refused(error: &clap::Error) -> Exit {
    let printed = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion if printed.is_ok() => Exit::Ok,
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Failure,
        _ => Exit::Config,
    }
}
