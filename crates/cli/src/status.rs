//! `batchweave status`: where a stream stands, from the folded log.

mod commits;

use batchweave_core::ids::{Epoch, ProducerName, Seq, Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::{JobState, MixtureState, QuarantineState};
use batchweave_core::stream::{Order, StreamConfig};
use batchweave_daemon::Exit;
use batchweave_store::Store;
use serde::Serialize;

use crate::as_of::AsOf;
use crate::context::{self, Context};
use crate::error::CliError;
use crate::output::{Style, bytes, count, fields, range, table};
use commits::Commits;

const EXAMPLES: &str = "\
Examples:
  batchweave status --store s3://bucket/stream
  batchweave status --store file:///data/stream --at 120
  batchweave status --json | jq .head.steps";

/// Arguments of `batchweave status`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Show the state after this version instead of the newest
    #[arg(long, value_name = "VERSION")]
    at: Option<Version>,
}

/// The folded state, in the words of the log.
#[derive(Debug, Serialize)]
struct Report {
    root: String,
    stream: StreamConfig,
    head: Head,
    commits: Commits,
    watermark: Step,
    /// The step that ends the stream, once that is decided.
    end: Option<Step>,
    sealed: bool,
    producers: Vec<Producer>,
    awaited_lane: Option<ProducerName>,
    /// The version that gave it the turn.
    awaited_since: Option<Version>,
    /// TGBs that are committed and wait for their lane's turn.
    waiting: usize,
    jobs: Vec<Job>,
    quarantines: Vec<QuarantineState>,
    mixture: MixtureState,
    void_entries: u64,
    void_records: u64,
    snapshots: Vec<Snapshot>,
}

#[derive(Debug, Serialize)]
struct Head {
    /// The newest version; none before the first commit.
    version: Option<Version>,
    /// How many steps there are; the newest is one less.
    steps: Step,
}

#[derive(Debug, Serialize)]
struct Producer {
    name: ProducerName,
    state: &'static str,
    epoch: Epoch,
    next_seq: Seq,
    instance: Option<String>,
    opened: Option<Version>,
}

#[derive(Debug, Serialize)]
struct Job {
    name: String,
    #[serde(flatten)]
    state: JobState,
}

#[derive(Debug, Serialize)]
struct Snapshot {
    version: Version,
    bytes: u64,
}

pub(crate) async fn run(args: &StatusArgs, context: &Context) -> Result<Exit, CliError> {
    let store = context.store(false).await?;
    let log = match args.at {
        None => context::open_log(store).await?,
        Some(at) => context::open_log(AsOf::new(store, at.saturating_add(1))).await?,
    };
    let next = log.manifest().next_version();
    if let Some(at) = args.at.filter(|&at| next <= at) {
        let newest = next
            .checked_sub(1)
            .map_or("none".to_owned(), |v| v.to_string());
        let root = log.store().root();
        return Err(CliError::Absent(format!(
            "version {at} of {root} is not written yet: the newest is {newest}"
        )));
    }
    let snapshots = snapshots(log.store().as_ref()).await?;
    let commits = commits::newest(log.store().as_ref(), next).await?;
    let report = gather(log.store().root(), log.manifest(), snapshots, commits);
    context.out.report(&report, render)?;
    Ok(Exit::Ok)
}

async fn snapshots(store: &dyn Store) -> Result<Vec<Snapshot>, CliError> {
    let listed = context::list(store, keys::SNAPSHOTS).await?;
    let snapshot = |object: batchweave_store::ObjectMeta| {
        let version = keys::snapshot_version(&object.key)?;
        Some(Snapshot {
            version,
            bytes: object.size,
        })
    };
    Ok(listed.into_iter().filter_map(snapshot).collect())
}

fn gather(root: &str, m: &Manifest, snapshots: Vec<Snapshot>, commits: Commits) -> Report {
    let job = |(name, state): (&batchweave_core::ids::JobName, &JobState)| Job {
        name: name.to_string(),
        state: state.clone(),
    };
    Report {
        root: root.to_owned(),
        stream: m.stream().clone(),
        head: Head {
            version: m.next_version().checked_sub(1),
            steps: m.next_step(),
        },
        commits,
        watermark: m.watermark(),
        end: m.end(),
        sealed: m.sealed(),
        producers: producers(m),
        awaited_lane: m.awaited_lane().cloned(),
        awaited_since: m.awaited().map(|awaited| awaited.since),
        waiting: m.waiting(),
        jobs: m.jobs().iter().map(job).collect(),
        quarantines: m.quarantines().to_vec(),
        mixture: m.mixture().clone(),
        void_entries: m.void_entries(),
        void_records: m.void_records(),
        snapshots,
    }
}

/// Those that were opened, then those that stream.json names and nobody opened yet.
fn producers(m: &Manifest) -> Vec<Producer> {
    let opened = m.producers().map(|(name, state)| Producer {
        name: name.clone(),
        state: match (state.finished, state.retired) {
            (true, _) => "finished",
            (_, true) => "retired",
            _ => "open",
        },
        epoch: state.epoch,
        next_seq: state.next_seq,
        instance: Some(state.instance.clone()),
        opened: Some(state.opened),
    });
    let named = m.stream().producers.iter();
    let absent = named
        .filter(|name| m.producer(name).is_none())
        .map(|name| Producer {
            name: name.clone(),
            state: "not opened",
            epoch: 0,
            next_seq: 0,
            instance: None,
            opened: None,
        });
    opened.chain(absent).collect()
}

