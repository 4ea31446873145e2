//! `batchweave verify`: checks a stream, and with --job proves that every rank of a run received every step
//! once, in order, with the bytes that the log names.
//!
//! - `fold`: the log from its beginning, with the `objects` that it names; both checks begin with it; `bar`: its progress.
//! - `stream`: the check of a stream: `copies` of the log's information, `bundles` of its records, and with --data all
//!   `data`.
//! - `job`: the proof of a run from the ledgers in its `listing`, attempt by attempt in `proof`, and in `parents` of a fork;
//!   `mend` stores missing ledgers, `left_behind` names attempts behind a newer checkpoint; `training` adds what ranks
//!   reported, `report` and `picture` show the result;
//! - `losses` reads the losses that ranks reported, for `batchweave losses`; `followed` reads them and the states of steps
//!   while the run goes on, for `batchweave mixture drive`, and `window` finds the steps of its next decision.
#![forbid(unsafe_code)]

mod bar;
mod bundles;
mod copies;
mod data;
mod fold;
mod followed;
mod job;
mod left_behind;
mod listing;
mod losses;
mod mend;
mod objects;
mod parents;
mod picture;
mod proof;
mod report;
mod stream;
mod training;
mod window;

pub use followed::{FollowedRun, MissingState};
pub use losses::{RunLosses, StepLosses};
pub use window::{PassedWindows, Window, WindowLosses};

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context::{self, Context};
use batchweave_console::job::JobSelector;
use batchweave_core::ids::{JobName, Step};
use batchweave_daemon::Exit;
use batchweave_store::Store;
use futures::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};

use crate::bar::Bar;
use crate::fold::Folding;
use crate::job::Asked;
use crate::proof::Proven;

const EXAMPLES: &str = "\
Examples:
  batchweave verify --store s3://bucket/stream          the log, its copies, and that all objects are there
  batchweave verify --data --resume verify.json         also read all data and check every checksum
  batchweave verify --job llm --svg lineage.svg         prove what a run received, also after reclamation
  batchweave verify --job llm@812 --to 20000 --json     an earlier incarnation, up to a step
  batchweave verify --job llm --trained                 also prove that ranks trained it, as they reported
  batchweave verify --job llm --parents                 also prove what the parents of a fork have of the run
  batchweave verify --job llm --mend                    store ledgers that dead daemons did not, while the data exists

The proof compares the ledgers of the job's attempts with the digests in the log; it needs no data. It proves
what ranks received, and names the steps that the job's checkpoints mark as trained. The exit code is 76 when something is wrong, with
the first contradiction as the error, and 66 when nothing is wrong but ledgers are missing: then the run is not
proved to its end, and --mend may help.";

/// The arguments of `batchweave verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArgs {
    /// Read all data that the log names and check every checksum
    #[arg(long, conflicts_with = "job")]
    data: bool,
    /// With --data: record the progress in this file, and resume from it when it exists
    #[arg(long, value_name = "FILE", requires = "data")]
    resume: Option<PathBuf>,
    /// With --data: number of steps read at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = parallel)]
    concurrency: usize,
    /// Prove the run of this job (its newest incarnation, or that of NAME@VERSION)
    #[arg(long, value_name = "NAME")]
    job: Option<JobSelector>,
    /// With --job: prove only the steps before this one
    #[arg(long, value_name = "STEP", requires = "job")]
    to: Option<Step>,
    /// With --job: first store missing ledgers of received steps, computed from the indexes of data objects
    #[arg(long, requires = "job", conflicts_with = "to")]
    mend: bool,
    /// With --job: also prove that every step was trained or left out on purpose, by the reports of ranks; up to the
    /// last checkpoint mark
    #[arg(long, requires = "job")]
    trained: bool,
    /// With --job, of a fork: also prove the steps before it, from the logs and ledgers of its parent streams
    #[arg(long, requires = "job")]
    parents: bool,
    /// With --job: draw the lineage into this SVG file
    #[arg(long, value_name = "FILE", requires = "job")]
    svg: Option<PathBuf>,
}

