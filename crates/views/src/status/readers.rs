//! The open jobs as readers: how far the stream is ahead of each, and when a job runs out of steps.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use batchweave_console::context;
use batchweave_console::job_status::JobStatus;
use batchweave_console::output::{Style, cells, count_grouped, or_dash, table};
use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::state::JobState;
use batchweave_daemon::figures::{grouped, period, short};
use batchweave_store::{ObjectMeta, Store};
use serde::Serialize;

/// A job without progress for this time does not read now; connected ranks report more often.
const IDLE: Duration = Duration::from_mins(3);
/// The rate of a job is that of this time before its newest progress.
const COVERED: Duration = Duration::from_mins(1);

/// The outlook of a job at the present rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outlook {
    /// It uses up the stream faster than producers fill it.
    RunsDry,
    /// Producers are at least as fast.
    KeepsUp,
    /// It comes to the stream's end.
    Ends,
    /// It has received every step that there will be.
    HasAll,
    /// It has received every step that there is.
    Waits,
    /// It has reported no progress for minutes, though there are steps.
    StandsStill,
}

/// A job that reads the stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ReaderStatus {
    /// The job and the version that opened it, as `llm@4`.
    pub(super) job: String,
    /// The next step of its slowest data coordinate; `None` before the first attempt.
    pub(super) step: Option<Step>,
    /// Committed steps that it has not received.
    pub(super) ahead_steps: Option<u64>,
    pub(super) steps_per_second: Option<f64>,
    /// Age of its newest progress.
    pub(super) progress_seconds: Option<f64>,
    pub(super) outlook: Option<Outlook>,
    /// Seconds until then: until it runs dry, or ends.
    pub(super) seconds_left: Option<f64>,
}

/// The stream, as far as readers depend on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Supply {
    pub(super) steps: Step,
    pub(super) end: Option<Step>,
    /// Steps per second that producers commit; `None` when unknown.
    pub(super) rate: Option<f64>,
}

/// The speed of a job, by its progress objects.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Speed {
    steps_per_second: Option<f64>,
    newest: Option<SystemTime>,
}

/// Returns the folder of an attempt's objects.
type Folder = fn(&JobName, Version, AttemptNo) -> String;

/// A step that a job had reached, and when.
type Reached = (SystemTime, Step);

/// Returns the open jobs as readers; without a store that can be listed, without their speeds.
pub(super) async fn all(
    store: &dyn Store,
    jobs: &[JobStatus],
    supply: Supply,
) -> Vec<ReaderStatus> {
    let mut readers = Vec::new();
    for job in jobs {
        let seen = observations(store, &job.name, &job.state).await;
        let speed = seen.map_or_else(Speed::default, |(objects, opened)| speed(&objects, opened));
        readers.push(reader(job, speed, supply, SystemTime::now()));
    }
    readers
}

/// Lists the progress and marks of a job's newest attempt, and returns when it began, where the store knows.
async fn observations(
    store: &dyn Store,
    name: &JobName,
    state: &JobState,
) -> Option<(Vec<ObjectMeta>, Option<Reached>)> {
    let newest = state.attempts.last()?;
    let folder = |of: Folder| of(name, state.opened, newest.number);
    let mut objects = context::list(store, &folder(keys::progress_of))
        .await
        .ok()?;
    objects.extend(context::list(store, &folder(keys::marks)).await.ok()?);
    let opened = store
        .head(&keys::log(newest.opened))
        .await
        .ok()
        .and_then(|meta| Some((meta.modified?, newest.start)));
    Some((objects, opened))
}

/// Returns the speed of the slowest coordinates. A newer progress object replaces the one before it, so earlier
/// steps are also those of marks and of the attempt's opening.
fn speed(objects: &[ObjectMeta], opened: Option<Reached>) -> Speed {
    let mut newest: BTreeMap<(u32, u32), Reached> = BTreeMap::new();
    let mut earlier: Vec<((u32, u32), Reached)> = Vec::new();
    let all = |reached| ((0, u32::MAX), reached);
    earlier.extend(opened.map(all));
    for object in objects {
        let Some(modified) = object.modified else {
            continue;
        };
        if let Some(progress) = keys::parse_progress(&object.key) {
            let (reached, of) = ((modified, progress.step), (progress.first, progress.last));
            let last = newest.entry(of).or_insert(reached);
            *last = (*last).max(reached);
            earlier.push((of, reached));
        } else if let Some(mark) = keys::parse_mark(&object.key) {
            let of = mark.coordinate.map_or((0, u32::MAX), |at| (at, at));
            earlier.push((of, (modified, mark.step)));
        }
    }
    let slowest = newest.into_iter().min_by_key(|(_, (_, step))| *step);
    let Some((of, (at, step))) = slowest else {
        return Speed::default();
    };
    let overlaps = |other: (u32, u32)| other.0 <= of.1 && of.0 <= other.1;
    let before = |(time, from): &Reached| *time < at && *from <= step;
    let mut earlier: Vec<Reached> = earlier
        .into_iter()
        .filter(|(other, _)| overlaps(*other))
        .map(|(_, one)| one)
        .filter(before)
        .collect();
    earlier.sort_unstable();
    let age = |time: SystemTime| at.duration_since(time).unwrap_or_default();
    let within = earlier.iter().find(|(time, _)| age(*time) <= COVERED);
    let first = within.or(earlier.last());
    let rate = first.map(|(time, from)| (step - from) as f64 / age(*time).as_secs_f64());
    Speed {
        steps_per_second: rate,
        newest: Some(at),
    }
}

