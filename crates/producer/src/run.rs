//! Starting and stopping the daemon.

use std::sync::Arc;

use batchweave_core::keys;
use batchweave_daemon::admin::{self, Identity};
use batchweave_daemon::health::Health;
use batchweave_daemon::shutdown::unless_stopped;
use batchweave_store::counting::Counted;
use batchweave_store::{OpenOptions, Store};
use futures::future::BoxFuture;
use prometheus::Registry;
use tokio_util::sync::CancellationToken;

use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::lanes::{self, Shared};
use crate::metrics::{DaemonMetrics, register};
use crate::outcome::Outcome;
use crate::produce;
use crate::progress::ending;
use crate::site::Site;
use crate::status_page::STATUS_PAGE;

/// A run of the daemon. Boxed, so that this crate compiles it, once for all programs and tests that await it.
pub type Running = BoxFuture<'static, Result<Outcome, RunError>>;

/// Runs the daemon on the store that the configuration names, until the input is over or `stop` is cancelled.
pub fn run(config: ProducerConfig, stop: CancellationToken) -> Running {
    Box::pin(open_and_run(config, stop))
}

async fn open_and_run(
    config: ProducerConfig,
    stop: CancellationToken,
) -> Result<Outcome, RunError> {
    let options = OpenOptions {
        create: config.stream.create,
        ..config.store.options()
    };
    let open = Box::pin(batchweave_store::open(&config.store.url, &options));
    let doing = || format!("opening the store {}", config.store.url);
    match unless_stopped(&stop, doing, open).await {
        Some(store) => run_on(store?, config, stop).await,
        None => Ok(ending::stopped_early()),
    }
}

/// Runs the daemon on `store`, as [`run`] does; for tests.
pub fn run_on(store: Arc<dyn Store>, config: ProducerConfig, stop: CancellationToken) -> Running {
    run_watched(store, config, stop, Box::new(|| ()))
}

/// Runs the daemon on `store`, as [`run`] does, and calls `began` when the first document is about to be read.
pub fn run_watched(
    store: Arc<dyn Store>,
    config: ProducerConfig,
    stop: CancellationToken,
    began: Box<dyn FnOnce() + Send>,
) -> Running {
    Box::pin(run_until_stop(store, config, stop, began))
}

async fn run_until_stop(
    store: Arc<dyn Store>,
    config: ProducerConfig,
    stop: CancellationToken,
    began: Box<dyn FnOnce() + Send>,
) -> Result<Outcome, RunError> {
    batchweave_arena::give_large_blocks_back();
    let config = config.with_named_source();
    let registry = Registry::new();
    let counted = Counted::with_classes(store, &keys::CLASSES);
    let health = Health::default();
    register(&registry, counted.clone(), &health)?;
    let end = CancellationToken::new();
    // Ends everything that this function started, on every path out of it.
    let _end = end.clone().drop_guard();
    let identity = Identity::new(config.store.url.as_str(), config.title());
    admin::start(
        config.admin.listen,
        registry.clone(),
        &health,
        &end,
        STATUS_PAGE,
        identity,
    )
    .await
    .map_err(RunError::Admin)?;
    let store: Arc<dyn Store> = Arc::new(counted);
    if !config.producer.lanes.is_empty() {
        let shared = Shared {
            store,
            health,
            metrics: DaemonMetrics::new(&registry)?,
            registry,
        };
        return Box::pin(lanes::run(shared, &config, &stop, began)).await;
    }
    let site = Site::alone(store, health, &registry)?;
    produce::run(site, &config, &stop, began).await
}
