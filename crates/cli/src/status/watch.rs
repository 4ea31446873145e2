//! `batchweave status --watch`: repeats the status, with the growth since the previous update.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::Step;
use batchweave_daemon::Exit;
use batchweave_log::Log;
use batchweave_store::Store;
use tokio::time::Instant;

use super::commits::{self, Commits};
use super::{StatusReport, gather, render};
use crate::context::{self, Context};
use crate::error::CliError;
use crate::output::{Output, Style, count};

/// Clears the terminal: each update replaces the previous one.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Prints updates until the stream has ended. A failed update is reported and retried at the next interval.
pub(super) async fn run(
    store: Arc<dyn Store>,
    every: Duration,
    context: &Context,
) -> Result<Exit, CliError> {
    let mut log = context::open_log(store).await?;
    // The newest records at the start only: reading them at every update costs too much.
    let next = log.manifest().next_version();
    let commits = commits::newest(log.store().as_ref(), next).await?;
    let mut report = update(&mut log, commits).await?;
    let mut before = None;
    loop {
        let now = (Instant::now(), report.head.steps);
        let growth = before.map(|before| growth(before, now));
        context.out.report(&report, |report, style| {
            page(report, growth.as_deref(), style)
        })?;
        if report.end.is_some() {
            return Ok(Exit::Ok);
        }
        before = Some(now);
        report = loop {
            tokio::time::sleep(every).await;
            match update(&mut log, commits).await {
                Ok(report) => break report,
                Err(why) => eprintln!("error: {why}; retrying"),
            }
        };
    }
}

async fn update(log: &mut Log, commits: Commits) -> Result<StatusReport, CliError> {
    log.catch_up().await?;
    let objects = log.job_objects().await?;
    gather(log, Some(&objects), commits).await
}

/// Formats the growth of the stream since the previous update.
fn growth(before: (Instant, Step), now: (Instant, Step)) -> String {
    let seconds = now.0.duration_since(before.0).as_secs_f64();
    let steps = now.1.saturating_sub(before.1);
    let rate = steps as f64 / seconds.max(0.001);
    let steps = count(steps, "step");
    format!("{steps} more in {seconds:.1} s: {rate:.1} per second")
}

fn page(report: &StatusReport, growth: Option<&str>, style: Style) -> String {
    let terminal = Output::is_terminal();
    let (clear, end) = if terminal { (CLEAR, "") } else { ("", "\n--") };
    let growth = growth.map_or_else(String::new, |growth| format!("{growth}\n\n"));
    format!("{clear}{growth}{}{end}", render::render(report, style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_growth_is_that_since_the_previous_update() {
        let began = Instant::now();
        let later = began + Duration::from_secs(2);
        assert_eq!(
            growth((began, 100), (later, 140)),
            "40 steps more in 2.0 s: 20.0 per second"
        );
        // Two updates at the same instant.
        assert!(growth((began, 100), (began, 100)).contains("0 steps more"));
    }
}
