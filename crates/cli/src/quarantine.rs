//! `batchweave quarantine`: excludes steps from attempts opened later, lists such exclusions and lifts
//! them.

use std::fmt::Write as _;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::describe::{self, StepRange};
use batchweave_console::job_status::{self, Reader};
use batchweave_console::output::{Style, cells, count, joined, or_dash, range, table};
use batchweave_core::ids::{RequestId, Step, Version};
use batchweave_core::manifest::entry::{QuarantineLifted, Quarantined};
use batchweave_core::manifest::state::QuarantineState;
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_daemon::Exit;
use batchweave_log::Log;
use serde::Serialize;

use crate::admin;

const EXAMPLES: &str = "\
Examples:
  batchweave quarantine 1200..1260 --reason \"a shard of garbage\"     both steps included
  batchweave quarantine --store s3://bucket/stream                   the quarantines, and the jobs that read them
  batchweave quarantine --lift 3f07                                  by the first digits of its id

Attempts that are opened after the record skip the steps: their ranks receive those that follow.
Running attempts still read them, on all nodes alike, until they are restarted. The data stays;
lifting a quarantine applies to attempts opened after it.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QuarantineArgs {
    /// Steps to exclude, or one step; without: list the quarantines
    #[arg(value_name = "FIRST..LAST", requires = "reason")]
    steps: Option<StepRange>,
    /// The reason; it is stored in the log
    #[arg(long, value_name = "TEXT", requires = "steps")]
    reason: Option<String>,
    /// Lift the quarantine whose id is or begins with these digits
    #[arg(long, value_name = "ID", conflicts_with = "steps")]
    lift: Option<String>,
    /// An id of your own (32 hexadecimal digits): repeating the command with it does nothing
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

#[derive(Debug, Serialize)]
struct QuarantineReport {
    root: String,
    watermark: Step,
    /// Steps in the stream.
    steps: Step,
    /// With a range or --lift: the change.
    change: Option<Change>,
    quarantines: Vec<QuarantineStatus>,
}

#[derive(Debug, Serialize)]
struct Change {
    quarantine: RequestId,
    lifted: bool,
    /// The version that changed it; `None` when there was nothing to change.
    version: Option<Version>,
}

#[derive(Debug, Serialize)]
struct QuarantineStatus {
    #[serde(flatten)]
    state: QuarantineState,
    /// The newest attempt of each job, and whether it reads the steps.
    readers: Vec<Reader>,
}

pub(crate) async fn run(args: &QuarantineArgs, context: &Context) -> Result<Exit, CliError> {
    let mut log = context.log().await?;
    let change = match (args.steps, &args.lift) {
        (Some(steps), _) => Some(add(args, steps, &mut log).await?),
        (None, Some(id)) => Some(lift(args, id, &mut log).await?),
        (None, None) => None,
    };
    let objects = log.job_objects().await?;
    let m = log.manifest();
    let jobs = job_status::of_open_jobs(m, Some(&objects));
    let shown = |state: &QuarantineState| QuarantineStatus {
        state: state.clone(),
        readers: jobs.iter().filter_map(|job| job.reader(state)).collect(),
    };
    let report = QuarantineReport {
        root: log.store().root().to_owned(),
        watermark: m.watermark(),
        steps: m.next_step(),
        change,
        quarantines: m.quarantines().iter().map(shown).collect(),
    };
    context.done(&report, render)
}

async fn add(args: &QuarantineArgs, steps: StepRange, log: &mut Log) -> Result<Change, CliError> {
    let request = admin::request(args.request, log);
    let entry = Entry::Quarantined(Quarantined {
        request,
        first: steps.first,
        last: steps.last,
        reason: args.reason.clone().unwrap_or_default(),
    });
    let version = admin::commit(log, "quarantine", |m| {
        Ok(in_force(m, steps).is_none().then(|| entry.clone()))
    })
    .await?;
    let quarantine = in_force(log.manifest(), steps).map_or(request, |q| q.id);
    Ok(Change {
        quarantine,
        lifted: false,
        version,
    })
}

/// Returns the quarantine of the same range that is in force.
fn in_force(m: &Manifest, steps: StepRange) -> Option<&QuarantineState> {
    let mut in_force = m.quarantines().iter().filter(|q| q.lifted.is_none());
    in_force.find(|q| (q.first, q.last) == (steps.first, steps.last))
}

async fn lift(args: &QuarantineArgs, id: &str, log: &mut Log) -> Result<Change, CliError> {
    let quarantine = find(log.manifest(), id)?;
    let entry = Entry::QuarantineLifted(QuarantineLifted {
        request: admin::request(args.request, log),
        quarantine,
    });
    let version = admin::commit(log, "quarantine", |m| {
        let mut lifted = m.quarantines().iter().filter(|q| q.lifted.is_some());
        let done = lifted.any(|q| q.id == quarantine);
        Ok((!done).then(|| entry.clone()))
    })
    .await?;
    Ok(Change {
        quarantine,
        lifted: true,
        version,
    })
}

/// Returns the only quarantine whose id begins with `id`.
fn find(m: &Manifest, id: &str) -> Result<RequestId, CliError> {
    let mut found = m.quarantines().to_vec();
    found.retain(|q| q.id.to_string().starts_with(id));
    match found.as_slice() {
        [one] => Ok(one.id),
        // A script that repeats a lift passes the whole id, and the lifted quarantine may be forgotten.
        [] => id.parse().map_err(|_| {
            CliError::Absent(format!(
                "no quarantine has an id that begins with {id:?}; `batchweave quarantine` lists them"
            ))
        }),
        several => Err(CliError::Usage(format!(
            "--lift {id}: {} quarantines have ids that begin so; write more digits",
            several.len()
        ))),
    }
}

fn render(report: &QuarantineReport, style: Style) -> String {
    match &report.change {
        Some(change) => changed(report, change, style),
        None if report.quarantines.is_empty() => "nothing is quarantined".to_owned(),
        None => listing(report, style),
    }
}

fn changed(report: &QuarantineReport, change: &Change, style: Style) -> String {
    let by = admin::by_version(change.version);
    let id = change.quarantine;
    let Some(shown) = report.quarantines.iter().find(|s| s.state.id == id) else {
        let is = if change.lifted { "is" } else { "was" };
        return style.green(&format!("quarantine {id} {is} lifted, {by}"));
    };
    let state = &shown.state;
    let steps = describe::steps(state.first, state.last);
    let (what, at) = match state.lifted {
        Some(at) => ("no longer quarantined", at),
        None => ("quarantined", state.added),
    };
    let mut text = style.green(&format!("{steps}: {what}, {by} (id {id})"));
    let _ = write!(
        text,
        "\ncounts for attempts that are opened after version {at}"
    );
    for reader in &shown.readers {
        let does = match (reader.does, state.lifted) {
            ("has passed", _) => "has read them already",
            ("reads", None) => "still reads them: restart it from a checkpoint to pass over them",
            ("reads", Some(_)) => "reads them",
            _ => "passes over them",
        };
        let _ = write!(text, "\n{} {does}", reader.attempt_text());
    }
    text.push_str(&outside(report, state));
    text
}

/// Notes that the steps are reclaimed already or do not exist yet; both may be intended.
fn outside(report: &QuarantineReport, state: &QuarantineState) -> String {
    let (watermark, steps) = (report.watermark, report.steps);
    if state.last < watermark {
        format!(
            "\nall of them are below the watermark {watermark}: no attempt starts there any more"
        )
    } else if state.last >= steps {
        let so_far = count(steps, "step");
        format!("\nthe stream has {so_far} so far; the quarantine holds for later ones too")
    } else {
        String::new()
    }
}

fn listing(report: &QuarantineReport, style: Style) -> String {
    let row = |shown: &QuarantineStatus| {
        let state = &shown.state;
        let id = format!("{:.8}", state.id.to_string());
        let steps = range(state.first, state.last.saturating_add(1));
        let readers = shown
            .readers
            .iter()
            .map(|r| format!("{}/{} {}", r.job, r.attempt, r.does));
        let (lifted, readers) = (or_dash(state.lifted), joined(readers, "-"));
        cells![id, steps, state.added, lifted, readers, state.reason]
    };
    let header = ["ID", "STEPS", "ADDED", "LIFTED", "READERS", "REASON"];
    table(style, &header, report.quarantines.iter().map(row))
}