fn parallel(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=1024) => Ok(n),
        _ => Err("1 to 1024".to_owned()),
    }
}

/// One fault that the check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Problem {
    /// `snapshot`, `index`, `bundle`, `record`, `object` or `data`.
    what: String,
    key: String,
    /// The first affected step, where there is one.
    step: Option<Step>,
    why: String,
}

impl Problem {
    fn at(what: &str, key: String, why: String) -> Self {
        Self {
            what: what.to_owned(),
            key,
            step: None,
            why,
        }
    }

    fn text(&self) -> String {
        let Self { what, key, why, .. } = self;
        let step = self.step.map_or(String::new(), |s| format!(" (step {s})"));
        if why.contains(&**key) {
            return format!("{what}{step}: {why}");
        }
        format!("{what} {key}{step} {why}")
    }
}

/// Runs the check or the proof that the arguments ask for, and prints its report.
pub fn run<'a>(
    args: &'a VerifyArgs,
    context: &'a Context,
) -> LocalBoxFuture<'a, Result<Exit, CliError>> {
    Box::pin(check(args, context))
}

async fn check(args: &VerifyArgs, context: &Context) -> Result<Exit, CliError> {
    let store = context.store(false).await?;
    if let Some(job) = &args.job {
        return prove(&store, job, args, context).await;
    }
    let mut folding = Folding::begin(Arc::clone(&store)).await?;
    let report = stream::check(&store, args, &mut folding).await?;
    context.out.report(&report, stream::StreamReport::text)?;
    match report.problems.first() {
        None => Ok(Exit::Ok),
        Some(first) => {
            let mut text = format!("{}: {}", report.root, first.text());
            if report.problem_count > 1 {
                let _ = write!(text, "; and {} more", report.problem_count - 1);
            }
            Err(CliError::Unsound(text))
        }
    }
}

async fn prove(
    store: &Arc<dyn Store>,
    job: &JobSelector,
    args: &VerifyArgs,
    context: &Context,
) -> Result<Exit, CliError> {
    let asked = Asked {
        to: args.to,
        mend: args.mend,
        trained: args.trained,
    };
    let folding = job::fold(store).await?;
    let Proven {
        mut report,
        inherited,
    } = job::prove(store, &folding, job, asked).await?;
    if args.parents {
        let parents = parents::prove(&folding, inherited, args.trained, context);
        report.parents = Some(parents.await?);
    }
    if let Some(file) = &args.svg {
        let write = std::fs::write(file, picture::svg(&report));
        write.map_err(|e| CliError::Input(format!("--svg {}: {e}", file.display())))?;
    }
    context.out.report(&report, report::RunReport::text)?;
    report.fault().map_or(Ok(Exit::Ok), Err)
}

/// The steps of a job that its ledgers prove.
#[derive(Debug)]
pub struct JobProof {
    /// The first step that is not proved.
    pub to: Step,
    /// Number of steps that all data coordinates received, once and in order.
    pub steps: u64,
    /// The contradiction, or why the run is not proved to its end.
    pub fault: Option<String>,
}

/// Proves the run of the newest incarnation of `job`, as `batchweave verify --job` does.
pub fn prove_job(
    store: &Arc<dyn Store>,
    job: JobName,
) -> LocalBoxFuture<'_, Result<JobProof, CliError>> {
    Box::pin(async move {
        let newest = JobSelector {
            name: job,
            opened: None,
        };
        let folding = job::fold(store).await?;
        let Proven { report, .. } = job::prove(store, &folding, &newest, Asked::default()).await?;
        Ok(JobProof {
            to: report.to,
            steps: report.steps,
            fault: report.contradiction.or(report.not_proved),
        })
    })
}

/// Returns a progress bar over all records.
async fn log_bar(store: &Arc<dyn Store>) -> Result<Bar, CliError> {
    Ok(Bar::new("records", context::next_version(store).await?))
}
