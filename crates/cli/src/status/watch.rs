//! `batchweave status --watch`: the same again and again, and what changed from one look to the next.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::Step;
use batchweave_daemon::Exit;
use batchweave_log::Log;
use batchweave_store::Store;
use tokio::time::Instant;

use super::{StatusReport, commits, gather, render, snapshots};
use crate::context::{self, Context};
use crate::error::CliError;
use crate::job_status;
use crate::output::{Output, Style, count};

/// Home, and nothing below: a terminal shows one look in the place of the last.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Looks until the stream has ended. A look that fails is told, and the next one tries again.
pub(super) async fn run(
    store: Arc<dyn Store>,
    every: Duration,
    context: &Context,
) -> Result<Exit, CliError> {
    let mut log = context::open_log(store).await?;
    let mut report = look(&mut log).await?;
    // Of the newest records at the beginning: they are too many to be read at every look.
    let next = log.manifest().next_version();
    report.commits = commits::newest(log.store().as_ref(), next).await?;
    let commits = report.commits;
    let mut before = None;
    loop {
        let now = (Instant::now(), report.head.steps);
        let pace = before.map(|before| pace(before, now));
        context.out.report(&report, |report, style| {
            page(report, pace.as_deref(), style)
        })?;
        if report.end.is_some() {
            return Ok(Exit::Ok);
        }
        before = Some(now);
        report = loop {
            tokio::time::sleep(every).await;
            match next_look(&mut log).await {
                Ok(report) => break report,
                Err(why) => eprintln!("error: {why}; looking again"),
            }
        };
        report.commits = commits;
    }
}

async fn next_look(log: &mut Log) -> Result<StatusReport, CliError> {
    log.catch_up().await?;
    look(log).await
}

async fn look(log: &mut Log) -> Result<StatusReport, CliError> {
    let objects = job_status::read_objects(log).await?;
    let mut report = gather(log.store().root(), log.manifest(), Some(&objects));
    report.snapshots = snapshots(log.store().as_ref()).await?;
    Ok(report)
}

/// How fast the stream grew since the last look.
fn pace(before: (Instant, Step), now: (Instant, Step)) -> String {
    let seconds = now.0.duration_since(before.0).as_secs_f64();
    let steps = now.1.saturating_sub(before.1);
    let rate = steps as f64 / seconds.max(0.001);
    format!(
        "{} more in {seconds:.1} s: {rate:.1} a second",
        count(steps, "step")
    )
}

fn page(report: &StatusReport, pace: Option<&str>, style: Style) -> String {
    let clear = if Output::is_terminal() { CLEAR } else { "" };
    let pace = pace.map_or_else(String::new, |pace| format!("{pace}\n\n"));
    let end = if Output::is_terminal() { "" } else { "\n--" };
    format!("{clear}{pace}{}{end}", render::render(report, style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_pace_is_that_since_the_last_look() {
        let began = Instant::now();
        let later = began + Duration::from_secs(2);
        assert_eq!(
            pace((began, 100), (later, 140)),
            "40 steps more in 2.0 s: 20.0 a second"
        );
        // Two looks at one instant.
        assert!(pace((began, 100), (began, 100)).contains("0 steps more"));
    }
}
