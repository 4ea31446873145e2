//! `batchweave-lab`: the verbs that measure and demonstrate BatchWeave. The program `batchweave` runs it
//! for `plan`, `bench`, `dev-s3`, `demo` and `generate`; production needs none of them.
//!
//! - `args`: the command line
//! - `bench`: measurements of the log, the producer, the consumer and the hand-over to ranks
//! - `demo`: the whole system on text of this machine, with kills and a proof
//! - `plan`: latency, requests and cost of a stream before it is built
//! - `dev_s3`: the S3 server for tests
//! - `generate`: manual pages and completions of `batchweave` and `batchweave-lab`
//! - `error`: how failures become exit codes
#![forbid(unsafe_code)]

mod args;
mod bench;
mod demo;
mod dev_s3;
mod error;
mod generate;
mod plan;

use std::ffi::OsString;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_daemon::Exit;
use clap::CommandFactory;
use futures::future::LocalBoxFuture;

use crate::args::{Cli, Verb};

/// Runs the command line `args`, whose first word is the program's name, and returns its exit code. Boxed, so that this
/// crate compiles it, once for all programs that call it.
pub fn run(args: Vec<OsString>) -> LocalBoxFuture<'static, Exit> {
    Box::pin(run_verb(args))
}

async fn run_verb(args: Vec<OsString>) -> Exit {
    let cli = match Cli::parse_args(args) {
        Ok(cli) => cli,
        Err(e) => return batchweave_console::program::exit_of_parse_error(&e),
    };
    batchweave_console::program::init_log(cli.verb.log_level());
    let result = dispatch(cli).await;
    batchweave_console::program::exit_of_result(result)
}

async fn dispatch(cli: Cli) -> Result<Exit, CliError> {
    let context = Context::new(cli.global);
    match cli.verb {
        Verb::Plan(args) => plan::run(&args, &context),
        Verb::Bench(args) => Box::pin(bench::run(&args, &context)).await,
        Verb::DevS3(args) => dev_s3::run(args, &context).await,
        Verb::Demo(args) => Box::pin(demo::run(args, &context)).await,
        Verb::DemoRank(args) => Ok(demo::rank::run(&args)?),
        Verb::Generate(args) => generate::run(&args, Cli::command()),
    }
}
