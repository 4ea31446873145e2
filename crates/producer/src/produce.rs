//! One producer, from its opening to its end.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::commit_policy::Dac;
use batchweave_core::ids::Seq;
use batchweave_daemon::shutdown::unless_stopped;
use batchweave_log::{CommitEnd, CommitOptions, CommitQueue, Committer};
use batchweave_store::Store;
use futures::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::flow_control::{self, HoldReporter};
use crate::metrics::Metrics;
use crate::outcome::Outcome;
use crate::pipeline::stages::MissingStage;
use crate::progress::InputProgress;
use crate::progress::ending::{self, Totals};
use crate::progress::report::Reporter;
use crate::sample::SampleTaker;
use crate::site::Site;
use crate::sources::inbox::FileDeleter;
use crate::stage_hold;
use crate::startup::{self, Opened, Opening, assemble};

/// Runs the producer of `config` until the input is over or `stop` is cancelled, and calls `began` when the first
/// document is about to be read.
pub(crate) async fn run(
    site: Site,
    config: &ProducerConfig,
    stop: &CancellationToken,
    began: Box<dyn FnOnce() + Send>,
) -> Result<Outcome, RunError> {
    let mut began = Some(began);
    let mut started = None;
    loop {
        let opened = Box::pin(startup::open(&site, config));
        let Some(opened) = unless_stopped(stop, || site.health.get().1, opened).await else {
            return Ok(ending::stopped_early());
        };
        let opened = match opened? {
            Opening::Finished(batches) => {
                return Ok(ending::finished_before(batches, site.lane(config)));
            }
            Opening::Sealed => return Ok(ending::sealed()),
            Opening::Opened(opened) => *opened,
        };
        if let Some(began) = began.take() {
            began();
        }
        let started = *started.get_or_insert_with(Instant::now);
        let produced = produce(opened, config, stop, &site, started);
        match Box::pin(produced).await? {
            Next::Done(outcome) => return Ok(outcome),
            Next::Held(missing, batches) => {
                if stage_hold::wait(&site, &missing, stop).await {
                    continue;
                }
                return Ok(ending::stopped_holding(batches));
            }
            Next::Again => {}
        }
        tracing::info!(
            producer = %config.producer.name,
            "the mixture or the stage changes before batches that were made already, so they are made again from the last commit"
        );
    }
}

/// The state of a producer when its pipeline has ended.
enum Next {
    Done(Outcome),
    /// It begins again from its stored cursor.
    Again,
    /// It lacks the stage of its next batch, behind this number of batches.
    Held(MissingStage, Option<Seq>),
}

/// Moves documents from the input to the log, until one of them ends or `stop` is cancelled.
async fn produce(
    opened: Opened,
    config: &ProducerConfig,
    stop: &CancellationToken,
    site: &Site,
    began: Instant,
) -> Result<Next, RunError> {
    let Opened {
        producer,
        policy,
        parts,
    } = opened;
    let store = parts.store.clone();
    let inputs = parts.inputs.clone();
    site.metrics.begin(producer.next_seq());
    let input = Arc::new(InputProgress::new(
        inputs.clone(),
        config.source.epochs,
        config.source.grows(),
    ));
    let sampler = SampleTaker::for_page(config, &parts.transform, &inputs, &site.health);
    let deleter = FileDeleter::new(config, &producer, (store.clone(), inputs));
    let stop_waiting = stop.child_token();
    let pipeline = assemble(
        config,
        &producer,
        parts,
        site.metrics.clone(),
        input.clone(),
        sampler.clone(),
        stop_waiting.clone(),
    )?;
    let held = pipeline.held.clone();
    let queue = start_commits(producer, policy, config, store, stop_waiting, site);
    show_commits(&queue, site.metrics.clone(), sampler);
    let deletion = Deletion::start(deleter, stop);
    let last = queue.progress();
    let work = pipeline.run(queue, stop.clone());
    let reporter = Reporter::new(
        config,
        input,
        site.metrics.clone(),
        site.health.clone(),
        site.alone,
    );
    let ended = tokio::select! {
        biased;
        ended = with_deadline(work, stop, config.shutdown.deadline.0) => ended,
        never = reporter.run() => match never {},
    };
    site.metrics.committed(&last.borrow());
    deletion.end().await;
    let outcome = match ended {
        Some(ended) => outcome(ended?, config)?,
        None => Some(Outcome::Stopped {
            batches: Some(last.borrow().next_seq),
        }),
    };
    let held = held.get().filter(|_| !stop.is_cancelled());
    Ok(match (outcome, held) {
        (None, _) => Next::Again,
        (Some(Outcome::Stopped { batches }), Some(missing)) => Next::Held(missing.clone(), batches),
        (Some(outcome), _) => {
            let totals = Totals::read(&site.metrics, began.elapsed());
            Next::Done(ending::produced(
                outcome,
                config,
                &totals,
                site.lane(config),
            ))
        }
    })
}

/// Starts the commit task of the producer, and the reading of the jobs' positions where these bound it.
fn start_commits(
    producer: Committer,
    policy: Dac,
    config: &ProducerConfig,
    store: Arc<dyn Store>,
    stop_waiting: CancellationToken,
    site: &Site,
) -> CommitQueue {
    let (reader, bounds) = flow_control::position_reader(config);
    let options = CommitOptions {
        tgbs_per_entry: flow_control::entry_max(config),
        pace: bounds,
        ..CommitOptions::default()
    };
    let name = producer.name().clone();
    let queue = producer.spawn(policy, options);
    site.health.ready(flow_control::PRODUCING);
    if let Some(reader) = reader {
        let metrics = site.metrics.clone();
        let health = site.health.clone();
        let reporter = HoldReporter::new(name, metrics, health, site.held.clone());
        flow_control::start(reader, store, &queue, stop_waiting, reporter);
    }
    queue
}

/// Shows the progress of the commit task in metrics, and samples of committed batches, until the task ends.
fn show_commits(queue: &CommitQueue, metrics: Arc<Metrics>, sampler: Option<Arc<SampleTaker>>) {
    let mut progress = queue.progress();
    tokio::spawn(async move {
        while progress.changed().await.is_ok() {
            let now = *progress.borrow_and_update();
            metrics.committed(&now);
            if let Some(sampler) = &sampler {
                sampler.committed(now.next_seq);
            }
        }
    });
}

/// The deletion of read files; it ends when this is dropped.
struct Deletion {
    stop: DropGuard,
    task: Option<JoinHandle<()>>,
}

impl Deletion {
    fn start(deleter: Option<FileDeleter>, stop: &CancellationToken) -> Self {
        let stop = stop.child_token();
        Self {
            task: deleter.map(|deleter| tokio::spawn(deleter.run(stop.clone()))),
            stop: stop.drop_guard(),
        }
    }

    /// Ends the deletion and waits for it.
    async fn end(self) {
        drop(self.stop);
        if let Some(task) = self.task {
            // It ends within its own bound.
            let _ = task.await;
        }
    }
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
        CommitEnd::Changed => return Ok(None),
        CommitEnd::Fenced { by, instance } => {
            return Err(RunError::Fenced {
                producer: config.producer.name.clone(),
                by,
                instance,
            });
        }
    }))
}
