//! `batchweave status`: the state of a stream, from the folded log, the newest records and the jobs' objects. No
//! data object is read. With --nodes: the state of daemons.
//!
//! - `recent`: the newest records (`commits`), what is in the stream (`totals`) and how fast it grows (`rate`);
//! - `inputs`: producers in their input; `readers`: jobs, and when they run out of steps;
//! - `render`: the summary; `internals`: what `--verbose` adds; `watch`: `--watch`; `view`: the stream for a page;
//! - `nodes`: `--nodes`, from the daemons instead of the store.

mod commits;
mod inputs;
mod internals;
mod nodes;
mod rate;
mod readers;
mod recent;
mod render;
mod totals;
mod view;
mod watch;

pub(crate) use readers::Outlook;
pub(crate) use view::{Fact, JobView, ProducerView, StreamView};
pub(crate) use watch::Watched;

use std::collections::BTreeMap;

use batchweave_console::context::{self, Context};
use batchweave_console::job_status::{self, JobStatus, ObjectsByJob, ReclaimStatus};
use batchweave_console::stream::Head;
use batchweave_console::{CliError, interval};
use batchweave_core::ids::{Epoch, ProducerName, Seq, StageName, Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::stages::StageState;
use batchweave_core::manifest::state::{MixtureState, QuarantineState};
use batchweave_core::stream::StreamConfig;
use batchweave_daemon::Exit;
use batchweave_daemon::config::Period;
use batchweave_log::{AsOf, Log};
use futures::future::LocalBoxFuture;
use serde::Serialize;

use crate::daemons::parse_address;
use commits::Commits;
use inputs::InputStatus;
use rate::Rate;
use readers::{ReaderStatus, Supply};
use recent::Recent;
use totals::Totals;

const EXAMPLES: &str = "\
Examples:
  batchweave status --store s3://bucket/stream
  batchweave status --store file:///data/stream --at 120
  batchweave status --json | jq .head.steps
  batchweave status --watch --every 10s
  batchweave status --verbose                 # the log, terms, snapshots, restart points too
  batchweave status --nodes --watch           # whether the ranks of this node wait, and for what
  batchweave status --nodes 10.0.0.7:9465 10.0.0.8:9465 --json | jq .ranks

Figures marked \"about\" are the newest records' averages times the steps. Shares and rates of nodes are of
the last ten seconds. With --nodes and --json there is one object per daemon and update.";

/// The arguments of `batchweave status`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    /// Show the state after this version instead of the newest
    #[arg(long, value_name = "VERSION")]
    at: Option<Version>,
    /// Also show the state of the log, producers' terms, and what jobs retain
    #[arg(long, short)]
    verbose: bool,
    /// Show what ranks wait for, what is read ahead and how long each stage takes, of the daemons with these admin
    /// endpoints (admin.listen), instead of the stream; without an address of the consumer on this machine
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        num_args = 0..,
        default_missing_value = "127.0.0.1:9465",
        value_parser = parse_address,
        conflicts_with_all = ["at", "verbose"]
    )]
    nodes: Option<Vec<String>>,
    /// Repeat until the stream has ended, or with --nodes until Ctrl-C; with --json one object per line
    #[arg(long, conflicts_with = "at")]
    watch: bool,
    /// With --watch: interval between updates; a number without a unit is seconds
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval, requires = "watch")]
    every: Period,
}

impl StatusArgs {
    /// Returns the admin endpoints of --nodes.
    pub fn nodes(&self) -> Option<&[String]> {
        self.nodes.as_deref()
    }
}

/// The folded state, with the field names of the log.
#[derive(Debug, Serialize)]
struct StatusReport {
    root: String,
    stream: StreamConfig,
    head: Head,
    totals: Totals,
    rate: Rate,
    /// The producers in their input.
    inputs: Vec<InputStatus>,
    /// The open jobs as readers of the stream; empty for past states.
    readers: Vec<ReaderStatus>,
    #[serde(skip)]
    tokens_per_step: f64,
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
    /// The stages, by number; omitted where there is none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    stages: BTreeMap<u64, StageState>,
    void_entries: u64,
    void_records: u64,
    snapshots: Vec<Snapshot>,
}

#[derive(Debug, Serialize)]
struct Producer {
    name: ProducerName,
    state: &'static str,
    epoch: Epoch,
    next_seq: Seq,
    /// The stage of its next batch; omitted for the shape of stream.json.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<StageName>,
    instance: Option<String>,
    opened: Option<Version>,
}

