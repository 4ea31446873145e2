//! `batchweave inbox`: the writers of an inbox, what is durable, and what a stream has of it.

mod committed;
mod footer;
mod render;
mod stored;
mod tail;
mod verify;
mod verify_report;

use batchweave_console::context::Context;
use batchweave_console::{CliError, interval, job_status};
use batchweave_core::ids::Step;
use batchweave_daemon::Exit;
use batchweave_daemon::config::Period;
use batchweave_log::{Log, LogError};
use serde::Serialize;

use self::committed::Committed;
use self::stored::{StoredInbox, StoredWriter};

const EXAMPLES: &str = "\
Examples:
  batchweave inbox ls s3://bucket/inbox
  batchweave inbox ls s3://bucket/inbox --store s3://bucket/stream     also what is committed, and the lag
  batchweave inbox tail s3://bucket/inbox
  batchweave inbox verify s3://bucket/inbox --store s3://bucket/stream  each row in exactly one place

INBOX is a folder of a store, or a path.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InboxArgs {
    #[command(subcommand)]
    verb: InboxVerb,
}

#[derive(Debug, clap::Subcommand)]
enum InboxVerb {
    /// List the writers, their rows, and with --store what of them is committed
    Ls(LsArgs),
    /// Print each file when it appears, until Ctrl-C
    Tail(TailArgs),
    /// Check that the stream has each committed row exactly once
    Verify(LsArgs),
}

#[derive(Debug, clap::Args)]
struct LsArgs {
    /// The inbox: s3://bucket/prefix or a folder
    #[arg(value_name = "INBOX")]
    inbox: String,
    /// Only this writer; may be given several times
    #[arg(long = "writer", value_name = "NAME")]
    writers: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct TailArgs {
    #[command(flatten)]
    of: LsArgs,
    /// Interval between two looks; a number without a unit is seconds
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    every: Period,
    /// End after this number of files
    #[arg(long, value_name = "N")]
    files: Option<u64>,
}

/// A writer, and what a stream has of it.
#[derive(Debug, Serialize)]
struct WriterRow {
    #[serde(flatten)]
    stored: StoredWriter,
    /// Rows that are in committed batches, from the first; `None` without a stream that reads the writer.
    rows_committed: Option<u64>,
    /// The producer that reads it.
    producer: Option<String>,
}

/// The position of a stream and of its jobs.
#[derive(Debug, Serialize)]
struct StreamRow {
    root: String,
    steps: Step,
    /// Steps that all ranks of the slowest job have received, of those that pace producers; `None` without one.
    job_steps: Option<Step>,
}

#[derive(Debug, Serialize)]
struct LsReport {
    inbox: String,
    writers: Vec<WriterRow>,
    stream: Option<StreamRow>,
    /// The writers that were asked for; they may have no file yet.
    #[serde(skip)]
    wanted: Vec<String>,
}

pub(crate) async fn run(args: &InboxArgs, context: &Context) -> Result<Exit, CliError> {
    match &args.verb {
        InboxVerb::Ls(args) => ls(args, context).await,
        InboxVerb::Tail(args) => tail::run(args, context).await,
        InboxVerb::Verify(args) => verify::run(args, context).await,
    }
}

async fn ls(args: &LsArgs, context: &Context) -> Result<Exit, CliError> {
    let inbox = StoredInbox::open(&args.inbox, context).await?;
    let mut log = match context.url() {
        // Writers may start before the producers that create the stream.
        Ok(_) => match context.log().await {
            Err(CliError::Log(LogError::NoStream { .. })) => None,
            Err(CliError::Store(why)) if why.is_no_folder() => None,
            log => Some(log?),
        },
        Err(_) => None,
    };
    let committed = match log.as_mut() {
        Some(log) => Committed::read(log, &inbox).await?,
        None => Committed::default(),
    };
    let mut writers = Vec::new();
    for name in inbox.writers(&args.writers).await? {
        let stored = inbox.writer(&name).await?;
        let rows = committed.rows(&name, &inbox).await?;
        let (producer, rows_committed) = rows.unzip();
        writers.push(WriterRow {
            stored,
            rows_committed,
            producer: producer.map(|name| name.to_string()),
        });
    }
    let stream = match &log {
        Some(log) => Some(stream(log).await?),
        None => None,
    };
    let inbox = inbox.root().to_owned();
    let report = LsReport {
        inbox,
        writers,
        stream,
        wanted: args.writers.clone(),
    };
    context.done(&report, render::ls)
}

async fn stream(log: &Log) -> Result<StreamRow, CliError> {
    let mut objects = job_status::ObjectsByJob::new();
    for (name, job) in log.manifest().jobs() {
        let own = job_status::read_all_objects(log, name, job).await?;
        objects.insert(name.clone(), own);
    }
    let jobs = job_status::of_open_jobs(log.manifest(), Some(&objects));
    let pacing = jobs.iter().filter(|job| job.state.paces);
    Ok(StreamRow {
        root: log.store().root().to_owned(),
        steps: log.manifest().next_step(),
        job_steps: pacing
            .map(|job| job.position.unwrap_or(job.state.start))
            .min(),
    })
}
