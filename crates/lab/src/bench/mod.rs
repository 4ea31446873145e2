//! `batchweave bench`: measurements of the claims in docs/performance.md, with the product's own code.

mod cpu;
mod fetch;
mod growth;
mod producing;
mod reclaim;
mod server;
mod stream;

use batchweave_daemon::Exit;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::error::bench_error;
use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::{Output, Style};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Cost of a commit late in a long log, compared with an early one, and of opening that log
    ///
    /// Two producers write every record with the daemons' code into a store in memory (a million versions
    /// take about 2 GB and a few minutes). Time is virtual: requests take the latency of the S3 Standard
    /// profile of `dev-s3`, and the CPU time used is added.
    CommitGrowth(growth::GrowthArgs),
    /// Stored bytes of a run, step by step, and the cost of reclaiming the rest
    ///
    /// A producer, a job with checkpoints and a reclaimer on the embedded S3 server; stored bytes are
    /// accounted exactly.
    Reclaim(reclaim::ReclaimArgs),
    /// Throughput of the consumer daemon's reads, compared with raw sockets on the same server
    ///
    /// Reads from a `dev-s3` into the arena and on to a rank, and the same objects by raw TCP into shared memory.
    Fetch(fetch::FetchArgs),
    /// Throughput from tokens to slices in one thread, in each mode, compared with writing them once
    Pack(producing::TextArgs),
    /// Throughput of finished arrays from files to committed batches, compared with copying the files
    Ingest(producing::ingest::IngestArgs),
    /// Throughput from documents on disk to committed batches on `dev-s3`, compared with the tokenizer
    /// alone
    Produce(producing::produce::ProduceArgs),
}

pub(crate) async fn run(args: &BenchArgs, context: &Context) -> Result<Exit, CliError> {
    let out = context.out;
    match &args.what {
        What::CommitGrowth(args) => report(out, commit_growth(args), |r, _| r.text()).await,
        What::Reclaim(args) => report(out, reclaim::measure(args), |r, _| r.text()).await,
        What::Fetch(args) => report(out, fetch::measure(args), fetch::FetchReport::text).await,
        What::Pack(args) => report(out, producing::pack::measure(args), |r, _| r.text()).await,
        What::Ingest(args) => report(out, producing::ingest::measure(args), |r, _| r.text()).await,
        What::Produce(args) => {
            report(out, producing::produce::measure(args), |r, _| r.text()).await
        }
    }
}

/// Prints the report of a measurement, as JSON or by `text`.
async fn report<R: Serialize>(
    out: Output,
    measure: impl Future<Output = Result<R, CliError>>,
    text: impl FnOnce(&R, Style) -> String,
) -> Result<Exit, CliError> {
    let measured = Box::pin(measure).await?;
    out.report(&measured, text)?;
    Ok(Exit::Ok)
}

/// Measures in a runtime and a thread of its own: its time is virtual, and its CPU time is measured.
async fn commit_growth(args: &growth::GrowthArgs) -> Result<growth::GrowthReport, CliError> {
    let args = args.clone();
    let measured = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(bench_error)?;
        runtime.block_on(growth::measure(&args))
    });
    measured.await.map_err(bench_error)?
}
