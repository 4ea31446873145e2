//! `batchweave bench`: measurements of the protocol's own claims, by the product's own code.

mod cpu;
mod fetch;
mod growth;
mod handover;
mod producing;
mod reclaim;
mod single_commits;
mod stream;

use batchweave_daemon::Exit;
use clap::{Args, Subcommand};

use crate::error::bench_error;
use batchweave_cli::CliError;
use batchweave_cli::Context;
use batchweave_cli::output::Output;

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
    /// What a rank pays for a batch, in Python: queued, blocking, per slice, releasing
    ///
    /// A process hands frames of shared memory over as the consumer daemon does; beside it, in the
    /// same run, a multiprocessing.Queue, a copy over a Unix socket and a PyTorch DataLoader worker.
    Handover(handover::HandoverArgs),
    /// What a run keeps in the store, step by step, and what reclaiming the rest costs
    ///
    /// A producer, a job with checkpoints and a reclaimer on the embedded S3 server; what is stored
    /// is accounted to the byte.
    Reclaim(reclaim::ReclaimArgs),
    /// How near the consumer daemon's reads come to what raw sockets take from the same server
    ///
    /// From `dev-s3`, or the S3 endpoint of --store and --endpoint (http), into the arena and to a
    /// rank; beside it the same objects by raw TCP into shared memory.
    Fetch(fetch::FetchArgs),
    /// How fast documents on disk become tokens, beside the tokenizer alone
    Tokenize(producing::TextArgs),
    /// How fast tokens become slices in one thread, in each mode, beside writing them once
    Pack(producing::TextArgs),
    /// How fast objects go up, beside plain HTTP puts of the same bytes
    Upload(producing::upload::UploadArgs),
    /// From documents on disk to committed batches on `dev-s3`, beside the tokenizer alone
    Produce(producing::produce::ProduceArgs),
}

pub(crate) async fn run(args: &BenchArgs, context: &Context) -> Result<Exit, CliError> {
    let args = match &args.what {
        What::CommitGrowth(args) => args.clone(),
        What::Handover(args) => {
            let text = handover::measure(args, context.out.json).await?;
            Output::line(text.trim_end())?;
            return Ok(Exit::Ok);
        }
        What::Fetch(args) => {
            let report = fetch::measure(args, context).await?;
            context.out.report(&report, fetch::FetchReport::text)?;
            return Ok(Exit::Ok);
        }
        What::Tokenize(args) => {
            let report = producing::tokenize::measure(args).await?;
            context.out.report(&report, |report, _| report.text())?;
            return Ok(Exit::Ok);
        }
        What::Pack(args) => {
            let report = producing::pack::measure(args).await?;
            context.out.report(&report, |report, _| report.text())?;
            return Ok(Exit::Ok);
        }
        What::Upload(args) => {
            let report = producing::upload::measure(args).await?;
            context.out.report(&report, |report, _| report.text())?;
            return Ok(Exit::Ok);
        }
        What::Produce(args) => {
            let report = producing::produce::measure(args).await?;
            context.out.report(&report, |report, _| report.text())?;
            return Ok(Exit::Ok);
        }
        What::Reclaim(args) => {
            let report = reclaim::measure(args).await?;
            context.out.report(&report, |report, _| report.text())?;
            return Ok(Exit::Ok);
        }
    };
    // A runtime of its own on a thread of its own: its time is virtual, and its CPU time is ours.
    let measured = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(|e| bench_error(e))?;
        runtime.block_on(growth::measure(&args))
    });
    let report = measured.await.map_err(|e| bench_error(e))??;
    context.out.report(&report, |report, _| report.text())?;
    Ok(Exit::Ok)
}
