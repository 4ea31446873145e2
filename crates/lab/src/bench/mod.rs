//! `batchweave bench`: measurements of the claims in docs/performance.md, with the product's own code.

mod balance;
mod cpu;
mod fetch;
mod freshness;
mod growth;
mod handover;
mod images;
mod inbox;
mod order;
mod producing;
mod python;
mod read;
mod reclaim;
mod single_commits;
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
    /// Time that a rank spends per batch in Python: queued, blocking, per slice, releasing
    ///
    /// A process hands over frames of shared memory as the consumer daemon does. The same run measures a
    /// multiprocessing.Queue, a copy over a Unix socket and a PyTorch DataLoader worker.
    Handover(handover::HandoverArgs),
    /// Time that a rank spends per batch between pieces of a trainer's work, which leave its memory cold
    ///
    /// The work takes 30 us, 1 ms or 20 ms. The same run measures a tight loop, a multiprocessing.Queue and a bare
    /// recvmsg, in turns.
    Read(read::ReadArgs),
    /// Images per second from tar shards of JPEGs to committed batches and to a trainer
    ///
    /// Real producer, consumer daemon and trainer, compared with decoding and resizing alone and with a PyTorch
    /// DataLoader on the same cores.
    Images(images::ImagesArgs),
    /// Rows per second of an inbox's writer, and the time from its `put` to the trainer's `next()`
    ///
    /// A real writer, producer, consumer daemon and trainer, with rows at a steady rate.
    Inbox(inbox::InboxArgs),
    /// Time from the commit of a batch to the return of a waiting rank's `next()`
    ///
    /// A real producer, consumer daemon and trainer, with a batch at a time.
    Freshness(freshness::FreshnessArgs),
    /// Stored bytes of a run, step by step, and the cost of reclaiming the rest
    ///
    /// A producer, a job with checkpoints and a reclaimer on the embedded S3 server; stored bytes are
    /// accounted exactly.
    Reclaim(reclaim::ReclaimArgs),
    /// Throughput of the consumer daemon's reads, compared with raw sockets on the same server
    ///
    /// Reads from `dev-s3`, or the S3 endpoint of --store and --endpoint (http), into the arena and on to a
    /// rank, and the same objects by raw TCP into shared memory.
    Fetch(fetch::FetchArgs),
    /// Throughput from documents on disk to tokens, compared with the tokenizer alone
    Tokenize(producing::TextArgs),
    /// Throughput from tokens to slices in one thread, in each mode, compared with writing them once
    Pack(producing::TextArgs),
    /// Throughput of uploads, compared with plain HTTP puts of the same bytes
    Upload(producing::upload::UploadArgs),
    /// Throughput of finished arrays from files to committed batches, compared with copying the files
    Ingest(producing::ingest::IngestArgs),
    /// Throughput from documents on disk to committed batches on `dev-s3`, compared with the tokenizer
    /// alone
    Produce(producing::produce::ProduceArgs),
    /// Evenness of global batches that are arranged by cost, over documents with the lengths of real corpora
    ///
    /// Beside it the rows of best_fit, and a balancer that sees one step. Without files and tokenizer.
    Balance(balance::BalanceArgs),
    /// Quality of the shuffle, exactness of a mixture's shares, and size of the sampler's state
    ///
    /// Walks the order of docs/order.md over synthetic documents, without files and tokenizer. --speed and --restart
    /// measure producers on real files too.
    Order(order::OrderArgs),
}

pub(crate) async fn run(args: &BenchArgs, context: &Context) -> Result<Exit, CliError> {
    let out = context.out;
    match &args.what {
        What::CommitGrowth(args) => report(out, commit_growth(args), |r, _| r.text()).await,
        What::Handover(args) => written(handover::measure(args, out.json)).await,
        What::Read(args) => written(read::measure(args, out.json)).await,
        What::Freshness(args) => written(freshness::measure(args, out.json)).await,
        What::Inbox(args) => written(inbox::measure(args, out.json)).await,
        What::Images(args) => report(out, images::measure(args), |r, _| r.text()).await,
        What::Fetch(args) => {
            report(out, fetch::measure(args, context), fetch::FetchReport::text).await
        }
        What::Tokenize(args) => {
            report(out, producing::tokenize::measure(args), |r, _| r.text()).await
        }
        What::Pack(args) => report(out, producing::pack::measure(args), |r, _| r.text()).await,
        What::Upload(args) => report(out, producing::upload::measure(args), |r, _| r.text()).await,
        What::Ingest(args) => report(out, producing::ingest::measure(args), |r, _| r.text()).await,
        What::Produce(args) => {
            report(out, producing::produce::measure(args), |r, _| r.text()).await
        }
        What::Balance(args) => report(out, balance::measure(args), |r, _| r.text()).await,
        What::Order(args) => report(out, order::measure(args), |r, _| r.text()).await,
        What::Reclaim(args) => report(out, reclaim::measure(args), |r, _| r.text()).await,
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

/// Prints the text of a measurement that writes its own report.
async fn written(
    measure: impl Future<Output = Result<String, CliError>>,
) -> Result<Exit, CliError> {
    Output::line(measure.await?.trim_end())?;
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
