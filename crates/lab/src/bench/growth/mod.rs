//! `bench commit-growth`: the cost of a commit late in a long log, compared with an early one; of opening it, and of a fork.

mod delayed;
mod forked;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_core::limits::SEGMENT_STEPS;
use batchweave_log::{Located, Log, LogOptions};
use batchweave_store::Store;
use batchweave_store::counting::Counted;
use batchweave_store::memory::MemoryStore;
use clap::Args;
use serde::Serialize;
use tokio::time::Instant;

use super::cpu::thread_time;
use crate::error::bench_error;
use delayed::{Delay, Delayed};
use forked::Forked;
use stream::Growing;

/// The version at which the early window begins: the first snapshot and segment that the hundredth
/// commit has a share in are written within the window, as in every later window.
const EARLY: Version = 300;
/// Commits between two points at which snapshots and segments are equally far.
const PERIOD: u64 = SEGMENT_STEPS;
const PERIODS_MAX: u64 = 32;
/// Duration of a request when rounds are counted.
const ROUND: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Args)]
pub(crate) struct GrowthArgs {
    /// Number of versions in the log
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(8192..=4_000_000))]
    versions: u64,
    /// Readers to open, one after another, to measure the time to the first batch
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    openings: u64,
    /// Seed of the latencies
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A commit's cost, averaged over a window of the log, with its share of snapshots and segments.
#[derive(Debug, Clone, Serialize)]
struct Window {
    first_version: Version,
    commits: u64,
    requests_per_commit: f64,
    bytes_per_commit: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct GrowthReport {
    versions: u64,
    steps: u64,
    producers: u32,
    record_bytes: u64,
    snapshot_bytes: u64,
    early: Window,
    late: Window,
    requests_ratio: f64,
    bytes_ratio: f64,
    #[serde(flatten)]
    opened: Opened,
    fork: Forked,
    /// Seconds to open, locate an old step and read a slice of it: the slowest opening.
    first_batch_seconds: f64,
    first_batch_p50_seconds: f64,
    openings: u64,
    seed: u64,
}

pub(crate) async fn measure(args: &GrowthArgs) -> Result<GrowthReport, CliError> {
    let memory: Arc<dyn Store> = MemoryStore::new();
    let counted = Counted::new(Arc::clone(&memory));
    let store: Arc<dyn Store> = Arc::new(counted.clone());
    let periods = (args.versions / 4 / PERIOD).clamp(1, PERIODS_MAX);
    let late = EARLY + (args.versions - periods * PERIOD - EARLY) / PERIOD * PERIOD;
    let asked = asked_versions(EARLY + periods * PERIOD, late);

    let mut growing = Box::pin(Growing::new(&store)).await?;
    growing.grow(EARLY, &asked).await?;
    let early = Window::measure(&mut growing, &counted, EARLY, periods).await?;
    growing.grow(late, &asked).await?;
    let late = Window::measure(&mut growing, &counted, late, periods).await?;
    growing.grow(args.versions, &asked).await?;
    growing.settle().await;

    let opened = open_in_rounds(&memory, asked[3]).await?;
    let fork = forked::near_the_end(&memory, Growing::step(args.versions), args.seed).await?;
    let seconds = open_old_steps(&memory, &asked, args).await?;
    let record_bytes = memory.head(&keys::log(args.versions - 1)).await?.size;
    let snapshots = batchweave_console::context::list(memory.as_ref(), keys::SNAPSHOTS).await?;
    Ok(GrowthReport {
        versions: args.versions,
        steps: Growing::step(args.versions),
        producers: 2,
        record_bytes,
        snapshot_bytes: snapshots.last().map_or(0, |meta| meta.size),
        requests_ratio: late.requests_per_commit / early.requests_per_commit,
        bytes_ratio: late.bytes_per_commit / early.bytes_per_commit,
        early,
        late,
        opened,
        fork,
        first_batch_seconds: seconds.last().copied().unwrap_or_default(),
        first_batch_p50_seconds: seconds[seconds.len() / 2],
        openings: args.openings,
        seed: args.seed,
    })
}

/// Returns the versions whose steps readers request, outside the windows: uploads are not counted.
fn asked_versions(first: Version, last: Version) -> Vec<Version> {
    (1..=8).map(|n| first + (last - first) * n / 9).collect()
}

impl Window {
    /// Grows the stream by `periods` periods, and averages what they cost.
    async fn measure(
        growing: &mut Growing,
        counted: &Counted,
        first_version: Version,
        periods: u64,
    ) -> Result<Self, CliError> {
        let before = counted.counts();
        let commits = periods * PERIOD;
        growing.grow(first_version + commits, &[]).await?;
        let cost = counted.counts().since(&before);
        let bytes = cost.bytes_read() + cost.bytes_written();
        Ok(Self {
            first_version,
            commits,
            requests_per_commit: cost.requests() as f64 / commits as f64,
            bytes_per_commit: bytes as f64 / commits as f64,
        })
    }
}

/// Measures the seconds of each opening at an old step, the shortest first.
async fn open_old_steps(
    memory: &Arc<dyn Store>,
    asked: &[Version],
    args: &GrowthArgs,
) -> Result<Vec<f64>, CliError> {
    let mut seconds = Vec::new();
    for n in 0..args.openings {
        let version = asked[n as usize % asked.len()];
        seconds.push(first_batch(memory, version, args.seed + n).await?);
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

/// The requests of a reader that opens the end of the log.
#[derive(Debug, Serialize)]
struct Opened {
    /// Sequential rounds of requests until it has the head's state.
    open_rounds: u64,
    open_requests: u64,
    open_bytes: u64,
    /// Further rounds until it has located an old step.
    locate_rounds: u64,
}

fn reading() -> LogOptions {
    LogOptions {
        write_snapshots: false,
        ..LogOptions::new([9; 32])
    }
}

/// Every request takes one unit of virtual time, so the time is the number of sequential rounds.
async fn open_in_rounds(memory: &Arc<dyn Store>, version: Version) -> Result<Opened, CliError> {
    let counted = Counted::new(Delayed::over(memory, Delay::Round(ROUND)));
    let start = Instant::now();
    let rounds = || (start.elapsed().as_millis() / ROUND.as_millis()) as u64;
    let mut log = Log::open(Arc::new(counted.clone()), &reading()).await?;
    let (cost, opened) = (counted.counts(), rounds());
    log.locate(Growing::step(version)).await?;
    Ok(Opened {
        open_rounds: opened,
        open_requests: cost.requests(),
        open_bytes: cost.bytes_read(),
        locate_rounds: rounds() - opened,
    })
}

/// Returns the virtual time of the requests and the CPU time of the rest, as if they never overlapped.
async fn first_batch(
    memory: &Arc<dyn Store>,
    version: Version,
    seed: u64,
) -> Result<f64, CliError> {
    let store = Delayed::over(memory, Delay::s3_standard(seed));
    let (start, cpu) = (Instant::now(), thread_time()?);
    let mut log = Log::open(store, &reading()).await?;
    let step = Growing::step(version);
    let Located::At(entry) = log.locate(step).await? else {
        return Err(bench_error(format!("step {step} is not there")));
    };
    let frames = log.read_frames(&entry, 0..1, false).await?;
    if let Some(fault) = frames.iter().find_map(|frame| frame.fault.clone()) {
        return Err(bench_error(format!("step {step}: {fault}")));
    }
    let cpu = thread_time()?.saturating_sub(cpu);
    Ok((start.elapsed() + cpu).as_secs_f64())
}

impl GrowthReport {
    /// Formats the report as text.
    pub(crate) fn text(&self) -> String {
        let row = |window: &Window| {
            format!(
                "{:>21}    {:8.3} {:9.0}",
                window.first_version, window.requests_per_commit, window.bytes_per_commit
            )
        };
        format!(
            "{} versions by {} producers, records of {} bytes, snapshots of {} bytes\n\n\
             a commit from version    requests     bytes\n{}\n{}\n{:>21}    {:8.4} {:9.4}\n\n\
             opening at the end: {} rounds, {} requests, {} bytes; an old step: {} rounds more\n\
             first batch of an old step (s3-standard): {:.3} s at p50, {:.3} s at most, of {} openings\n\
             a fork near the end (s3-standard): {} requests, {} bytes, {:.3} s\n",
            self.versions,
            self.producers,
            self.record_bytes,
            self.snapshot_bytes,
            row(&self.early),
            row(&self.late),
            "ratio",
            self.requests_ratio,
            self.bytes_ratio,
            self.opened.open_rounds,
            self.opened.open_requests,
            self.opened.open_bytes,
            self.opened.locate_rounds,
            self.first_batch_p50_seconds,
            self.first_batch_seconds,
            self.openings,
            self.fork.requests,
            self.fork.bytes,
            self.fork.seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_late_commit_costs_what_an_early_one_did() {
        let args = GrowthArgs {
            versions: 20_000,
            openings: 4,
            seed: 7,
        };
        let report = Box::pin(measure(&args)).await.unwrap();
        let json = serde_json::to_string(&report).unwrap();
        assert!((0.99..=1.01).contains(&report.requests_ratio), "{json}");
        assert!((0.99..=1.01).contains(&report.bytes_ratio), "{json}");
        assert!(report.opened.open_rounds <= 3, "{json}");
        assert!(report.opened.locate_rounds <= 2, "{json}");
        assert!(report.opened.open_requests <= 300, "{json}");
        assert!(report.first_batch_seconds < 2.0, "virtual time, {json}");
        assert!(report.fork.requests <= 1200, "{json}");
        assert!(report.text().contains("ratio"), "{}", report.text());
    }
}
