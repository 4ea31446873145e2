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

use crate::error::bench_error;
use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::Output;

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
    let args = match &args.what {
        What::CommitGrowth(args) => args.clone(),
        What::Handover(args) => {
            let text = handover::measure(args, context.out.json).await?;
            Output::line(text.trim_end())?;
            return Ok(Exit::Ok);
        }
        What::Read(args) => {
            let text = read::measure(args, context.out.json).await?;
            Output::line(text.trim_end())?;
            return Ok(Exit::Ok);
        }
        What::Freshness(args) => {
            let text = freshness::measure(args, context.out.json).await?;
            Output::line(text.trim_end())?;
            return Ok(Exit::Ok);
        }
        What::Inbox(args) => {
            let text = inbox::measure(args, context.out.json).await?;
            Output::line(text.trim_end())?;
            return Ok(Exit::Ok);
        }
        What::Images(args) => {
            let report = Box::pin(images::measure(args)).await?;
            context.out.report(&report, |report, _| report.text())?;
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
        What::Ingest(args) => {
            let report = Box::pin(producing::ingest::measure(args)).await?;
            context.out.report(&report, |report, _| report.text())?;
            return Ok(Exit::Ok);
        }
        What::Produce(args) => {
            let report = Box::pin(producing::produce::measure(args)).await?;
            context.out.report(&report, |report, _| report.text())?;
            return Ok(Exit::Ok);
        }
        What::Balance(args) => {
            let report = balance::measure(args).await?;
            context.out.report(&report, |report, _| report.text())?;
            return Ok(Exit::Ok);
        }
        What::Order(args) => {
            let report = Box::pin(order::measure(args)).await?;
            context.out.report(&report, |report, _| report.text())?;
            return Ok(Exit::Ok);
        }
        What::Reclaim(args) => {
            let report = Box::pin(reclaim::measure(args)).await?;
            context.out.report(&report, |report, _| report.text())?;
            return Ok(Exit::Ok);
        }
    };
    // A separate runtime and thread: its time is virtual, and its CPU time is measured.
    let measured = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(bench_error)?;
        runtime.block_on(growth::measure(&args))
    });
    let report = measured.await.map_err(bench_error)??;
    context.out.report(&report, |report, _| report.text())?;
    Ok(Exit::Ok)
}
