//! `batchweave status`: the state of a stream, from the folded log.

mod commits;
mod render;
mod watch;

use batchweave_core::ids::{Epoch, ProducerName, Seq, Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::{MixtureState, QuarantineState};
use batchweave_core::stream::{StreamConfig, StreamOrder};
use batchweave_daemon::Exit;
use batchweave_daemon::config::Period;
use batchweave_store::Store;
use serde::Serialize;

use crate::as_of::AsOf;
use crate::context::{self, Context};
use crate::error::CliError;
use crate::job_status::{self, JobStatus, ObjectsByJob, ReclaimStatus};
use crate::output::count;
use commits::Commits;

const EXAMPLES: &str = "\
Examples:
  batchweave status --store s3://bucket/stream
  batchweave status --store file:///data/stream --at 120
  batchweave status --json | jq .head.steps
  batchweave status --watch --every 10s";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Show the state after this version instead of the newest
    #[arg(long, value_name = "VERSION")]
    at: Option<Version>,
    /// Repeat until the stream has ended; with --json one object per line
    #[arg(long, conflicts_with = "at")]
    watch: bool,
    /// With --watch: interval between updates
    #[arg(long, value_name = "TIME", default_value = "2s", requires = "watch")]
    every: Period,
}

/// The folded state, with the field names of the log.
#[derive(Debug, Serialize)]
struct StatusReport {
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
    /// The version since which that lane is awaited.
    awaited_since: Option<Version>,
    /// Committed TGBs that wait for their lane's turn.
    waiting: usize,
    jobs: Vec<JobStatus>,
    /// The reason why the watermark stays where it is; `None` for past states.
    reclaim: Option<ReclaimStatus>,
    quarantines: Vec<QuarantineState>,
    mixture: MixtureState,
    void_entries: u64,
    void_records: u64,
    snapshots: Vec<Snapshot>,
}

#[derive(Debug, Serialize)]
struct Head {
    /// The newest version; `None` before the first commit.
    version: Option<Version>,
    /// Steps in the stream; the newest step is one less.
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
struct Snapshot {
    version: Version,
    bytes: u64,
}

pub(crate) async fn run(args: &StatusArgs, context: &Context) -> Result<Exit, CliError> {
    let store = context.store(false).await?;
    if args.watch {
        return watch::run(store, args.every.0, context).await;
    }
    let mut log = match args.at {
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
    // Marks and progress describe the present only.
    let objects = match args.at {
        None => Some(job_status::read_objects(&mut log).await?),
        Some(_) => None,
    };
    let mut report = gather(log.store().root(), log.manifest(), objects.as_ref());
    report.snapshots = snapshots(log.store().as_ref()).await?;
    report.commits = commits::newest(log.store().as_ref(), next).await?;
    context.out.report(&report, render::render)?;
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

fn gather(root: &str, m: &Manifest, objects: Option<&ObjectsByJob>) -> StatusReport {
    StatusReport {
        root: root.to_owned(),
        stream: m.stream().clone(),
        head: Head {
            version: m.next_version().checked_sub(1),
            steps: m.next_step(),
        },
        commits: Commits::default(),
        watermark: m.watermark(),
        end: m.end(),
        sealed: m.sealed(),
        producers: producers(m),
        awaited_lane: m.awaited_lane().cloned(),
        awaited_since: m.awaited().map(|awaited| awaited.since),
        waiting: m.waiting(),
        jobs: job_status::of_open_jobs(m, objects),
        reclaim: objects.map(|objects| ReclaimStatus::new(m, objects)),
        quarantines: m.quarantines().to_vec(),
        mixture: m.mixture().clone(),
        void_entries: m.void_entries(),
        void_records: m.void_records(),
        snapshots: Vec::new(),
    }
}

/// Returns the producers that were opened, then those that stream.json names and no instance opened yet.
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

/// Returns the parameters of a stream as lines; `init` prints them too.
pub(crate) fn stream_rows(root: &str, stream: &StreamConfig) -> Vec<(&'static str, String)> {
    let tokens =
        u64::from(stream.slices) * u64::from(stream.rows_per_slice) * u64::from(stream.seq_len);
    let names: Vec<_> = stream.producers.iter().map(ProducerName::as_str).collect();
    let order = match (stream.order, names.is_empty()) {
        (StreamOrder::Arrival, true) => "arrival; any producer; ends with a seal".to_owned(),
        (StreamOrder::Arrival, false) if names.len() == 1 => {
            format!("arrival; ends when {} has finished", names[0])
        }
        (StreamOrder::Arrival, false) => {
            format!("arrival; ends when {} have finished", names.join(", "))
        }
        (StreamOrder::Lanes, _) => format!("lanes in turn: {}", names.join(", ")),
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
                "{} x {} x {} tokens = {tokens} tokens per step",
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
