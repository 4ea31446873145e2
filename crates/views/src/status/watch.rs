//! `batchweave status --watch`: repeats the status, with the growth since the previous update.

use std::sync::Arc;
use std::time::SystemTime;

use batchweave_console::CliError;
use batchweave_console::context::{self, Context};
use batchweave_console::output::{Style, count};
use batchweave_core::ids::Step;
use batchweave_daemon::Exit;
use batchweave_daemon::figures::period;
use batchweave_daemon::screen::Screen;
use batchweave_log::Log;
use batchweave_store::Store;
use tokio::time::Instant;

use super::recent::Recent;
use super::view::StreamView;
use super::{StatusArgs, StatusReport, gather, render};

/// Prints updates until the stream has ended or Ctrl-C, on a terminal each over the one before. A failed update is
/// reported and retried at the next interval.
pub(super) async fn run(
    store: Arc<dyn Store>,
    args: &StatusArgs,
    context: &Context,
) -> Result<Exit, CliError> {
    tokio::select! {
        biased;
        () = Screen::interrupted() => Ok(Exit::Ok),
        ended = Box::pin(updates(store, args, context)) => ended,
    }
}

async fn updates(
    store: Arc<dyn Store>,
    args: &StatusArgs,
    context: &Context,
) -> Result<Exit, CliError> {
    let mut watched = Watched::open(store).await?;
    let mut screen = if context.json() {
        None
    } else {
        Screen::open()?
    };
    let mut report = watched.update().await?;
    let mut before = None;
    loop {
        let now = (Instant::now(), report.head.steps);
        let growth = before.map(|before| growth(before, now));
        let over = report.end.is_some();
        let page = |report: &StatusReport, style: Style| {
            let growth = growth
                .as_ref()
                .map_or_else(String::new, |growth| format!("{growth}\n\n"));
            growth + &render::render(report, args.verbose, style)
        };
        match &mut screen {
            Some(screen) if !over => screen.draw(&page(&report, context.out.style))?,
            _ => {
                // The last update stays on the terminal.
                let end = if screen.take().is_some() { "" } else { "\n--" };
                context
                    .out
                    .report(&report, |r, style| page(r, style) + end)?;
            }
        }
        if over {
            return Ok(Exit::Ok);
        }
        before = Some(now);
        report = loop {
            tokio::time::sleep(args.every.0).await;
            match watched.update().await {
                Ok(report) => break report,
                Err(why) => match &mut screen {
                    Some(screen) => screen.draw(&format!("error: {why}; retrying"))?,
                    None => eprintln!("error: {why}; retrying"),
                },
            }
        };
    }
}

/// A stream that is read again and again.
pub(crate) struct Watched {
    log: Log,
    recent: Recent,
}

impl Watched {
    /// Opens the stream at the store's root.
    pub(crate) async fn open(store: Arc<dyn Store>) -> Result<Self, CliError> {
        let mut log = context::open_log(store).await?;
        let recent = Recent::read(&mut log).await?;
        Ok(Self { log, recent })
    }

    /// Reads what was written since, and returns the status.
    async fn update(&mut self) -> Result<StatusReport, CliError> {
        self.log.catch_up().await?;
        let next = self.log.manifest().next_version();
        self.recent.read_on(self.log.store().as_ref(), next).await?;
        let objects = self.log.job_objects().await?;
        gather(&self.log, Some(&objects), &self.recent).await
    }

    /// Reads what was written since, and returns the stream as a page shows it.
    pub(crate) async fn view(&mut self) -> Result<StreamView, CliError> {
        let report = self.update().await?;
        let store = self.log.store().as_ref();
        self.recent.read_commit_times(store).await;
        Ok(StreamView::new(&report, &self.recent, SystemTime::now()))
    }
}

/// Formats the growth of the stream since the previous update.
fn growth(before: (Instant, Step), now: (Instant, Step)) -> String {
    let seconds = now.0.duration_since(before.0).as_secs_f64();
    let steps = now.1.saturating_sub(before.1);
    let rate = steps as f64 / seconds.max(0.001);
    let steps = count(steps, "step");
    format!("{steps} more in {}: {rate:.1} per second", period(seconds))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
