//! `batchweave job`: opens, closes, lists and shows the training runs that read a stream.

mod close;
mod list;
mod open;
mod show;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::job::JobSelector;
use batchweave_core::ids::{JobName, RequestId, Step};
use batchweave_daemon::Exit;
use batchweave_daemon::config::Period;

const EXAMPLES: &str = "\
Examples:
  batchweave job open llm --store s3://bucket/stream --keep 3
  batchweave job open eval --no-holds --no-paces     reads without retaining data or slowing producers
  batchweave job list
  batchweave job show llm
  batchweave job close llm --reason \"the run is complete\"

A consumer daemon with job.open = true opens its own job. By default, a job retains the steps from its
oldest retained restart point on (--no-holds: none), and producers wait when they are too far ahead of it
(--no-paces: they do not).";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct JobArgs {
    #[command(subcommand)]
    verb: JobVerb,
}

#[derive(Debug, clap::Subcommand)]
enum JobVerb {
    /// Open a job: the stream keeps data for it, and producers wait for it
    Open(OpenArgs),
    /// Close a job: it no longer holds data or producers
    Close(CloseArgs),
    /// List the open jobs
    List,
    /// Show one job: attempts, marks, restart points, progress
    Show(JobShowArgs),
}

#[derive(Debug, clap::Args)]
struct OpenArgs {
    /// Name of the job
    #[arg(value_name = "NAME")]
    job: JobName,
    /// First step that the job reads; 0 is the first of the stream
    #[arg(long, value_name = "STEP", default_value_t = 0)]
    start: Step,
    /// Number of restart points that data is kept for
    #[arg(long, value_name = "N", default_value_t = 2)]
    keep: u32,
    /// Keep the job's data from reclamation (the default)
    #[arg(long, overrides_with = "no_holds")]
    holds: bool,
    /// Keep no data: steps that the job has not read may be reclaimed
    #[arg(long)]
    no_holds: bool,
    /// Producers wait for this job when they are too far ahead (the default)
    #[arg(long, overrides_with = "no_paces")]
    paces: bool,
    /// Producers do not wait for this job
    #[arg(long)]
    no_paces: bool,
    /// Time without progress, as 30min, after which a reclaimer may close the job [default: never]
    #[arg(long, value_name = "TIME")]
    lease: Option<Period>,
    /// An id of your own (32 hexadecimal digits): repeating the command with it does nothing
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

#[derive(Debug, clap::Args)]
struct CloseArgs {
    /// The job, or with @VERSION one incarnation of it
    #[arg(value_name = "NAME")]
    job: JobSelector,
    /// The reason; it is stored in the log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Close the job although it has not read the stream to its end
    #[arg(long)]
    force: bool,
    /// An id of your own (32 hexadecimal digits): repeating the command with it does nothing
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

#[derive(Debug, clap::Args)]
struct JobShowArgs {
    /// The job, or with @VERSION one incarnation of it
    #[arg(value_name = "NAME")]
    job: JobSelector,
}

pub(crate) async fn run(args: &JobArgs, context: &Context) -> Result<Exit, CliError> {
    match &args.verb {
        JobVerb::Open(args) => open::run(args, context).await,
        JobVerb::Close(args) => close::run(args, context).await,
        JobVerb::List => list::run(context).await,
        JobVerb::Show(args) => show::run(args, context).await,
    }
}