fn reader(job: &JobStatus, speed: Speed, supply: Supply, now: SystemTime) -> ReaderStatus {
    let step = job.position;
    let ahead = step.map(|step| supply.steps.saturating_sub(step));
    let since = speed
        .newest
        .map(|at| now.duration_since(at).unwrap_or_default());
    let has_all = supply.end.zip(step).is_some_and(|(end, step)| step >= end);
    let idle = since.is_some_and(|since| since > IDLE);
    // An old rate says nothing about now.
    let rate = speed.steps_per_second.filter(|_| !idle);
    let (outlook, seconds_left) = match (ahead, rate) {
        _ if has_all => (Some(Outlook::HasAll), None),
        (Some(0), _) => (Some(Outlook::Waits), None),
        (Some(_), None) if idle => (Some(Outlook::StandsStill), None),
        (Some(ahead), Some(reads)) if reads > 0.0 => match (supply.end, supply.rate) {
            (Some(_), _) => (Some(Outlook::Ends), Some(ahead as f64 / reads)),
            (None, Some(made)) if made >= reads => (Some(Outlook::KeepsUp), None),
            (None, Some(made)) => (Some(Outlook::RunsDry), Some(ahead as f64 / (reads - made))),
            (None, None) => (None, None),
        },
        _ => (None, None),
    };
    ReaderStatus {
        job: job.id(),
        step,
        ahead_steps: ahead,
        steps_per_second: rate,
        progress_seconds: since.map(|since| since.as_secs_f64()),
        outlook,
        seconds_left,
    }
}

impl ReaderStatus {
    /// Formats the outlook of the job: `runs dry in 12 s`.
    pub(super) fn outlook_text(&self) -> Option<String> {
        let left = || period(self.seconds_left.unwrap_or_default());
        Some(match self.outlook? {
            Outlook::RunsDry => format!("runs dry in {}", left()),
            Outlook::KeepsUp => "producers keep up".to_owned(),
            Outlook::Ends => format!("ends in {}", left()),
            Outlook::HasAll => "has it all".to_owned(),
            Outlook::Waits => "waits for producers".to_owned(),
            Outlook::StandsStill => "stands still".to_owned(),
        })
    }
}

/// Describes the lead over the slowest job in one line; `tokens` are those of a step.
pub(super) fn lead(readers: &[ReaderStatus], tokens: f64) -> String {
    if readers.is_empty() {
        return "no job is open, so nothing reads the stream".to_owned();
    }
    let slowest = readers.iter().filter(|reader| reader.step.is_some());
    let Some(slowest) = slowest.min_by_key(|reader| reader.step) else {
        return "no job has started yet".to_owned();
    };
    let job = &slowest.job;
    if slowest.outlook == Some(Outlook::HasAll) {
        return format!("{job} has received every step");
    }
    let steps = slowest.ahead_steps.unwrap_or_default();
    let tokens = grouped((steps as f64 * tokens).round() as u64);
    let role = if readers.len() > 1 {
        ", the slowest job"
    } else {
        ""
    };
    let steps = count_grouped(steps, "step");
    let ahead = format!("{steps}, {tokens} tokens, ahead of {job}{role}");
    let still = || period(slowest.progress_seconds.unwrap_or_default());
    match (slowest.outlook, slowest.outlook_text()) {
        (Some(Outlook::Waits), _) => format!("none: {job} waits for producers"),
        (Some(Outlook::StandsStill), _) => {
            format!("{ahead}, which has made no progress for {}", still())
        }
        (_, Some(outlook)) => format!("{ahead}; at these rates it {}", sentence(&outlook)),
        (_, None) => ahead,
    }
}

/// Turns a cell of the table into the end of a sentence.
fn sentence(outlook: &str) -> String {
    outlook.replace("producers keep up", "does not run dry")
}

