//! Starting and stopping the daemon, in order.
//!
//! `open_log` opens the log, `check` opens what `--check` opens, `tasks` are the tasks beside the socket, `simulation` runs them in the simulator.

mod check;
mod open_log;
pub mod simulation;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::keys;
use batchweave_daemon::admin::{self, Identity};
use batchweave_daemon::health::Health;
use batchweave_daemon::shutdown::unless_stopped;
use batchweave_log::Log;
use batchweave_store::counting::Counted;
use batchweave_store::{OpenOptions, Store};
use futures::future::BoxFuture;
use prometheus::Registry;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::check::check;
use self::open_log::open_log;
use self::tasks::{Channels, LOG_REQUESTS_MAX, Tasks, parts};
use crate::config::ConsumerConfig;
use crate::context::Context;
use crate::error::RunError;
use crate::job::attempts::open_job;
use crate::job::deliveries::Deliveries;
use crate::metrics::{Metrics, register};
use crate::node::{Node, Parts};
use crate::reclaimer;
use crate::resources::{Resources, writer};
use crate::segments::{self, SegmentMaker};
use crate::server::accept::{Acceptor, accept};
use crate::server::connection::PendingConnection;
use crate::server::pending::PendingConnections;
use crate::status_page::STATUS_PAGE;
use crate::store_health::ReadKind;

const STATUS_PERIOD: Duration = Duration::from_secs(1);
/// Time between two returns of freed heap pages, which a burst of connections leaves.
const TRIM_PERIOD: Duration = Duration::from_secs(30);

/// A run of the daemon. Boxed, so that this crate compiles it, once for all programs and tests that await it.
pub type Running = BoxFuture<'static, Result<(), RunError>>;

/// Runs the daemon on the store that the configuration names until `stop`.
pub fn run(config: ConsumerConfig, stop: CancellationToken) -> Running {
    Box::pin(open_and_run(config, stop))
}

async fn open_and_run(config: ConsumerConfig, stop: CancellationToken) -> Result<(), RunError> {
    batchweave_arena::share_heaps();
    let options = OpenOptions {
        low_water: Some(batchweave_arena::receive_low_water),
        await_folder: true,
        ..config.store.options()
    };
    let open = async {
        let store = batchweave_store::open(&config.store.url, &options).await?;
        match batchweave_store::probe_read(store.as_ref(), rand::random()).await {
            Err(why) if !why.is_no_folder() => Err(RunError::from(why)),
            _ => Ok(store),
        }
    };
    let doing = || format!("an answer of the store {}", config.store.url);
    match unless_stopped(&stop, doing, Box::pin(open)).await {
        Some(store) => run_on(store?, config, stop).await,
        None => Ok(()),
    }
}

/// Runs the daemon on `store` until `stop`, for tests.
pub fn run_on(store: Arc<dyn Store>, config: ConsumerConfig, stop: CancellationToken) -> Running {
    Box::pin(run_until_stop(store, config, stop))
}

