//! Runs nodes and a writer: all open without request limits, then the writer commits and the reads are
//! counted.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::keys;
use batchweave_core::stream::StreamOrder;
use bytes::Bytes;
use tokio::sync::watch;

use super::shared::Shared;
use super::{FollowPlan, Followed, node, writer};
use crate::store::SimStore;
use crate::store::busy::Second;
use crate::store::link::LinkPlan;
use crate::store::manifest::ManifestPlan;
use crate::store::outcome::Rates;
use crate::store::settings::{KEY_BYTES_MAX, Keep, Settings};
use crate::time::{Timeline, run as run_time};
use crate::world::shared::stream;

/// The settling time before the measured time.
const SETTLE: Duration = Duration::from_secs(30);

/// Runs the plan and measures it.
pub fn run(plan: &FollowPlan) -> std::io::Result<Followed> {
    let plan = *plan;
    run_time(|time| drive(plan, time))?
}

/// Creates the store of the world, with a stream of one slice per node.
fn store_with_stream(plan: &FollowPlan, time: Timeline) -> Arc<SimStore> {
    let settings = Settings {
        seed: plan.seed,
        profile: plan.profile,
        rates: Rates::default(),
        link: LinkPlan::default(),
        calm_at: Duration::ZERO,
        key_bytes_max: KEY_BYTES_MAX,
        manifest: ManifestPlan::default(),
        keep: Keep::Records,
    };
    let store = SimStore::new(time, settings);
    let mut stream = stream(plan.seed, StreamOrder::Arrival, Vec::new());
    stream.slices = plan.nodes;
    store.put_now(keys::STREAM, Bytes::from(stream.to_json()));
    store.lift_limits();
    store
}

async fn drive(plan: FollowPlan, time: Timeline) -> std::io::Result<Followed> {
    let store = store_with_stream(&plan, time);
    let (send, begin) = watch::channel(None);
    let shared = Arc::new(Shared::new(plan, Arc::clone(&store), begin));
    writer::open_attempt(&shared)
        .await
        .map_err(std::io::Error::other)?;
    let writing = tokio::spawn(writer::produce(Arc::clone(&shared)));
    let nodes: Vec<_> = (0..plan.nodes)
        .map(|n| tokio::spawn(node::live(Arc::clone(&shared), n)))
        .collect();
    while shared.opened_count() < plan.nodes {
        time.sleep(Duration::from_millis(10)).await;
    }
    let begin = Duration::from_secs(time.now().as_secs() + 2);
    time.sleep_until(begin).await;
    store.limits_begin();
    send.send_replace(Some(begin));
    let counted = [
        begin + SETTLE,
        begin + SETTLE + Duration::from_secs(plan.seconds),
    ];
    time.sleep_until(counted[0]).await;
    let before = (log_reads(&store), store.throttled());
    time.sleep_until(counted[1]).await;
    let after = (log_reads(&store), store.throttled());
    writing.abort();
    // Waits until the last records are known to all nodes.
    time.sleep(SETTLE).await;
    nodes.iter().for_each(tokio::task::JoinHandle::abort);
    let counts = [after.0 - before.0, after.1 - before.1];
    Ok(measure(&shared, counted, counts))
}

/// Reads of records and of bundles of them.
fn log_reads(store: &SimStore) -> u64 {
    let counts = store.counts();
    let reads = |class| counts.get(&("get", class)).map_or(0, |c| c.http);
    reads("log") + reads("index")
}

fn measure(shared: &Shared, measured: [Duration; 2], [log_reads, throttled]: [u64; 2]) -> Followed {
    let (plan, store) = (&shared.plan, &shared.store);
    let landed: Vec<_> = store
        .landed()
        .iter()
        .filter(|l| l.key.starts_with(keys::LOG))
        .map(|l| l.at)
        .collect();
    let counts = |at: &Duration| *at >= measured[0] && *at < measured[1];
    let state = shared.state();
    let known = state.known.iter().filter_map(|(version, at)| {
        let created = landed.get(*version as usize).filter(|at| counts(at))?;
        Some(at.saturating_sub(*created))
    });
    let mut took: Vec<_> = known.collect();
    took.sort_unstable();
    let quantile = |q: f64| quantile_ms(&took, q);
    let seconds = measured.map(|at| at.as_secs() as usize);
    let reads = store.reads_by_second();
    let counted: Vec<_> = reads
        .into_iter()
        .skip(seconds[0])
        .take(seconds[1] - seconds[0])
        .collect();
    let busiest = counted.iter().map(|second| second.busiest);
    let peak = |prefix| {
        let of = |second: &Second| second.prefixes.get(prefix).copied().unwrap_or_default();
        counted.iter().map(of).max().unwrap_or_default()
    };
    let span = plan.seconds as f64;
    Followed {
        nodes: plan.nodes,
        lead: plan.lead,
        aware: plan.aware,
        profile: plan.profile.name,
        steps: landed.iter().filter(|at| counts(at)).count() as u64,
        busiest_key_per_second: busiest.clone().sum::<u64>() as f64 / span,
        busiest_key_peak: busiest.max().unwrap_or_default(),
        log_reads_per_second: log_reads as f64 / span,
        records_peak: peak("log"),
        bundles_peak: peak("index"),
        throttled,
        deliveries: took.len() as u64,
        delivery_p50_ms: quantile(0.5),
        delivery_p99_ms: quantile(0.99),
        delivery_max_ms: quantile(1.0),
        seed: plan.seed,
        hash: format!("{:016x}", store.hash()),
    }
}

fn quantile_ms(sorted: &[Duration], q: f64) -> f64 {
    let at = (sorted.len().saturating_sub(1) as f64 * q) as usize;
    sorted.get(at).map_or(0.0, |t| t.as_secs_f64() * 1e3)
}
