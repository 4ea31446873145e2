//! `batchweave job`: opens and closes training runs by a person's word, and shows where they stand.

mod close;
mod list;
mod open;
mod show;

use std::str::FromStr;

use batchweave_core::ids::{JobName, RequestId, Step, Version};
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::JobState;
use batchweave_daemon::Exit;
use batchweave_daemon::config::Period;

use crate::admin;
use crate::context::Context;
use crate::error::CliError;

const EXAMPLES: &str = "\
Examples:
  batchweave job open llm --store s3://bucket/stream --keep 3
  batchweave job open eval --no-holds --no-paces     reads along, and nobody waits for it
  batchweave job list
  batchweave job show llm
  batchweave job close llm --reason \"the run is complete\"

A consumer daemon with job.open = true opens its job by itself. A job that holds keeps the steps from
its restart points on from reclamation; one that paces holds producers back.";

/// Arguments of `batchweave job`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct JobArgs {
    #[command(subcommand)]
    deed: JobVerb,
}

#[derive(Debug, clap::Subcommand)]
enum JobVerb {
    /// Open a job, so that the stream keeps data and pace for it
    Open(OpenArgs),
    /// Close a job: it holds nothing back any more
    Close(CloseArgs),
    /// List the open jobs
    List,
    /// Show one job: attempts, marks, restart points, progress
    Show(JobShowArgs),
}

#[derive(Debug, clap::Args)]
struct OpenArgs {
    /// The job's name
    #[arg(value_name = "NAME")]
    job: JobName,
    /// First step that it will ask for
    #[arg(long, value_name = "STEP", default_value_t = 0)]
    start: Step,
    /// How many restart points it keeps data for
    #[arg(long, value_name = "N", default_value_t = 2)]
    keep: u32,
    /// It keeps data from reclamation (the default)
    #[arg(long, overrides_with = "no_holds")]
    holds: bool,
    /// It keeps no data: what it has not read may be reclaimed
    #[arg(long)]
    no_holds: bool,
    /// It holds producers back (the default)
    #[arg(long, overrides_with = "no_paces")]
    paces: bool,
    /// Nobody waits for it
    #[arg(long)]
    no_paces: bool,
    /// Time without a sign of life, as 30min, after which a reclaimer may close it [default: never]
    #[arg(long, value_name = "TIME")]
    lease: Option<Period>,
    /// An id that you drew (32 hexadecimal digits): the same again does nothing
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

#[derive(Debug, clap::Args)]
struct CloseArgs {
    /// The job, or with @VERSION one incarnation of it
    #[arg(value_name = "NAME")]
    job: JobSelector,
    /// Why; it stays in the log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Close it although it has not read the stream to its end
    #[arg(long)]
    force: bool,
    /// An id that you drew (32 hexadecimal digits): the same again does nothing
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

#[derive(Debug, clap::Args)]
struct JobShowArgs {
    /// The job, or with @VERSION one incarnation of it
    #[arg(value_name = "NAME")]
    job: JobSelector,
}

/// `llm`, or `llm@4` for the incarnation that version 4 opened.
#[derive(Debug, Clone, PartialEq, Eq)]
struct JobSelector {
    name: JobName,
    opened: Option<Version>,
}

impl FromStr for JobSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, opened) = match text.split_once('@') {
            None => (text, None),
            Some((name, version)) => {
                let bad = |_| format!("{version:?} is no version; write NAME or NAME@VERSION");
                (name, Some(version.parse().map_err(bad)?))
            }
        };
        let name = name
            .parse()
            .map_err(|e: batchweave_core::ids::IdError| e.to_string())?;
        Ok(Self { name, opened })
    }
}

impl JobSelector {
    /// The open incarnation that is meant.
    fn find<'m>(&self, m: &'m Manifest) -> Result<&'m JobState, CliError> {
        let state = m.jobs().get(&self.name);
        let meant = state.filter(|job| self.opened.is_none_or(|v| v == job.opened));
        meant.ok_or_else(|| {
            let opened = self.opened.map_or(String::new(), |v| format!("@{v}"));
            CliError::Absent(format!(
                "job {}{opened} is not open: {} (`batchweave log` has those that were)",
                self.name,
                admin::not_open(m, &self.name)
            ))
        })
    }
}

pub(crate) async fn run(args: &JobArgs, context: &Context) -> Result<Exit, CliError> {
    match &args.deed {
        JobVerb::Open(args) => open::run(args, context).await,
        JobVerb::Close(args) => close::run(args, context).await,
        JobVerb::List => list::run(context).await,
        JobVerb::Show(args) => show::run(args, context).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_is_named_by_its_version() {
        let which: JobSelector = "llm@4".parse().unwrap();
        assert_eq!((which.name.as_str(), which.opened), ("llm", Some(4)));
        assert_eq!("llm".parse::<JobSelector>().unwrap().opened, None);
        for bad in ["llm@", "llm@x", "@4", "LLM", "llm@4@5"] {
            assert!(bad.parse::<JobSelector>().is_err(), "{bad}");
        }
    }
}