async fn run_until_stop(
    store: Arc<dyn Store>,
    config: ConsumerConfig,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let registry = Registry::new();
    let counted = Counted::with_classes(store, &keys::CLASSES);
    let health = Health::default();
    register(&registry, counted.clone(), &health)?;
    let metrics = Arc::new(Metrics::new(&registry)?);
    let reclaims = config
        .reclaim
        .enabled
        .then(|| reclaimer::Metrics::new(&registry))
        .transpose()?;
    let end = CancellationToken::new();
    // All tasks end with this function, however it returns.
    let _end = end.clone().drop_guard();

    // The socket is bound first: then the error of a second daemon names it, and not the port.
    let acceptor = Acceptor::open(&config.socket)?;
    start_admin(&config, registry, &health, &end).await?;
    segments::check_node(&config.arena).map_err(RunError::NoNumaNode)?;
    let segments = SegmentMaker::new(&config.arena).map_err(RunError::ArenaTooLarge)?;
    let first_segment = segments.create()?;
    let store: Arc<dyn Store> = Arc::new(counted);
    let instance = rand::random();
    let mut pending = PendingConnections::default();
    let open = open_all(store.clone(), &config, &instance, &health);
    let open = unless_stopped(&stop, || health.get().1, open);
    let opened = tokio::select! {
        biased;
        opened = open => opened,
        never = pending.receive(&acceptor, &health) => match never {},
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
    let (requests, requested) = mpsc::channel(LOG_REQUESTS_MAX);
    let resources = Arc::new(Resources {
        stream: log.manifest().stream().clone(),
        instance,
        store,
        store_health: Arc::default(),
        context: Arc::new(Context::system()),
        metrics,
        states: Arc::default(),
        values: Arc::default(),
        stop: end.clone(),
    });
    let parts = parts(
        resources,
        requests,
        deliveries,
        segments,
        first_segment,
        &config,
    );
    let socket = Listening {
        acceptor,
        pending: pending.into_inner(),
    };
    let channels = (requested, delivered);
    serve(log, channels, parts, socket, &config, &health, stop).await;
    Ok(())
}

async fn start_admin(
    config: &ConsumerConfig,
    registry: Registry,
    health: &Health,
    end: &CancellationToken,
) -> Result<(), RunError> {
    let identity = Identity::new(config.store.url.as_str(), "");
    let listen = config.admin.listen;
    admin::start(listen, registry, health, end, STATUS_PAGE, identity)
        .await
        .map_err(RunError::Admin)?;
    Ok(())
}

/// Opens the log and the daemon's own jobs.
async fn open_all(
    store: Arc<dyn Store>,
    config: &ConsumerConfig,
    instance: &[u8; 16],
    health: &Health,
) -> Result<Log, RunError> {
    let mut log = open_log(store, &config.follow, health).await?;
    let served = config.job.served().iter();
    for name in served.filter(|_| config.job.open) {
        health.not_ready(format!("opening job {name}"));
        open_job(&mut log, name, &config.job, &writer(instance)).await?;
    }
    Ok(log)
}

/// The socket of the ranks, and the connections of ranks that have not been answered yet.
struct Listening {
    acceptor: Acceptor,
    pending: Vec<PendingConnection>,
}

/// Serves ranks until `stop`, then stores what is left.
async fn serve(
    log: Log,
    channels: Channels,
    parts: Parts,
    socket: Listening,
    config: &ConsumerConfig,
    health: &Health,
    stop: CancellationToken,
) {
    tracing::info!(
        stream = %parts.resources.stream.stream_id,
        head = log.manifest().next_step(),
        watermark = log.manifest().watermark(),
        socket = %config.socket.path.display(),
        "serving"
    );
    let tasks = Tasks::start(log, channels, parts, config, &stop);
    tokio::spawn(report(tasks.node.clone(), health.clone()));
    accept(
        socket.acceptor,
        socket.pending,
        tasks.node.clone(),
        tasks.writers.clone(),
        stop,
    )
    .await;

    health.not_ready("stopping");
    tasks.end(config.shutdown.deadline.0).await;
    tracing::info!("stopped");
}

/// Updates gauges and /readyz every `STATUS_PERIOD`.
async fn report(node: Arc<Node>, health: Health) {
    let mut tick = tokio::time::interval(STATUS_PERIOD);
    let mut trim = tokio::time::interval(TRIM_PERIOD);
    loop {
        tokio::select! {
            biased;
            () = node.resources.stop.cancelled() => return,
            _ = trim.tick() => batchweave_arena::trim_heaps(),
            _ = tick.tick() => {}
        }
        let silent = health.store_failure();
        if let Some(why) = &silent {
            // Reads of the log are retried for a long time before they report a failure.
            let health = &node.resources.store_health;
            health.note_failure(ReadKind::Log, why.clone());
        }
        let state = node.lock();
        // The lock was free, so no task is stuck with it.
        health.beat("serving");
        state.gauges();
        let status = state.status();
        if let Some(fault) = &state.log_fault {
            health.not_ready(format!("the log can't be followed: {fault}; {status}"));
        } else if let Some(why) = node.resources.store_health.any_failure() {
            // While the store answers nothing at all, `health` reports that itself.
            health.not_ready(match silent {
                Some(_) => status,
                None => format!("the store fails: {why}; {status}"),
            });
        } else {
            health.ready(status);
        }
    }
}
