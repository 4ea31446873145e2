//! The `batchweave` command: the list of its verbs, and most of them, one per file, each with its arguments, its work, its
//! report and tests. `verify` is in the crate `batchweave-verify`; `status` and `ui` are in `batchweave-views`;
//! all use `batchweave-console`. `batchweave-lab` runs some verbs in a program of its own.
//!
//! Invariants:
//! - Results go to standard output, errors and warnings to standard error.
//! - With `--json` standard output is JSON alone: one object, or one per line of verbs that follow (docs/cli.md).
//! - `run` and `quickstart` write through the daemons that they start. Of the other verbs, only `init`, `fork`, `seal`, `job`, `mixture`, `stage`,
//!   `quarantine`, `retire`, `reclaim`, `repair`, `delete` and `doctor` write to a store; the rest need read permissions only.
#![forbid(unsafe_code)]

mod admin;
mod args;
mod completions;
mod delete;
mod doctor;
mod fork;
mod groups;
mod inbox;
mod init;
mod job;
mod lab;
mod locate;
mod log;
mod losses;
mod mixture;
mod quarantine;
mod quickstart;
mod reclaim;
mod repair;
mod retire;
mod run;
mod seal;
mod show;
mod stage;

use std::ffi::OsString;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::program::{
    exit_of_parse_error, exit_of_result, exit_of_result_at, init_log,
};
use batchweave_daemon::Exit;
use batchweave_views::{status, ui};
use clap::CommandFactory;
use futures::future::LocalBoxFuture;

use crate::args::{Cli, Verb};

pub use crate::lab::runs_in_lab;

/// Runs the command line `args`, whose first word is the program's name, and returns its exit code. Boxed, so that this
/// crate compiles it, once for all programs that call it.
pub fn run(args: Vec<OsString>) -> LocalBoxFuture<'static, Exit> {
    Box::pin(run_verb(args))
}

async fn run_verb(args: Vec<OsString>) -> Exit {
    if lab::asks_for_lab_help(&args, &command()) {
        return exit_of_result(Err(lab::exec(&args)));
    }
    let cli = match Cli::parse_args(args.clone()) {
        Ok(cli) => cli,
        Err(e) => return exit_of_parse_error(&e),
    };
    init_log(cli.verb.log_level());
    let store = cli.store().map(str::to_owned);
    exit_of_result_at(dispatch(cli, &args).await, store.as_deref())
}

/// Returns the command line of `batchweave`. The verbs of `batchweave-lab` are in it without their arguments.
pub fn command() -> clap::Command {
    Cli::command()
}

async fn dispatch(cli: Cli, args: &[OsString]) -> Result<Exit, CliError> {
    let context = Context::new(cli.global);
    match cli.verb {
        Verb::Run(args) => Box::pin(run::run(&args, &context)).await,
        Verb::Quickstart(args) => Box::pin(quickstart::run(&args, &context)).await,
        Verb::Init(args) => init::run(&args, &context).await,
        Verb::Fork(args) => Box::pin(fork::run(&args, &context)).await,
        Verb::Status(args) => status::run(&args, &context).await,
        Verb::Log(args) => log::run(&args, &context).await,
        Verb::Show(args) => show::run(&args, &context).await,
        Verb::Losses(args) => Box::pin(losses::run(&args, &context)).await,
        Verb::Where(args) => locate::run(&args, &context).await,
        Verb::Mixture(args) => mixture::run(&args, &context).await,
        Verb::Stage(args) => stage::run(&args, &context).await,
        Verb::Inbox(args) => Box::pin(inbox::run(&args, &context)).await,
        Verb::Seal(args) => seal::run(&args, &context).await,
        Verb::Job(args) => job::run(&args, &context).await,
        Verb::Quarantine(args) => quarantine::run(&args, &context).await,
        Verb::Retire(args) => retire::run(&args, &context).await,
        Verb::Reclaim(args) => reclaim::run(&args, &context).await,
        Verb::Repair(args) => repair::run(&args, &context).await,
        Verb::Delete(args) => delete::run(&args, &context).await,
        Verb::Completions(args) => completions::run(&args, command()),
        Verb::Doctor(args) => doctor::run(&args, &context).await,
        Verb::Verify(args) => batchweave_verify::run(&args, &context).await,
        Verb::Ui(args) => ui::run(&args, &context).await,
        Verb::Plan(_) | Verb::Bench(_) | Verb::DevS3(_) | Verb::Demo(_) | Verb::Generate(_) => {
            Err(lab::exec(args))
        }
    }
}
