//! `batchweave job close`: releases everything that the job held, so a job that may still run needs
//! `--force`.
//!
//! The store has no clock: without a lease, which reclaimers measure, only a person can decide that a run is dead.

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::job::incarnation;
use batchweave_console::job_status::{self, JobStatus, ReclaimStatus};
use batchweave_console::output::Style;
use batchweave_core::ids::{JobName, RequestId, Step, Version};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::JobClosed;
use batchweave_core::manifest::rules::Validity;
use batchweave_daemon::Exit;
use batchweave_log::Log;
use serde::Serialize;

use super::CloseArgs;
use crate::admin;

#[derive(Debug, Serialize)]
struct JobCloseReport {
    root: String,
    job: JobName,
    /// The incarnation; `None` when the request was applied before.
    opened: Option<Version>,
    /// The version that closed it; `None` when it was closed before.
    version: Option<Version>,
    reclaim: ReclaimStatus,
}

pub(super) async fn run(args: &CloseArgs, context: &Context) -> Result<Exit, CliError> {
    let mut log = context.log().await?;
    let request = admin::request(args.request, &mut log);
    // A repeat is known by its request alone, so any incarnation will do.
    let repeated = log.manifest().validate(&entry(args, request, 0)) == Ok(Validity::Repeat);
    let (opened, version) = if repeated {
        (None, None)
    } else {
        let opened = args.job.find(log.manifest())?.opened;
        (Some(opened), close(args, request, opened, &mut log).await?)
    };
    let objects = log.job_objects().await?;
    let report = JobCloseReport {
        root: log.store().root().to_owned(),
        job: args.job.name.clone(),
        opened,
        version,
        reclaim: ReclaimStatus::new(log.manifest(), &objects),
    };
    context.done(&report, render)
}

fn entry(args: &CloseArgs, request: RequestId, opened: Version) -> Entry {
    Entry::JobClosed(JobClosed {
        request,
        job: args.job.name.clone(),
        opened,
        reason: args.reason.clone(),
    })
}

async fn close(
    args: &CloseArgs,
    request: RequestId,
    opened: Version,
    log: &mut Log,
) -> Result<Option<Version>, CliError> {
    let objects = log.job_objects().await?;
    let jobs = job_status::of_open_jobs(log.manifest(), Some(&objects));
    let job = jobs
        .iter()
        .find(|job| job.name == args.job.name && job.state.opened == opened);
    if let (Some(job), false) = (job, args.force) {
        refuse_if_running(job, log.manifest().end())?;
    }
    let attempts = job.map_or(0, |job| job.state.attempts_opened());
    admin::commit(log, "job", |m| {
        let now = m.jobs().get(&args.job.name);
        match now.filter(|job| job.opened == opened) {
            None => Ok(None),
            Some(now) if now.attempts_opened() != attempts && !args.force => {
                let id = incarnation(&args.job.name, opened);
                Err(CliError::Refused(format!(
                    "job {id} is running: an attempt of it was opened while this command ran"
                )))
            }
            Some(_) => Ok(Some(entry(args, request, opened))),
        }
    })
    .await
}

/// Refuses a job that may still run: one whose newest attempt has not read the stream to its end.
fn refuse_if_running(job: &JobStatus, end: Option<Step>) -> Result<(), CliError> {
    let Some(newest) = job.state.attempts.last() else {
        return Ok(());
    };
    let at = job.position.unwrap_or(newest.start);
    if end.is_some_and(|end| at >= end) {
        return Ok(());
    }
    let of = end.map_or(String::new(), |end| format!(" of {end}"));
    Err(CliError::Refused(format!(
        "job {} may still run: attempt {} has got to step {at}{of}; closing it gives up all that it \
         holds, and a run that goes on may miss steps; when it is over or dead, add --force",
        job.id(),
        newest.number
    )))
}

fn render(report: &JobCloseReport, style: Style) -> String {
    let by = admin::by_version(report.version);
    let id = report.opened.map_or(report.job.to_string(), |opened| {
        incarnation(&report.job, opened)
    });
    let head = style.green(&format!("job {id} is closed, {by}"));
    format!("{head}\nwatermark: {}", report.reclaim.text())
}