#[derive(Debug, Serialize)]
struct Snapshot {
    version: Version,
    bytes: u64,
}

/// Shows the state of a stream, or of nodes.
pub fn run<'a>(
    args: &'a StatusArgs,
    context: &'a Context,
) -> LocalBoxFuture<'a, Result<Exit, CliError>> {
    Box::pin(async move {
        if let Some(nodes) = args.nodes() {
            return nodes::run(nodes, args, context).await;
        }
        if args.watch {
            let store = context.polled_store(false).await?;
            return watch::run(store, args, context).await;
        }
        let store = context.store(false).await?;
        let mut log = match args.at {
            None => context::open_log(store).await?,
            Some(at) => context::open_log(AsOf::new(store, at.saturating_add(1))).await?,
        };
        let next = log.manifest().next_version();
        if let Some(at) = args.at.filter(|&at| next <= at) {
            let newest = Head::from_manifest(log.manifest()).newest();
            let root = log.store().root();
            return Err(CliError::Absent(format!(
                "version {at} of {root} is not written yet: the newest is {newest}"
            )));
        }
        // Marks and progress describe the present only.
        let objects = match args.at {
            None => Some(log.job_objects().await?),
            Some(_) => None,
        };
        let recent = Recent::read(&mut log).await?;
        let report = gather(&log, objects.as_ref(), &recent).await?;
        let verbose = args.verbose;
        context.done(&report, |report, style| {
            render::render(report, verbose, style)
        })
    })
}

async fn gather(
    log: &Log,
    objects: Option<&ObjectsByJob>,
    recent: &Recent,
) -> Result<StatusReport, CliError> {
    let (store, m) = (log.store().as_ref(), log.manifest());
    let listed = context::list(store, keys::SNAPSHOTS).await?.into_iter();
    let snapshots = listed.filter_map(|object| {
        let version = keys::snapshot_version(&object.key)?;
        let bytes = object.size;
        Some(Snapshot { version, bytes })
    });
    let (jobs, rate) = (job_status::of_open_jobs(m, objects), recent.rate());
    let supply = Supply {
        steps: m.next_step(),
        end: m.end(),
        rate: rate.now(),
    };
    let readers = match objects {
        Some(_) => readers::all(store, &jobs, supply).await,
        None => Vec::new(),
    };
    Ok(StatusReport {
        root: store.root().to_owned(),
        stream: m.stream().clone(),
        head: Head::from_manifest(m),
        totals: recent
            .per_step
            .times(m.next_step() - m.stream().first_step()),
        rate,
        inputs: inputs::places(store, m).await,
        readers,
        tokens_per_step: recent.per_step.tokens(),
        commits: recent.records.sums,
        watermark: m.watermark(),
        end: m.end(),
        sealed: m.sealed(),
        producers: producers(m),
        awaited_lane: m.awaited_lane().cloned(),
        awaited_since: m.awaited().map(|awaited| awaited.since),
        waiting: m.waiting(),
        jobs,
        reclaim: objects.map(|objects| ReclaimStatus::new(m, objects)),
        quarantines: m.quarantines().to_vec(),
        mixture: m.mixture().clone(),
        stages: m.stages().all.clone(),
        void_entries: m.void_entries(),
        void_records: m.void_records(),
        snapshots: snapshots.collect(),
    })
}

/// Returns the producers that were opened, then those that stream.json names and no instance opened yet.
fn producers(m: &Manifest) -> Vec<Producer> {
    let stage = |name: &ProducerName, seq| m.stage_of(name, seq).map(|stage| stage.name.clone());
    let opened = m.producers().map(|(name, state)| Producer {
        name: name.clone(),
        state: match (state.finished, state.retired) {
            (true, _) => "finished",
            (_, true) => "retired",
            _ => "open",
        },
        epoch: state.epoch,
        next_seq: state.next_seq,
        stage: stage(name, state.next_seq),
        instance: Some(state.instance.clone()),
        opened: Some(state.opened),
    });
    let mut absent = m.stream().producers.clone();
    absent.retain(|name| m.producer(name).is_none());
    let unopened = absent.into_iter().map(|name| Producer {
        stage: stage(&name, 0),
        name,
        state: "not opened",
        epoch: 0,
        next_seq: 0,
        instance: None,
        opened: None,
    });
    opened.chain(unopened).collect()
}