/// Formats a table with one line per job.
pub(super) fn reader_table(readers: &[ReaderStatus], style: Style) -> String {
    let row = |reader: &ReaderStatus| {
        let heard = reader
            .progress_seconds
            .map(|age| format!("{} ago", period(age)));
        cells![
            reader.job,
            or_dash(reader.step),
            or_dash(reader.ahead_steps),
            or_dash(reader.steps_per_second.map(short)),
            or_dash(heard),
            or_dash(reader.outlook_text()),
        ]
    };
    let header = ["JOB", "STEP", "AHEAD", "STEPS/S", "PROGRESS", "OUTLOOK"];
    table(style, &header, readers.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn object(step: Step, coordinates: (u32, u32), seconds: u64) -> ObjectMeta {
        let job = "llm".parse().unwrap();
        let key = keys::progress(&job, 2, 0, step, coordinates, "n");
        ObjectMeta {
            modified: Some(at(seconds)),
            ..ObjectMeta::new(key, 1)
        }
    }

    #[test]
    fn a_job_is_as_fast_as_its_slowest_rank() {
        let objects = [
            object(900, (1, 1), 200),
            object(100, (0, 0), 100),
            object(180, (0, 0), 160),
            object(300, (0, 0), 200),
        ];
        let slow = speed(&objects, None);
        assert_eq!(slow.steps_per_second, Some(3.0), "since step 180");
        assert_eq!(slow.newest, Some(at(200)));
        let fast = &objects[..1];
        assert_eq!(speed(fast, None).steps_per_second, None, "one gives none");
        let since_opened = speed(fast, Some((at(0), 500)));
        assert_eq!(since_opened.steps_per_second, Some(2.0));
        let job = "llm".parse().unwrap();
        let mark = ObjectMeta {
            modified: Some(at(150)),
            ..ObjectMeta::new(keys::mark(&job, 2, 0, 850, Some(1)), 1)
        };
        let marked = [fast[0].clone(), mark];
        let since_mark = speed(&marked, Some((at(0), 500)));
        assert_eq!(since_mark.steps_per_second, Some(1.0), "of the last minute");
        assert_eq!(speed(&[], None), Speed::default());
    }

    fn read_at(
        now: SystemTime,
        position: Option<Step>,
        rates: (f64, f64),
        end: Option<Step>,
    ) -> ReaderStatus {
        let state = serde_json::json!({
            "opened": 2, "start": 0, "keep": 2, "holds": true, "paces": true, "attempts": []
        });
        let job = JobStatus {
            name: "llm".parse().unwrap(),
            state: serde_json::from_value(state).unwrap(),
            position,
            restart_points: None,
            floor: None,
        };
        let speed = Speed {
            steps_per_second: Some(rates.0),
            newest: Some(at(90)),
        };
        let supply = Supply {
            steps: 100,
            end,
            rate: Some(rates.1),
        };
        reader(&job, speed, supply, now)
    }

    fn read(position: Option<Step>, rates: (f64, f64), end: Option<Step>) -> ReaderStatus {
        read_at(at(93), position, rates, end)
    }

    #[test]
    fn the_rate_of_a_job_that_stands_still_is_forgotten() {
        let still = read_at(at(90 + 725), Some(40), (8.0, 2.0), None);
        assert_eq!((still.steps_per_second, still.seconds_left), (None, None));
        assert!(lead(&[still], 1.0).ends_with("llm@2, which has made no progress for 12 min 5 s"));
    }

    #[test]
    fn the_outlook_follows_from_both_rates() {
        let dry = read(Some(40), (8.0, 2.0), None);
        assert_eq!((dry.ahead_steps, dry.seconds_left), (Some(60), Some(10.0)));
        assert_eq!(
            lead(&[dry], 64.0),
            "60 steps, 3,840 tokens, ahead of llm@2; at these rates it runs dry in 10 s"
        );
        let keeps = read(Some(40), (8.0, 8.0), None);
        assert!(lead(&[keeps], 1.0).ends_with("at these rates it does not run dry"));
        let ends = read(Some(40), (8.0, 0.0), Some(100));
        assert!(lead(&[ends], 1.0).ends_with("it ends in 7.5 s"));
        let all = read(Some(100), (8.0, 0.0), Some(100));
        assert_eq!(
            lead(std::slice::from_ref(&all), 1.0),
            "llm@2 has received every step"
        );
        let waits = read(Some(100), (8.0, 2.0), None);
        assert_eq!(lead(&[waits], 1.0), "none: llm@2 waits for producers");
        let idle = read(None, (8.0, 2.0), None);
        assert_eq!(
            lead(std::slice::from_ref(&idle), 1.0),
            "no job has started yet"
        );
        assert!(lead(&[], 1.0).starts_with("no job is open"));
        let text = reader_table(&[all, idle], Style::default());
        assert!(
            text.contains("llm@2   100      0        8  3.0 s ago  has it all"),
            "{text}"
        );
        assert!(
            text.contains("llm@2     -      -        8  3.0 s ago  -"),
            "{text}"
        );
    }
}
