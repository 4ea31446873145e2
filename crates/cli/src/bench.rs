//! `batchweave bench`: measurements of the protocol's own claims, by the product's own code.

mod below;
mod cpu;
mod growth;
mod latent;
mod stream;

use batchweave_daemon::Exit;
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::error::CliError;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What a commit costs late in a long log, beside an early one; and what opening it costs
    ///
    /// Two producers write every record by the code that daemons use, into a store in memory (a
    /// million versions take about 2 GB and a few minutes). Time is virtual: requests take what the
    /// S3 Standard profile of `dev-s3` draws, and the CPU time used is added.
    CommitGrowth(growth::GrowthArgs),
}

pub(crate) async fn run(args: &BenchArgs, context: &Context) -> Result<Exit, CliError> {
    let What::CommitGrowth(args) = &args.what;
    let args = args.clone();
    // A runtime of its own on a thread of its own: its time is virtual, and its CPU time is ours.
    let measured = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(|e| CliError::Bench(e.to_string()))?;
        runtime.block_on(growth::measure(&args))
    });
    let report = measured
        .await
        .map_err(|e| CliError::Bench(e.to_string()))??;
    context.out.report(&report, |report, _| report.text())?;
    Ok(Exit::Ok)
}
