//! Starting and stopping: the order of both is written here, once.

mod open_log;
#[cfg(feature = "simulation")]
pub mod simulation;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::keys;
use batchweave_core::tgb::ranges::with_headers;
use batchweave_daemon::admin;
use batchweave_daemon::health::Health;
use batchweave_daemon::shutdown::unless_stopped;
use batchweave_log::Log;
use batchweave_store::counting::Counted;
use batchweave_store::{OpenOptions, Store};
use prometheus::Registry;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::open_log::open_log;
use self::tasks::{Channels, ORDERS_MAX, Serving, limits};
use crate::config::ConsumerConfig;
use crate::context::Context;
use crate::error::RunError;
use crate::job::attempts::open_job;
use crate::job::deliveries::Deliveries;
use crate::metrics::{Metrics, register};
use crate::node::{Growth, Hub, Parts, Reads, writer};
use crate::reclaimer;
use crate::segments::{self, Memory};
use crate::server::accept::{Gate, accept};
use crate::server::early::{Guest, Lobby};
use crate::status_page::STATUS_PAGE;

const STATUS_PERIOD: Duration = Duration::from_secs(1);

/// Runs the daemon on the store that the configuration names until `stop`.
pub async fn run(config: ConsumerConfig, stop: CancellationToken) -> Result<(), RunError> {
    batchweave_arena::share_heaps();
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let options = OpenOptions {
        endpoint: given(&config.store.endpoint),
        region: given(&config.store.region),
        // Checked with the rest of the configuration.
        encryption: config.store.encryption().unwrap_or_default(),
        low_water: Some(batchweave_arena::receive_low_water),
        ..OpenOptions::default()
    };
    let open = async {
        let store = batchweave_store::open(&config.store.url, &options).await?;
        batchweave_store::probe_read(store.as_ref(), rand::random()).await?;
        Ok::<_, RunError>(store)
    };
    let doing = || format!("an answer of the store {}", config.store.url);
    match unless_stopped(&stop, doing, Box::pin(open)).await {
        Some(store) => run_on(store?, config, stop).await,
        None => Ok(()),
    }
}

/// Runs the daemon on `store`: the entry for tests.
pub async fn run_on(
    store: Arc<dyn Store>,
    config: ConsumerConfig,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let registry = Registry::new();
    let counted = Counted::with_classes(store, &keys::CLASSES);
    let health = Health::default();
    register(&registry, counted.clone(), &health)?;
    let metrics = Arc::new(Metrics::new(&registry)?);
    let reclaims = config.reclaim.enabled;
    let reclaims = reclaims.then(|| reclaimer::Metrics::new(&registry));
    let reclaims = reclaims.transpose()?;
    let end = CancellationToken::new();
    // However this function is left, nothing that it started stays.
    let _end = end.clone().drop_guard();

    // First of all the socket: a second daemon is told that it is one, not that a port is taken.
    let gate = Gate::open(&config.socket)?;
    admin::start(config.admin.listen, registry, &health, &end, STATUS_PAGE)
        .await
        .map_err(RunError::Admin)?;
    segments::check_node(&config.arena).map_err(RunError::NoNumaNode)?;
    let memory = Memory::new(&config.arena).map_err(RunError::ArenaTooLarge)?;
    let first_segment = memory.segment()?;
    let store: Arc<dyn Store> = Arc::new(counted);
    let instance = rand::random();
    let mut lobby = Lobby::default();
    let open = open_all(store.clone(), &config, &instance, &health);
    let open = unless_stopped(&stop, || health.get().1, open);
    let opened = tokio::select! {
        biased;
        opened = open => opened,
        never = lobby.receive(&gate, &health) => match never {},
    };
    let Some(log) = opened.transpose()? else {
        return Ok(());
    };
    if let Some(metrics) = reclaims {
        let (store, table) = (Arc::clone(&store), config.reclaim.clone());
        tokio::spawn(reclaimer::reclaim(store, table, metrics, end.clone()));
    }
    metrics.shape(log.manifest().stream());
    let (deliveries, delivered) = Deliveries::channel(metrics.clone());
    let (orders, ordered) = mpsc::channel(ORDERS_MAX);
    let parts = Parts {
        stream: log.manifest().stream().clone(),
        instance,
        job: config.job.clone(),
        orders,
        deliveries,
        store,
        context: Arc::new(Context::system()),
        metrics,
        stop: end.clone(),
        concurrency: config.prefetch.concurrency,
        read_bytes: with_headers(config.prefetch.read_bytes.bytes()),
        limits: limits(&config, memory.bytes()),
        memory,
        first_segment,
        growth: Growth {
            after: config.arena.grow_after.0,
            ranks: config.arena.ranks,
        },
    };
    let doors = (gate, lobby.into_guests());
    let channels = (ordered, delivered);
    serve((log, channels), parts, doors, &config, &health, stop).await;
    Ok(())
}

/// The log, with the daemon's own job open.
async fn open_all(
    store: Arc<dyn Store>,
    config: &ConsumerConfig,
    instance: &[u8; 16],
    health: &Health,
) -> Result<Log, RunError> {
    let mut log = open_log(store, &config.follow, health).await?;
    if config.job.open {
        health.not_ready(format!("opening job {}", config.job.name));
        open_job(&mut log, &config.job, &writer(instance)).await?;
    }
    Ok(log)
}

/// Serves ranks until `stop`, then drains.
async fn serve(
    (log, channels): (Log, Channels),
    parts: Parts,
    (gate, guests): (Gate, Vec<Guest>),
    config: &ConsumerConfig,
    health: &Health,
    stop: CancellationToken,
) {
    tracing::info!(
        stream = %parts.stream.stream_id,
        head = log.manifest().next_step(),
        watermark = log.manifest().watermark(),
        socket = %config.socket.path.display(),
        "serving"
    );
    let serving = Serving::start(log, channels, parts, config, &stop);
    tokio::spawn(report(serving.hub.clone(), health.clone()));
    accept(
        gate,
        guests,
        serving.hub.clone(),
        serving.tasks.clone(),
        stop,
    )
    .await;

    health.not_ready("stopping");
    serving.end(config.shutdown.deadline.0).await;
    tracing::info!("stopped");
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
        let silent = health.store_failure();
        if let Some(why) = &silent {
            // The log's reader is patient, and says so much later.
            hub.store_fails(Reads::Log, why.clone());
        }
        let state = hub.lock();
        // The lock was to be had, so nothing is stuck behind it.
        health.beat("serving");
        state.gauges();
        let status = state.status();
        if let Some(fault) = &state.log_fault {
            health.not_ready(format!("the log can't be followed: {fault}; {status}"));
        } else if let Some(why) = state.store_failures.values().next() {
            // While nothing at all is answered, the health itself says so.
            // While nothing at all is answered, the health itself says so.
            health.not_ready(match silent {
                Some(_) => status,
                None => format!("the store fails: {why}; {status}"),
            });
        } else {
            health.ready(status);
        }
    }
}
