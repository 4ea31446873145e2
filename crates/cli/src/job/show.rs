//! `batchweave job show`: one job with its attempts, marks and progress.

use std::collections::BTreeMap;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::job::parameters;
use batchweave_console::job_status::{self, JobStatus};
use batchweave_console::output::{Style, cells, count, fields, joined, or_dash, range, table};
use batchweave_core::ids::{AttemptNo, Step};
use batchweave_core::manifest::state::AttemptState;
use batchweave_core::retention::{AttemptObjects, JobObjects};
use batchweave_daemon::Exit;
use serde::Serialize;

use super::JobShowArgs;

#[derive(Debug, Serialize)]
struct JobShowReport {
    root: String,
    /// Steps in the stream.
    steps: Step,
    /// The step that ends the stream, once that is decided.
    end: Option<Step>,
    #[serde(flatten)]
    job: JobStatus,
    marks: Vec<MarkRow>,
    progress: Vec<ProgressRow>,
    /// Objects in the job's folder that are neither marks nor progress.
    ignored: u64,
}

#[derive(Debug, Serialize)]
struct MarkRow {
    step: Step,
    attempt: AttemptNo,
    complete: bool,
    /// Data coordinates without a mark at this step.
    missing: Vec<u32>,
}

/// Consecutive data coordinates of an attempt that have received the same steps.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ProgressRow {
    attempt: AttemptNo,
    first: u32,
    last: u32,
    /// The first step of the attempt.
    start: Step,
    /// The coordinates have received all steps from `start` up to this one, exclusive.
    step: Step,
}

pub(super) async fn run(args: &JobShowArgs, context: &Context) -> Result<Exit, CliError> {
    let log = context.log().await?;
    let m = log.manifest();
    let state = args.job.find(m)?;
    let objects = job_status::read_all_objects(&log, &args.job.name, state).await?;
    let job = JobStatus::new(&args.job.name, state, Some(&objects));
    let report = JobShowReport {
        root: log.store().root().to_owned(),
        steps: m.next_step(),
        end: m.end(),
        marks: marks(&job, &objects),
        progress: progress(&job, &objects),
        ignored: objects.values().map(|objects| objects.ignored).sum(),
        job,
    };
    context.done(&report, render)
}

fn seen<'a>(
    job: &'a JobStatus,
    objects: &'a JobObjects,
) -> impl Iterator<Item = (&'a AttemptState, &'a AttemptObjects)> {
    let attempts = job.state.attempts.iter();
    attempts.filter_map(|attempt| Some((attempt, objects.get(&attempt.number)?)))
}

fn marks(job: &JobStatus, objects: &JobObjects) -> Vec<MarkRow> {
    let mut marks = Vec::new();
    for (attempt, objects) in seen(job, objects) {
        let complete = objects.complete_marks(attempt.dp_size).into_iter();
        let mut all: BTreeMap<_, _> = complete.map(|step| (step, Vec::new())).collect();
        all.extend(objects.incomplete(attempt.dp_size));
        marks.extend(all.into_iter().map(|(step, missing)| MarkRow {
            step,
            attempt: attempt.number,
            complete: missing.is_empty(),
            missing,
        }));
    }
    marks
}

fn progress(job: &JobStatus, objects: &JobObjects) -> Vec<ProgressRow> {
    let mut rows: Vec<ProgressRow> = Vec::new();
    let newest = job.state.attempts.last().map(|attempt| attempt.number);
    // The objects of earlier attempts may have been reclaimed; then nothing is known.
    let says =
        |a: &AttemptState, s: &AttemptObjects| Some(a.number) == newest || !s.progress.is_empty();
    for (attempt, objects) in seen(job, objects).filter(|(a, s)| says(a, s)) {
        for coordinate in 0..attempt.dp_size {
            let step = objects
                .progress
                .get(&coordinate)
                .copied()
                .unwrap_or(attempt.start);
            let number = attempt.number;
            match rows.last_mut() {
                Some(row) if (row.attempt, row.step) == (number, step) => row.last = coordinate,
                _ => rows.push(ProgressRow {
                    attempt: number,
                    first: coordinate,
                    last: coordinate,
                    start: attempt.start,
                    step,
                }),
            }
        }
    }
    rows
}

