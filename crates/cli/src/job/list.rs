//! `batchweave job list`: the open jobs, and what holds the watermark, below which steps are reclaimed.

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::job_status::{self, JobStatus, ReclaimStatus};
use batchweave_console::output::{Style, count};
use batchweave_core::ids::Step;
use batchweave_daemon::Exit;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct JobListReport {
    root: String,
    /// Steps in the stream.
    steps: Step,
    watermark: Step,
    /// The reason why the watermark is held, or the step to which it may move.
    reclaim: ReclaimStatus,
    jobs: Vec<JobStatus>,
}

pub(super) async fn run(context: &Context) -> Result<Exit, CliError> {
    let mut log = context.log().await?;
    let objects = log.job_objects().await?;
    let m = log.manifest();
    let report = JobListReport {
        root: log.store().root().to_owned(),
        steps: m.next_step(),
        watermark: m.watermark(),
        reclaim: ReclaimStatus::new(m, &objects),
        jobs: job_status::of_open_jobs(m, Some(&objects)),
    };
    context.done(&report, render)
}

fn render(report: &JobListReport, style: Style) -> String {
    let jobs = if report.jobs.is_empty() {
        "no job is open".to_owned()
    } else {
        job_status::job_table(&report.jobs, style)
    };
    let steps = count(report.steps, "step");
    format!(
        "{jobs}\nthe stream has {steps}; watermark {}: {}",
        report.watermark,
        report.reclaim.text()
    )
}
