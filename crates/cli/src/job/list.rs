//! `batchweave job list`.

use batchweave_core::ids::Step;
use batchweave_daemon::Exit;
use serde::Serialize;

use crate::context::{self, Context};
use crate::error::CliError;
use crate::output::{Style, count};
use crate::standing::{self, Reclaim, Standing};

#[derive(Debug, Serialize)]
struct Report {
    root: String,
    /// How many steps there are.
    steps: Step,
    watermark: Step,
    /// What keeps it where it is.
    reclaim: Reclaim,
    jobs: Vec<Standing>,
}

pub(super) async fn run(context: &Context) -> Result<Exit, CliError> {
    let mut log = context::open_log(context.store(false).await?).await?;
    let signs = standing::signs(&mut log).await?;
    let m = log.manifest();
    let report = Report {
        root: log.store().root().to_owned(),
        steps: m.next_step(),
        watermark: m.watermark(),
        reclaim: Reclaim::of(m, &signs),
        jobs: standing::all(m, Some(&signs)),
    };
    context.out.report(&report, render)?;
    Ok(Exit::Ok)
}

fn render(report: &Report, style: Style) -> String {
    if report.jobs.is_empty() {
        return "no job is open".to_owned();
    }
    let steps = count(report.steps, "step");
    format!(
        "{}\nthe stream has {steps}; watermark {}: {}",
        standing::job_table(&report.jobs, style),
        report.watermark,
        report.reclaim.text()
    )
}
