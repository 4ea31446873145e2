//! The state of a stream in one sentence: whether training is fed, and the reason if it is not.

use batchweave_daemon::figures::period;
use serde::Serialize;

use super::daemons::{DaemonStatus, DaemonView};
use crate::output::{count, count_grouped};
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
    /// Something waits.
    Warn,
    /// Something does not answer or cannot work.
    Bad,
}

/// The state of the whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct State {
    pub(super) level: Level,
    pub(super) text: String,
}

/// Returns the state; `failing` is the reason why the store could not be read last.
pub(super) fn state(stream: &StreamView, failing: Option<&str>, daemons: &[DaemonView]) -> State {
    if let Some(why) = failing {
        let text = format!("the store cannot be read: {why}");
        return State {
            level: Level::Bad,
            text,
        };
    }
    let all: Vec<&DaemonStatus> = daemons.iter().filter_map(DaemonView::status).collect();
    let (mut level, mut text) = training(stream, all.iter().find_map(|daemon| daemon.held()));
    let absent: Vec<&str> = daemons
        .iter()
        .filter(|daemon| daemon.fault.is_some())
        .map(|daemon| daemon.address.as_str())
        .collect();
    let broken = match absent[..] {
        [] => None,
        [one] => Some(format!("{one} is not seen as a daemon of this stream")),
        _ => Some(format!(
            "{} are not seen as daemons of this stream",
            count(absent.len() as u64, "address")
        )),
    };
    let unable = all
        .iter()
        .find(|daemon| !["ready", "held"].contains(&daemon.state.as_str()));
    let unable = unable.map(|daemon| format!("{} is not ready", daemon.title()));
    for fault in broken.into_iter().chain(unable) {
        level = Level::Bad;
        text = format!("{text}; {fault}");
    }
    State { level, text }
}

/// Describes the open jobs; `held` is the reason why producers are held back.
fn training(stream: &StreamView, held: Option<&str>) -> (Level, String) {
    let jobs: Vec<&JobView> = stream.jobs.iter().filter(|job| job.open).collect();
    let with = |outlook: Outlook| jobs.iter().find(|job| job.outlook == Some(outlook));
    let producers = |joint: &str| held.map_or_else(String::new, |why| format!("{joint} {why}"));
    if jobs.is_empty() {
        let text = match stream.end {
            Some(end) => format!("the stream has ended, with {}", count_grouped(end, "step")),
            None => format!("no job is open{}", producers("; producers are")),
        };
        return (Level::Quiet, text);
    }
    if jobs.iter().all(|job| job.step.is_none()) {
        let text = format!("no job has started yet{}", producers("; producers are"));
        return (Level::Quiet, text);
    }
    if let Some(job) = with(Outlook::Waits) {
        let why = producers(", which are");
        return (
            Level::Warn,
            format!("job {} waits for producers{why}", name(job)),
        );
    }
    if let Some(job) = with(Outlook::StandsStill) {
        let step = job.step.unwrap_or_default();
        let text = format!("job {} stands still at step {step}", name(job));
        return (Level::Warn, text + &producers("; producers are"));
    }
    let dry = with(Outlook::RunsDry).and_then(|job| Some((job, job.seconds_left?)));
    if let Some((job, seconds)) = dry.filter(|(_, seconds)| *seconds < SOON) {
        let (job, left) = (name(job), period(seconds));
        return (
            Level::Warn,
            format!("job {job} runs dry in {left}: it reads faster than producers commit"),
        );
    }
    if jobs.iter().all(|job| job.outlook == Some(Outlook::HasAll)) {
        let end = count_grouped(stream.steps, "step");
        return (
            Level::Good,
            format!("training has received the whole stream, {end}"),
        );
    }
    (
        Level::Good,
        format!("training is fed{}", producers("; producers are")),
    )
}

/// Returns the name of a job without the version that opened it.
fn name(job: &JobView) -> &str {
    job.job.split('@').next().unwrap_or_default()
}
