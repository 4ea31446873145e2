//! `batchweave job open`: from now on the stream keeps what the job still needs, unless `--no-holds`.

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::job::{incarnation, parameters};
use batchweave_console::output::Style;
use batchweave_core::ids::{JobName, Version};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::JobOpened;
use batchweave_core::manifest::state::JobState;
use batchweave_daemon::Exit;
use serde::Serialize;

use super::OpenArgs;
use crate::admin;

#[derive(Debug, Serialize)]
struct JobOpenReport {
    root: String,
    job: JobName,
    /// The version that opened it; `None` when this request was applied before.
    version: Option<Version>,
    /// The open incarnation; `None` when it was closed since.
    #[serde(flatten)]
    state: Option<JobState>,
}

pub(super) async fn run(args: &OpenArgs, context: &Context) -> Result<Exit, CliError> {
    if args.keep == 0 {
        let why =
            "--keep 0: a job that keeps no restart point could never restart; keep at least 1";
        return Err(CliError::Usage(why.into()));
    }
    let lease = lease_seconds(args)?;
    let mut log = context.log().await?;
    let entry = Entry::JobOpened(JobOpened {
        request: admin::request(args.request, &mut log),
        job: args.job.clone(),
        start: log.manifest().stream().job_start(args.start),
        keep: args.keep,
        holds: !args.no_holds,
        paces: !args.no_paces,
        lease_seconds: lease,
    });
    let version = admin::commit(&mut log, "job", |_| Ok(Some(entry.clone()))).await?;
    let report = JobOpenReport {
        root: log.store().root().to_owned(),
        job: args.job.clone(),
        version,
        state: log.manifest().jobs().get(&args.job).cloned(),
    };
    context.done(&report, render)
}

/// Returns the lease in whole seconds.
fn lease_seconds(args: &OpenArgs) -> Result<Option<u64>, CliError> {
    match args.lease.map(|lease| lease.0) {
        None => Ok(None),
        Some(time) if time.as_secs() > 0 && time.subsec_nanos() == 0 => Ok(Some(time.as_secs())),
        Some(_) => Err(CliError::Usage(
            "--lease: write at least a second, in whole seconds; without it only a person closes the job"
                .into(),
        )),
    }
}

fn render(report: &JobOpenReport, style: Style) -> String {
    let by = admin::by_version(report.version);
    match &report.state {
        Some(state) => {
            let id = incarnation(&report.job, state.opened);
            let head = style.green(&format!("job {id} is open, {by}"));
            format!("{head}\n{}", parameters(state))
        }
        None => format!(
            "this request opened job {} before, and it was closed since",
            report.job
        ),
    }
}