/// What a stream is, as lines; `init` prints them too.
pub(crate) fn stream_rows(root: &str, stream: &StreamConfig) -> Vec<(&'static str, String)> {
    let tokens =
        u64::from(stream.slices) * u64::from(stream.rows_per_slice) * u64::from(stream.seq_len);
    let names: Vec<_> = stream.producers.iter().map(ProducerName::as_str).collect();
    let order = match (stream.order, names.is_empty()) {
        (Order::Arrival, true) => "arrival; any producer; ends with a seal".to_owned(),
        (Order::Arrival, false) if names.len() == 1 => {
            format!("arrival; ends when {} has finished", names[0])
        }
        (Order::Arrival, false) => format!("arrival; ends when {} have finished", names.join(", ")),
        (Order::Lanes, _) => format!("lanes in turn: {}", names.join(", ")),
    };
    vec![
        ("root", root.to_owned()),
        (
            "stream",
            format!("{}, created {}", stream.stream_id, stream.created),
        ),
        (
            "batch",
            format!(
                "{} x {} x {} tokens = {tokens} tokens a step",
                count(stream.slices.into(), "slice"),
                count(stream.rows_per_slice.into(), "row"),
                stream.seq_len
            ),
        ),
        (
            "tokenizer",
            format!(
                "{}, {}",
                stream.tokenizer.name, stream.tokenizer.fingerprint
            ),
        ),
        ("order", order),
    ]
}

fn render(report: &Report, style: Style) -> String {
    let mut text = fields(&rows(report, style));
    text.push('\n');
    text.push_str(&producer_table(report, style));
    if !report.jobs.is_empty() {
        text.push('\n');
        text.push_str(&job_table(report, style));
    }
    for q in &report.quarantines {
        let steps = range(q.first, q.last.saturating_add(1));
        let lifted = q
            .lifted
            .map_or(String::new(), |v| format!(", lifted at version {v}"));
        text.push_str(&style.yellow(&format!(
            "\nquarantine  steps {steps}: {}{lifted}",
            q.reason
        )));
    }
    text
}

fn rows(report: &Report, style: Style) -> Vec<(&'static str, String)> {
    let mut rows = stream_rows(&report.root, &report.stream);
    let version = report
        .head
        .version
        .map_or("no commit yet".to_owned(), |v| format!("version {v}"));
    let steps = report.head.steps;
    let held = match range(0, steps).as_str() {
        "none" => String::new(),
        held => format!(" ({held})"),
    };
    rows.push(("head", format!("{version}; {}{held}", count(steps, "step"))));
    rows.push(("commits", report.commits.text()));
    rows.push((
        "watermark",
        match report.watermark {
            0 => "0: every step can be read".to_owned(),
            w => format!("{w}: older steps may be gone"),
        },
    ));
    rows.push((
        "end",
        match (report.end, report.sealed) {
            (Some(end), true) => format!("sealed at step {end}"),
            (Some(end), false) => format!("all producers have finished: {}", count(end, "step")),
            (None, _) => "open".to_owned(),
        },
    ));
    if let Some(lane) = &report.awaited_lane {
        let since = report.awaited_since.unwrap_or_default();
        let waiting = count(report.waiting as u64, "TGB");
        rows.push((
            "next lane",
            format!("{lane}, since version {since}; {waiting} of other lanes wait for it"),
        ));
    }
    if report.mixture.id > 0 {
        rows.push(("mixture", report.mixture.id.to_string()));
    }
    let snapshots = report.snapshots.iter();
    let snapshots: Vec<_> = snapshots
        .map(|s| format!("{} ({})", s.version, bytes(s.bytes)))
        .collect();
    let snapshots = if snapshots.is_empty() {
        "none".to_owned()
    } else {
        snapshots.join(", ")
    };
    rows.push(("snapshots", snapshots));
    let (entries, records) = (report.void_entries, report.void_records);
    if entries + records > 0 {
        let text = format!(
            "{}, {}: a writer is faulty; `batchweave log --from 0` shows which",
            count(entries, "entry"),
            count(records, "whole record")
        );
        rows.push(("void", style.red(&text)));
    }
    rows
}

fn producer_table(report: &Report, style: Style) -> String {
    if report.producers.is_empty() {
        return "no producer was opened yet\n".to_owned();
    }
    let dash = || "-".to_owned();
    let rows: Vec<Vec<String>> = report
        .producers
        .iter()
        .map(|p| {
            vec![
                p.name.to_string(),
                p.state.to_owned(),
                p.epoch.to_string(),
                p.next_seq.to_string(),
                p.opened.map_or_else(dash, |v| v.to_string()),
                p.instance.clone().unwrap_or_else(dash),
            ]
        })
        .collect();
    let header = [
        "PRODUCER",
        "STATE",
        "EPOCH",
        "NEXT SEQ",
        "OPENED AT",
        "INSTANCE",
    ];
    table(style, &header, &rows)
}

fn job_table(report: &Report, style: Style) -> String {
    let yes = |b: bool| if b { "yes" } else { "no" }.to_owned();
    let rows: Vec<Vec<String>> = report
        .jobs
        .iter()
        .map(|Job { name, state }| {
            vec![
                format!("{name}@{}", state.opened),
                state.start.to_string(),
                state.attempts.len().to_string(),
                state
                    .attempts
                    .last()
                    .map_or("-".to_owned(), |a| a.start.to_string()),
                yes(state.holds),
                yes(state.paces),
            ]
        })
        .collect();
    let header = ["JOB", "START", "ATTEMPTS", "NEWEST FROM", "HOLDS", "PACES"];
    table(style, &header, &rows)
}
