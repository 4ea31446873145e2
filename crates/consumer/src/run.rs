//! Starting and stopping: the order of both is written here, once.

use std::sync::Arc;
use std::time::Duration;

use batchweave_daemon::admin::{self, Health};
use batchweave_daemon::shutdown;
use batchweave_log::{Log, LogOptions};
use batchweave_store::counting::Counted;
use batchweave_store::{OpenOptions, Store};
use prometheus::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::ConsumerConfig;
use crate::engine::Limits;
use crate::error::RunError;
use crate::follow::{follow, head_of};
use crate::hub::{Hub, Parts};
use crate::listen::{Gate, accept};
use crate::marks;
use crate::memory::Memory;
use crate::metrics::{Metrics, register_store};

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
    let counted = Counted::new(store);
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
    health.not_ready("opening the log");
    let options = LogOptions {
        write_snapshots: false,
        ..LogOptions::new(rand::random())
    };
    let log = Log::open(Arc::new(counted.clone()), &options).await?;

    let parts = Parts {
        stream: log.manifest().stream().clone(),
        instance: rand::random(),
        job: config.job.name.clone(),
        store: Arc::new(counted),
        metrics,
        stop: end.clone(),
        concurrency: config.prefetch.concurrency,
        read_bytes: config.prefetch.read_bytes.bytes(),
        limits: limits(&config),
        memory,
        first_segment,
        grow_after: config.arena.grow_after.0,
    };
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
    tokio::spawn(follow(
        log,
        hub.clone(),
        config.follow.clone(),
        config.prefetch.steps,
    ));
    tokio::spawn(marks::progress(hub.clone()));
    tokio::spawn(report(hub.clone(), health.clone()));
    accept(gate, hub.clone(), tasks.clone(), stop).await;

    health.not_ready("stopping");
    tasks.close();
    // A late drain is logged; ranks mark again after their reconnect.
    let _ = shutdown::drain("checkpoint marks", config.shutdown.deadline.0, tasks.wait()).await;
    tracing::info!("stopped");
    Ok(())
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
