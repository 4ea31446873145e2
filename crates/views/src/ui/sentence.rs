//! The state of a stream in one sentence: whether training is fed, and the reason if it is not.

use batchweave_console::output::count_grouped;
use batchweave_daemon::figures::{grouped, period};
use serde::Serialize;

use super::daemons::{DaemonStatus, DaemonView};
use crate::status::{JobView, Outlook, StreamView};

/// A job that runs dry in less time is worth a warning.
const SOON: f64 = 60.0;

/// The colour of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    /// Nothing reads the stream.
    Quiet,
    Good,
    /// A part of the stream waits for another.
    Warn,
    /// Something does not answer or cannot work.
    Bad,
}

/// The state of the whole: whether training is fed, then what hinders it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct State {
    /// The worst of all lines.
    pub(super) level: Level,
    /// All lines, as one sentence.
    pub(super) text: String,
    pub(super) lines: Vec<Line>,
}

/// One line of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    level: Level,
    text: String,
}

fn line(level: Level, text: impl Into<String>) -> Line {
    let text = text.into();
    Line { level, text }
}

/// Returns the state; `failing` is the reason why the store could not be read last.
pub(super) fn state(stream: &StreamView, failing: Option<&str>, daemons: &[DaemonView]) -> State {
    let all: Vec<&DaemonStatus> = daemons.iter().filter_map(DaemonView::status).collect();
    let mut lines = match failing {
        Some(why) => vec![line(Level::Bad, format!("the store cannot be read: {why}"))],
        None => vec![training(stream)],
    };
    if let Some(why) = all.iter().find_map(|daemon| daemon.held()) {
        lines.push(line(Level::Warn, format!("producers are {why}")));
    }
    let unable: Vec<String> = all
        .iter()
        .filter(|d| !["ready", "held"].contains(&d.state.as_str()))
        .map(|daemon| daemon.title())
        .collect();
    match unable.as_slice() {
        [] => {}
        [one] => lines.push(line(Level::Bad, format!("{one} is not ready"))),
        all => lines.push(line(
            Level::Bad,
            format!("{} daemons are not ready", all.len()),
        )),
    }
    lines.extend(unreadable(daemons));
    let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    State {
        level: lines
            .iter()
            .map(|line| line.level)
            .max()
            .unwrap_or(Level::Quiet),
        text: texts.join("; "),
        lines,
    }
}

/// Describes the named daemons whose status cannot be read.
fn unreadable(daemons: &[DaemonView]) -> Option<Line> {
    let mut faults = daemons
        .iter()
        .filter_map(|d| Some((&d.address, d.fault.as_ref()?)));
    match (faults.next(), faults.count()) {
        (None, _) => None,
        (Some((address, why)), 0) => Some(line(Level::Bad, format!("{address} {why}"))),
        (_, others) => {
            let text = format!("{} named daemons do not answer as such", others + 1);
            Some(line(Level::Bad, text))
        }
    }
}

/// Describes the open jobs as readers.
fn training(stream: &StreamView) -> Line {
    let jobs: Vec<&JobView> = stream.jobs.iter().filter(|job| job.open).collect();
    let with = |outlook: Outlook| jobs.iter().find(|job| job.outlook == Some(outlook));
    if let Some(line) = not_reading(stream, &jobs) {
        return line;
    }
    if let Some(job) = with(Outlook::Waits) {
        return line(
            Level::Warn,
            format!("job {} waits for producers", name(job)),
        );
    }
    if let Some(job) = with(Outlook::StandsStill) {
        let step = grouped(job.step.unwrap_or_default());
        return line(
            Level::Warn,
            format!("job {} stands still at step {step}", name(job)),
        );
    }
    let dry = with(Outlook::RunsDry).and_then(|job| Some((job, job.seconds_left?)));
    if let Some((job, seconds)) = dry.filter(|(_, seconds)| *seconds < SOON) {
        let (job, left) = (name(job), period(seconds));
        let text = format!("job {job} runs dry in {left}: it reads faster than producers commit");
        return line(Level::Warn, text);
    }
    if jobs.iter().all(|job| job.outlook == Some(Outlook::HasAll)) {
        let steps = count_grouped(stream.steps, "step");
        return line(
            Level::Good,
            format!("training has received the whole stream, {steps}"),
        );
    }
    line(Level::Good, "training is fed")
}

/// Describes a stream that no open job reads yet; `None` when a job has started.
fn not_reading(stream: &StreamView, jobs: &[&JobView]) -> Option<Line> {
    if jobs.is_empty() {
        let text = match stream.end {
            Some(end) => format!("the stream has ended, with {}", count_grouped(end, "step")),
            None => "no job is open".to_owned(),
        };
        return Some(line(Level::Quiet, text));
    }
    let started = jobs.iter().any(|job| job.step.is_some());
    (!started).then(|| line(Level::Quiet, "no job has started yet"))
}

/// Returns the name of a job without the version that opened it.
fn name(job: &JobView) -> &str {
    job.job.split('@').next().unwrap_or_default()
}
