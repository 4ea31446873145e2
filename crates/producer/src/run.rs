//! Starting and stopping the daemon.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::Seq;
use batchweave_core::keys;
use batchweave_daemon::admin::{self, Identity};
use batchweave_daemon::health::Health;
use batchweave_daemon::shutdown::unless_stopped;
use batchweave_log::{CommitEnd, CommitOptions};
use batchweave_store::Store;
use batchweave_store::counting::Counted;
use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::flow_control;
use crate::metrics::{Metrics, register};
use crate::progress::InputProgress;
use crate::progress::ending::{self, Totals};
use crate::progress::report::Reporter;
use crate::sample::SampleTaker;
use crate::startup::{self, Opened, Opening, assemble};
use crate::status_page::STATUS_PAGE;

/// The result of a run, when nothing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The input is over and the producer has finished, now or in an earlier run.
    Finished {
        /// Number of its batches in the stream.
        batches: Seq,
    },
    /// Stopped on request; a restart continues here.
    Stopped {
        /// Number of its batches in the stream; unknown when it was still starting.
        batches: Option<Seq>,
    },
    /// The stream was sealed by an operator, or has ended.
    Sealed,
}

impl Outcome {
    /// Returns the number of the producer's batches in the stream, where it is known.
    pub(crate) fn batches(self) -> Option<Seq> {
        match self {
            Self::Finished { batches } => Some(batches),
            Self::Stopped { batches } => batches,
            Self::Sealed => None,
        }
    }
}

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
    let options = config.store.options(config.stream.create);
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
    let registry = Registry::new();
    let counted = Counted::with_classes(store, &keys::CLASSES);
    let health = Health::default();
    register(&registry, counted.clone(), &health)?;
    let metrics = Arc::new(Metrics::new(&registry)?);
    let end = CancellationToken::new();
    // Ends everything that this function started, on every path out of it.
    let _end = end.clone().drop_guard();
    let identity = Identity::new(config.store.url.as_str(), config.producer.name.as_str());
    admin::start(
        config.admin.listen,
        registry,
        &health,
        &end,
        STATUS_PAGE,
        identity,
    )
    .await
    .map_err(RunError::Admin)?;
    let store: Arc<dyn Store> = Arc::new(counted);
    let mut began = Some(began);
    let mut started = None;
    loop {
        let opened = Box::pin(startup::open(store.clone(), &config, &health));
        let Some(opened) = unless_stopped(&stop, || health.get().1, opened).await else {
            return Ok(ending::stopped_early());
        };
        let opened = match opened? {
            Opening::Finished(batches) => return Ok(ending::finished_before(batches)),
            Opening::Sealed => return Ok(ending::sealed()),
            Opening::Opened(opened) => *opened,
        };
        if let Some(began) = began.take() {
            began();
        }
        let started = *started.get_or_insert_with(Instant::now);
        let produced = produce(opened, &config, &stop, (metrics.clone(), &health), started);
        if let Some(outcome) = Box::pin(produced).await? {
            return Ok(outcome);
        }
        tracing::info!(
            "the mixture changes before batches that were made already, so they are made again from the last commit"
        );
    }
}

/// Moves documents from the input to the log, until one of them ends or `stop` is cancelled. `None` when it must begin
/// again from its stored cursor.
async fn produce(
    opened: Opened,
    config: &ProducerConfig,
    stop: &CancellationToken,
    (metrics, health): (Arc<Metrics>, &Health),
    began: Instant,
) -> Result<Option<Outcome>, RunError> {
    let (producer, store) = (opened.producer, opened.parts.store.clone());
    metrics.begin(producer.next_seq());
    let input = Arc::new(InputProgress::new(
        opened.parts.inputs.clone(),
        config.source.epochs,
        config.source.follow,
    ));
    let sampler = SampleTaker::for_page(
        config,
        (&opened.parts.transform, &opened.parts.inputs),
        health,
    );
    let stop_waiting = stop.child_token();
    let pipeline = assemble(
        config,
        &producer,
        opened.parts,
        (metrics.clone(), input.clone()),
        sampler.clone(),
        stop_waiting.clone(),
    )?;
    let (reader, bounds) = flow_control::position_reader(config);
    let driver = CommitOptions {
        tgbs_per_entry: flow_control::entry_max(config),
        pace: bounds,
        ..CommitOptions::default()
    };
    let queue = producer.spawn(opened.policy, driver);
    health.ready(flow_control::PRODUCING);
    if let Some(reader) = reader {
        flow_control::start(
            reader,
            store,
            &queue,
            stop_waiting,
            (metrics.clone(), health),
        );
    }
    let mut progress = queue.progress();
    let watched = metrics.clone();
    tokio::spawn(async move {
        while progress.changed().await.is_ok() {
            let now = *progress.borrow_and_update();
            watched.committed(&now);
            if let Some(sampler) = &sampler {
                sampler.committed(now.next_seq);
            }
        }
    });
    let last = queue.progress();
    let work = pipeline.run(queue, stop.clone());
    let reporter = Reporter::new(config, input, metrics.clone(), health.clone());
    let ended = tokio::select! {
        biased;
        ended = with_deadline(work, stop, config.shutdown.deadline.0) => ended,
        never = reporter.run() => match never {},
    };
    metrics.committed(&last.borrow());
    let outcome = match ended {
        Some(ended) => outcome(ended?, config)?,
        None => Some(Outcome::Stopped {
            batches: Some(last.borrow().next_seq),
        }),
    };
    let totals = Totals::read(&metrics, began.elapsed());
    Ok(outcome.map(|outcome| ending::produced(outcome, config, &totals)))
}

/// Returns the result of `work`, or `None` when it did not end within `deadline` after `stop`.
async fn with_deadline<T>(
    work: impl Future<Output = T>,
    stop: &CancellationToken,
    deadline: Duration,
) -> Option<T> {
    let mut work = std::pin::pin!(work.fuse());
    tokio::select! {
        biased;
        done = &mut work => return Some(done),
        () = stop.cancelled() => {}
    }
    let done = tokio::time::timeout(deadline, work).await.ok();
    if done.is_none() {
        tracing::warn!(
            "not everything in flight was committed before shutdown.deadline; a restart repeats it"
        );
    }
    done
}

/// Returns the outcome of a run; `None` when the producer must begin again from its stored cursor.
fn outcome(end: CommitEnd, config: &ProducerConfig) -> Result<Option<Outcome>, RunError> {
    Ok(Some(match end {
        CommitEnd::Finished { tgbs } => Outcome::Finished { batches: tgbs },
        CommitEnd::Drained { next_seq } => Outcome::Stopped {
            batches: Some(next_seq),
        },
        CommitEnd::Sealed => Outcome::Sealed,
        CommitEnd::Mixture => return Ok(None),
        CommitEnd::Fenced { by, instance } => {
            return Err(RunError::Fenced {
                producer: config.producer.name.clone(),
                by,
                instance,
            });
        }
    }))
}
