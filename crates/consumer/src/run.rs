//! Starting and stopping: the order of both is written here, once.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::keys;
use batchweave_daemon::admin::{self, Health};
use batchweave_daemon::shutdown;
use batchweave_log::{Log, LogError, LogOptions};
use batchweave_store::counting::Counted;
use batchweave_store::{OpenOptions, Store};
use prometheus::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{ConsumerConfig, FollowTable};
use crate::engine::Limits;
use crate::error::RunError;
use crate::follow::{follow, head_of};
use crate::hub::{Hub, Parts};
use crate::listen::{Gate, accept};
use crate::marks;
use crate::memory::Memory;
use crate::metrics::{Metrics, register_store};

/// The stream that is waited for is named again after this.
const TOLD_AGAIN: Duration = Duration::from_mins(1);
const STATUS_PERIOD: Duration = Duration::from_secs(1);

/// Runs the daemon on the store that the configuration names until `stop`.
pub async fn run(config: ConsumerConfig, stop: CancellationToken) -> Result<(), RunError> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let options = OpenOptions {
        endpoint: given(&config.store.endpoint),
        region: given(&config.store.region),
        ..OpenOptions::default()
    };
    let store = batchweave_store::open(&config.store.url, &options).await?;
    batchweave_store::probe_read(store.as_ref(), rand::random()).await?;
    run_on(store, config, stop).await
}

/// Runs the daemon on `store`: the entry for tests.
pub async fn run_on(
    store: Arc<dyn Store>,
    config: ConsumerConfig,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let registry = Registry::new();
    let counted = Counted::with_classes(store, &keys::CLASSES);
    register_store(&registry, counted.clone())?;
    let metrics = Arc::new(Metrics::new(&registry)?);
    let health = Health::default();
    let end = CancellationToken::new();
    // However this function is left, nothing that it started stays.
    let _end = end.clone().drop_guard();

    // First of all the socket: a second daemon is told that it is one, not that a port is taken.
    let gate = Gate::open(&config.socket)?;
    admin::start(config.admin.listen, registry, &health, &end)
        .await
        .map_err(RunError::Admin)?;
    let memory = Memory::new(&config.arena).map_err(RunError::ArenaTooLarge)?;
    let first_segment = memory.segment()?;
    let store: Arc<dyn Store> = Arc::new(counted);
    let opened = open_log(store.clone(), &config.follow, &health, &stop).await?;
    let Some(log) = opened else {
        return Ok(());
    };
    let parts = Parts {
        stream: log.manifest().stream().clone(),
        instance: rand::random(),
        job: config.job.name.clone(),
        store,
        metrics,
        stop: end.clone(),
        concurrency: config.prefetch.concurrency,
        read_bytes: config.prefetch.read_bytes.bytes(),
        limits: limits(&config),
        memory,
        first_segment,
        grow_after: config.arena.grow_after.0,
    };
    serve(log, parts, gate, &config, &health, stop).await;
    Ok(())
}

/// Opens the log; waits for a stream that nobody has made yet. `None` when `stop` came first.
async fn open_log(
    store: Arc<dyn Store>,
    table: &FollowTable,
    health: &Health,
    stop: &CancellationToken,
) -> Result<Option<Log>, RunError> {
    health.not_ready("opening the log");
    let options = LogOptions {
        write_snapshots: false,
        ..LogOptions::new(rand::random())
    };
    let mut told: Option<Instant> = None;
    loop {
        let why = match Log::open(store.clone(), &options).await {
            Ok(log) => return Ok(Some(log)),
            Err(why @ LogError::NoStream { .. }) => why,
            Err(why) => return Err(why.into()),
        };
        health.not_ready(format!("waiting for the stream: {why}"));
        if told.is_none_or(|told| told.elapsed() >= TOLD_AGAIN) {
            tracing::warn!(%why, "waiting for the stream");
            told = Some(Instant::now());
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(table.idle.0) => {}
        }
    }
}

/// Serves ranks until `stop`, then drains.
async fn serve(
    log: Log,
    parts: Parts,
    gate: Gate,
    config: &ConsumerConfig,
    health: &Health,
    stop: CancellationToken,
) {
    let head = head_of(log.manifest());
    tracing::info!(
        stream = %parts.stream.stream_id,
        head = head.next_step,
        watermark = head.watermark,
        socket = %config.socket.path.display(),
        "serving"
    );
    let hub = Hub::new(parts, head);
    let tasks = TaskTracker::new();
    let ahead = config.prefetch.steps;
    tokio::spawn(follow(log, hub.clone(), config.follow.clone(), ahead));
    tokio::spawn(marks::progress(hub.clone()));
    tokio::spawn(report(hub.clone(), health.clone()));
    accept(gate, hub.clone(), tasks.clone(), stop).await;

    health.not_ready("stopping");
    tasks.close();
    // A late drain is logged; ranks mark again after their reconnect.
    let _ = shutdown::drain("checkpoint marks", config.shutdown.deadline.0, tasks.wait()).await;
    tracing::info!("stopped");
}

fn limits(config: &ConsumerConfig) -> Limits {
    let ahead_bytes = config.prefetch.bytes.bytes();
    Limits {
        ahead_bytes,
        refill_bytes: config.prefetch.read_bytes.bytes().min(ahead_bytes / 4),
        steps_ahead: config.prefetch.steps,
        segment_bytes: config.arena.segment_bytes.bytes(),
        arena_bytes: config.arena.bytes.bytes(),
    }
}

/// Keeps gauges and /readyz up to date.
async fn report(hub: Arc<Hub>, health: Health) {
    let mut tick = tokio::time::interval(STATUS_PERIOD);
    loop {
        tokio::select! {
            biased;
            () = hub.stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        let state = hub.lock();
        state.gauges();
        let status = state.status();
        if let Some(fault) = &state.log_fault {
            health.not_ready(format!("the log can't be followed: {fault}; {status}"));
        } else if let Some(why) = state.store_failures.values().next() {
            health.not_ready(format!("the store fails: {why}; {status}"));
        } else {
            health.ready(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use batchweave_store::memory::MemoryStore;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_stream_is_told_in_readyz_and_ends_with_the_daemon() {
        let (health, stop) = (Health::default(), CancellationToken::new());
        let waiting = tokio::spawn({
            let (health, stop) = (health.clone(), stop.clone());
            async move { open_log(MemoryStore::new(), &FollowTable::default(), &health, &stop).await }
        });
        tokio::time::sleep(Duration::from_mins(3)).await;
        let (ready, reason) = health.get();
        assert!(!ready && !waiting.is_finished());
        for part in [
            "waiting for the stream",
            "batchweave init",
            "or start a producer",
        ] {
            assert!(reason.contains(part), "{part} in {reason}");
        }
        stop.cancel();
        assert!(waiting.await.unwrap().unwrap().is_none());
    }
}
