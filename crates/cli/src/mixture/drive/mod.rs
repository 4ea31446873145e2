//! `batchweave mixture drive`: follows the losses that ranks report, and changes the mixture by them.
//!
//! - `settings` are the arguments; `turn` looks once at the log, the states and the losses, and waits or decides;
//! - `sources` names the sources and their shares in force; `function` asks a function of the user; `commit` writes the
//!   change, an ordinary `mixture` entry with its reason;
//! - `dry_run` replays stored losses into a `dry_run_report`, which `plot` draws; `render` shows the results.
//!
//! A driver keeps nothing: the log has each change with its reason, so one that is killed goes on where it was.

mod commit;
mod dry_run;
mod dry_run_report;
mod function;
mod plot;
mod render;
mod settings;
mod sources;
#[cfg(test)]
mod tests;
mod turn;

use std::sync::Arc;
use std::time::{Duration, Instant};

use batchweave_console::CliError;
use batchweave_console::context::{Context, open_log};
use batchweave_console::job::incarnation;
use batchweave_core::ids::{Step, Version};
use batchweave_daemon::Exit;
use batchweave_daemon::screen::Screen;
use batchweave_log::{Log, LogError};
use batchweave_verify::{FollowedRun, PassedWindows};
use serde::Serialize;

pub(super) use self::render::{loss as render_loss, percent as render_percent};
pub(super) use self::settings::DriveArgs;
use self::settings::Driver;
use self::turn::{Turn, Waiting};

/// How often a driver that waits for the same says so.
const REMIND: Duration = Duration::from_mins(1);

/// The result of a turn, or of the run's end.
#[derive(Debug, Serialize)]
struct DriveReport {
    root: String,
    job: String,
    /// Why nothing changes yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<String>,
    /// The actor that it waits for.
    #[serde(skip)]
    actor: String,
    /// Steps of which too few have values, so that they were passed over: the first one, and the one after the last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without_values: Vec<(Step, Step)>,
    #[serde(flatten)]
    change: Option<Driven>,
    /// The job is closed, so the driver ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
}

/// A change that the driver made.
#[derive(Debug, Serialize)]
struct Driven {
    id: u64,
    version: Version,
    change: u64,
    /// The steps of the decision.
    from: Step,
    to: Step,
    sources: Vec<DrivenSource>,
}

#[derive(Debug, Serialize)]
struct DrivenSource {
    source: String,
    /// Mean loss; null for a source without tokens.
    loss: Option<f64>,
    /// Shares by the weights, from 0 to 1.
    before: f64,
    after: f64,
}

pub(super) async fn run(args: &DriveArgs, context: &Context) -> Result<Exit, CliError> {
    let driver = args.driver()?;
    tokio::select! {
        biased;
        () = Screen::interrupted() => Ok(Exit::Ok),
        ended = Box::pin(drive(&driver, args, context)) => ended,
    }
}

async fn drive(driver: &Driver, args: &DriveArgs, context: &Context) -> Result<Exit, CliError> {
    let store = if args.once || args.dry_run {
        context.store(false).await?
    } else {
        context.polled_store(false).await?
    };
    let mut run = FollowedRun::open(&store, &args.job).await?;
    if args.dry_run {
        return dry_run::run(driver, args, &run, context).await;
    }
    let mut log = open_log(Arc::clone(&store)).await?;
    let (mut shown, mut looks) = (Shown::default(), Looks::default());
    loop {
        match once(driver, &mut run, &mut log, &mut looks).await {
            Ok(report) => {
                let ends = args.once || report.closed;
                if ends || shown.is_news(&report) {
                    context.out.report(&report, render::turn)?;
                }
                if ends {
                    return Ok(Exit::Ok);
                }
                if report.change.is_some() {
                    continue;
                }
            }
            Err(why) if !args.once && is_passing(&why) => eprintln!("error: {why}; retrying"),
            Err(why) => return Err(why),
        }
        tokio::time::sleep(args.poll.0).await;
    }
}

/// Looks once, and makes the change that is due.
async fn once(
    driver: &Driver,
    run: &mut FollowedRun,
    log: &mut Log,
    looks: &mut Looks,
) -> Result<DriveReport, CliError> {
    run.refresh().await?;
    let record = run.record()?;
    let mut report = DriveReport {
        root: log.store().root().to_owned(),
        job: incarnation(&record.name, record.opened),
        waiting: None,
        actor: String::new(),
        without_values: Vec::new(),
        change: None,
        closed: record.closed.is_some(),
    };
    if report.closed {
        return Ok(report);
    }
    let now = looks.began.elapsed();
    let turn = turn::look(driver, run, &mut looks.passed, now).await?;
    report.without_values = looks.passed.steps().to_vec();
    match turn {
        Turn::Wait(waiting) => (report.waiting, report.actor) = (Some(waiting.text), waiting.actor),
        Turn::Decide(decision) => {
            report.change = commit::commit(driver, &decision, log).await?;
            if report.change.is_none() {
                report.waiting = Some(Waiting::overtaken().text);
            }
        }
    }
    Ok(report)
}

/// The memory of a driver: only what no log can have.
struct Looks {
    began: Instant,
    passed: PassedWindows,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            passed: PassedWindows::default(),
        }
    }
}

/// Returns whether a request may succeed later.
fn is_passing(why: &CliError) -> bool {
    matches!(why, CliError::Store(_) | CliError::Log(LogError::Store(_)))
}

/// The wait that was shown last.
#[derive(Debug, Default)]
struct Shown {
    waiting: Option<(String, Instant)>,
}

impl Shown {
    /// Returns whether the report says something new, or has not been shown for a while.
    fn is_news(&mut self, report: &DriveReport) -> bool {
        if report.waiting.is_none() {
            self.waiting = None;
            return true;
        }
        let is_same =
            |(actor, at): &(String, Instant)| *actor == report.actor && at.elapsed() < REMIND;
        if self.waiting.as_ref().is_some_and(is_same) {
            return false;
        }
        self.waiting = Some((report.actor.clone(), Instant::now()));
        true
    }
}