fn render(report: &JobShowReport, style: Style) -> String {
    let mut text = fields(&rows(report)) + "\n";
    let Some(oldest) = report.job.state.attempts.first() else {
        return text + "no attempt was opened yet";
    };
    text += &attempt_table(&report.job, style);
    if oldest.number > 0 {
        text += &count(oldest.number, "earlier attempt");
        let name = report.job.name.to_string();
        text.extend([
            " ended below the watermark; `batchweave verify --job ",
            &name,
            "` shows all\n",
        ]);
    }
    if !report.marks.is_empty() {
        text = text + "\n" + &mark_table(&report.marks, style);
    }
    if !report.progress.is_empty() {
        text = text + "\n" + &progress_table(&report.progress, style);
    }
    if report.ignored > 0 {
        let objects = count(report.ignored, "object");
        let line = format!("\n{objects} in the job's folder are neither marks nor progress");
        text.push_str(&style.yellow(&line));
    }
    text
}

fn rows(report: &JobShowReport) -> Vec<(&'static str, String)> {
    let (job, state) = (&report.job, &report.job.state);
    let points = joined(job.restart_points.iter().flatten(), "none");
    let position = match (job.position, report.end) {
        (None, _) => "none".to_owned(),
        (Some(at), Some(end)) if at >= end => format!("{at}: all that there will be"),
        (Some(at), _) => {
            let ahead = count(report.steps.saturating_sub(at), "step");
            format!("{at}; {ahead} committed ahead of it")
        }
    };
    let floor = match job.floor {
        Some(floor) if state.holds => format!("{floor}: keeps the steps from there on"),
        Some(floor) => format!("{floor}, but it holds no data"),
        None if state.holds => {
            let keep = count(state.keep.into(), "restart point");
            format!("none before it has {keep}: keeps all that there is")
        }
        None => "none".to_owned(),
    };
    vec![
        ("job", job.id()),
        ("opened", format!("by version {}", state.opened)),
        ("as", parameters(state)),
        ("position", position),
        ("restart points", points),
        ("floor", floor),
    ]
}

fn attempt_table(job: &JobStatus, style: Style) -> String {
    let row = |attempt: &AttemptState| {
        let parent = attempt.parent;
        let parent = or_dash(parent.map(|p| format!("attempt {} at {}", p.attempt, p.step)));
        let axes: Vec<_> = attempt
            .mesh
            .iter()
            .map(|a| format!("{} {}", a.name, a.size))
            .collect();
        let (a, mesh) = (attempt, axes.join(" x "));
        cells![a.number, a.opened, parent, a.start, a.dp_size, mesh]
    };
    let header = ["ATTEMPT", "OPENED AT", "PARENT", "START", "DP", "MESH"];
    table(style, &header, job.state.attempts.iter().map(row))
}

fn mark_table(marks: &[MarkRow], style: Style) -> String {
    let row = |mark: &MarkRow| {
        let state = if mark.complete {
            "complete".to_owned()
        } else {
            format!("missing: dp ranks {}", runs(&mark.missing))
        };
        cells![mark.step, mark.attempt, state]
    };
    table(style, &["MARK", "ATTEMPT", "STATE"], marks.iter().map(row))
}

fn progress_table(progress: &[ProgressRow], style: Style) -> String {
    let row = |p: &ProgressRow| {
        let ranks = range(p.first.into(), u64::from(p.last) + 1);
        cells![p.attempt, ranks, range(p.start, p.step)]
    };
    let header = ["ATTEMPT", "DP RANKS", "RECEIVED"];
    table(style, &header, progress.iter().map(row))
}

/// Formats sorted numbers as runs: `0..2, 7` for 0, 1, 2 and 7.
fn runs(sorted: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in sorted {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let runs = runs.into_iter();
    joined(
        runs.map(|(first, last)| range(first.into(), u64::from(last) + 1)),
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined() {
        assert_eq!(runs(&[0, 1, 2, 7]), "0..2, 7");
        assert_eq!(runs(&[]), "");
    }
}
