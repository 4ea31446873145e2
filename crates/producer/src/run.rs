//! Starting and stopping: the order of both is written here, once. Everything that can be refused is
//! refused before the producer is opened, because opening it stops an older instance.

use std::sync::Arc;

use batchweave_core::commit_policy::{Dac, DacOptions};
use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_daemon::admin;
use batchweave_daemon::health::Health;
use batchweave_daemon::shutdown::unless_stopped;
use batchweave_log::{CommitEnd, CommitOptions, Committer, Log, LogOptions, OpenOutcome};
use batchweave_store::counting::Counted;
use batchweave_store::{OpenOptions, Store};
use futures::FutureExt;
use prometheus::Registry;
use tokio_util::sync::CancellationToken;

use crate::ahead;
use crate::assemble::{Parts, pipeline};
use crate::board::STATUS_PAGE;
use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::forming::Forming;
use crate::metrics::{Metrics, register};
use crate::packing::Point;
use crate::prepare::{list_inputs, settings};
use crate::resume::{Resume, Resumed, store_list};
use crate::sources::{InputList, Inputs, SourceError};
use crate::stream;
use crate::threads::Worker;

/// How the daemon ended, when nothing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The input is over and the producer finished, now or before.
    Finished {
        /// Its batches in the stream.
        batches: Seq,
    },
    /// Stopped on request; a restart goes on here.
    Stopped {
        /// Its batches in the stream, as far as known: not when it was still starting.
        batches: Option<Seq>,
    },
    /// The stream was sealed by a person, or has ended.
    Sealed,
}

/// Runs the daemon on the store that the configuration names.
pub async fn run(config: ProducerConfig, stop: CancellationToken) -> Result<Outcome, RunError> {
    let options = OpenOptions {
        create: config.stream.create,
        endpoint: given(&config.store.endpoint),
        region: given(&config.store.region),
        // Checked with the rest of the configuration.
        encryption: config.store.encryption().unwrap_or_default(),
        ..OpenOptions::default()
    };
    let open = Box::pin(batchweave_store::open(&config.store.url, &options));
    let doing = || format!("opening the store {}", config.store.url);
    match unless_stopped(&stop, doing, open).await {
        Some(store) => run_on(store?, config, stop).await,
        None => Ok(Outcome::Stopped { batches: None }),
    }
}

pub(crate) fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Runs the daemon on `store`: the entry for tests.
pub async fn run_on(
    store: Arc<dyn Store>,
    config: ProducerConfig,
    stop: CancellationToken,
) -> Result<Outcome, RunError> {
    run_watched(store, config, stop, || ()).await
}

/// The same; `began` is called when all is ready and the first document is about to be read.
pub async fn run_watched(
    store: Arc<dyn Store>,
    config: ProducerConfig,
    stop: CancellationToken,
    began: impl FnOnce(),
) -> Result<Outcome, RunError> {
    batchweave_arena::give_large_blocks_back();
    let registry = Registry::new();
    let counted = Counted::with_classes(store, &keys::CLASSES);
    let health = Health::default();
    register(&registry, counted.clone(), &health)?;
    let metrics = Arc::new(Metrics::new(&registry)?);
    let end = CancellationToken::new();
    // However this function is left, nothing that it started stays.
    let _end = end.clone().drop_guard();
    admin::start(config.admin.listen, registry, &health, &end, STATUS_PAGE)
        .await
        .map_err(RunError::Admin)?;
    let opened = Box::pin(open(Arc::new(counted), &config, &health));
    let Some(opened) = unless_stopped(&stop, || health.get().1, opened).await else {
        return Ok(Outcome::Stopped { batches: None });
    };
    match opened? {
        Opening::Over(outcome) => Ok(outcome),
        Opening::Opened(opened) => {
            began();
            produce(*opened, &config, &stop, (metrics, &health)).await
        }
    }
}

/// A producer in its new epoch, and where it goes on.
struct Opened {
    producer: Committer,
    /// It has learned from the opening.
    policy: Dac,
    parts: Parts,
}

enum Opening {
    Opened(Box<Opened>),
    /// There is nothing to do.
    Over(Outcome),
}

async fn open(
    store: Arc<dyn Store>,
    config: &ProducerConfig,
    health: &Health,
) -> Result<Opening, RunError> {
    health.not_ready("probing the store");
    // As `assemble` fills an object: beyond its size by less than a batch.
    let largest = 2 * config.packing.object_bytes.bytes();
    batchweave_store::probe(store.as_ref(), rand::random(), largest).await?;
    health.not_ready("loading the tokenizer");
    let loaded = config.clone();
    let forming = Worker::start("tokenizer", move || Forming::new(&loaded))?;
    let forming = Arc::new(forming.join().await??);
    health.not_ready("opening the stream");
    let settings = settings(config, &forming);
    stream::open(&store, config, &forming).await?;
    health.not_ready("opening the log");
    let mut log = Log::open(store.clone(), &LogOptions::new(rand::random())).await?;
    let name: ProducerName = config.producer.name.parse()?;
    if let Some(batches) = finished(log.manifest(), &name) {
        tracing::info!(
            producer = %name,
            "this producer finished before, and its input is not looked at: new documents need a producer of \
             another name, or source.follow from the start"
        );
        return Ok(Opening::Over(Outcome::Finished { batches }));
    }
    health.not_ready("listing the input");
    let resume = Resume {
        store: &store,
        producer: &name,
        settings: &settings,
        follow: config.source.follow,
    };
    let (cursor, mut resumed) = standing(&mut log, &resume, config).await?;
    health.not_ready("opening the producer");
    let mut policy = policy(config);
    let opened = Committer::open_with(log, name.clone(), &instance(), &mut policy).await?;
    let producer = match opened {
        OpenOutcome::Opened(producer) => *producer,
        OpenOutcome::Finished { tgbs } => {
            return Ok(Opening::Over(Outcome::Finished { batches: tgbs }));
        }
        OpenOutcome::Sealed => return Ok(Opening::Over(Outcome::Sealed)),
        OpenOutcome::Fenced { by, instance } => {
            return Err(RunError::Fenced {
                producer: name.to_string(),
                by,
                instance,
            });
        }
    };
    // An older instance has gone on until it was fenced.
    if producer.cursor() != cursor {
        let listed = list_inputs(config).await?;
        resumed = resume.check(&producer.cursor(), listed).await?;
    }
    let Resumed {
        inputs,
        mut chain,
        from,
    } = resumed;
    health.not_ready("storing the input list");
    let opening = (producer.epoch(), producer.nonce());
    let head = store_list(&store, &name, opening, &mut chain, &inputs).await?;
    announce(&producer, from.at, &inputs);
    let parts = Parts {
        store,
        forming,
        inputs: Arc::new(Inputs::new(inputs)),
        settings,
        list: (chain, head),
        from,
    };
    Ok(Opening::Opened(Box::new(Opened {
        producer,
        policy,
        parts,
    })))
}

/// The cursor as far as the log is folded, and where it stands in the input.
async fn standing(
    log: &mut Log,
    resume: &Resume<'_>,
    config: &ProducerConfig,
) -> Result<(Cursor, Resumed), RunError> {
    loop {
        let now = |log: &Log| {
            let state = log.manifest().producer(resume.producer);
            state.map(|p| p.cursor.clone()).unwrap_or_default()
        };
        let cursor = now(log);
        match resume.check(&cursor, list_inputs(config).await?).await {
            // An instance that is still at work may have grown the list, and the links of before be reclaimed.
            Err(why @ RunError::Source(SourceError::List(_))) => {
                log.catch_up().await?;
                if now(log) == cursor {
                    return Err(why);
                }
            }
            resumed => return Ok((cursor, resumed?)),
        }
    }
}

/// When to commit.
fn policy(config: &ProducerConfig) -> Dac {
    Dac::new(DacOptions {
        target: config.commit.latency_target.0,
        seed: rand::random(),
    })
}

/// From the input to the log, until one of them ends or `stop` is cancelled.
async fn produce(
    opened: Opened,
    config: &ProducerConfig,
    stop: &CancellationToken,
    (metrics, health): (Arc<Metrics>, &Health),
) -> Result<Outcome, RunError> {
    let (producer, store) = (opened.producer, opened.parts.store.clone());
    metrics.begin(producer.next_seq());
    let pacing = stop.child_token();
    let pipeline = pipeline(
        config,
        &producer,
        opened.parts,
        metrics.clone(),
        pacing.clone(),
    );
    let (pacer, pace) = ahead::pacer(config);
    let driver = CommitOptions {
        tgbs_per_entry: ahead::entry_max(config),
        pace,
        ..CommitOptions::default()
    };
    let queue = producer.spawn(opened.policy, driver);
    health.ready(ahead::PRODUCING);
    if let Some(pacer) = pacer {
        ahead::start(pacer, store, &queue, pacing, (metrics.clone(), health));
    }
    let mut progress = queue.progress();
    let watched = metrics.clone();
    tokio::spawn(async move {
        while progress.changed().await.is_ok() {
            watched.committed(&progress.borrow_and_update());
        }
    });
    let last = queue.progress();
    let work = pipeline.run(queue, stop.clone());
    let ended = with_deadline(work, stop, config.shutdown.deadline.0).await;
    metrics.committed(&last.borrow());
    match ended {
        Some(ended) => outcome(ended?, config),
        None => Ok(Outcome::Stopped {
            batches: Some(last.borrow().next_seq),
        }),
    }
}

/// A producer that has finished needs its input no more.
fn finished(manifest: &Manifest, name: &ProducerName) -> Option<Seq> {
    let state = manifest.producer(name).filter(|p| p.finished)?;
    Some(state.next_seq)
}

/// `None` when `stop` came and the work did not end in time.
async fn with_deadline<T>(
    work: impl Future<Output = T>,
    stop: &CancellationToken,
    deadline: std::time::Duration,
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
            "not everything in flight was committed before shutdown.deadline; a restart makes it again"
        );
    }
    done
}

fn outcome(end: CommitEnd, config: &ProducerConfig) -> Result<Outcome, RunError> {
    match end {
        CommitEnd::Finished { tgbs } => Ok(Outcome::Finished { batches: tgbs }),
        CommitEnd::Drained { next_seq } => Ok(Outcome::Stopped {
            batches: Some(next_seq),
        }),
        CommitEnd::Sealed => Ok(Outcome::Sealed),
        CommitEnd::Fenced { by, instance } => Err(RunError::Fenced {
            producer: config.producer.name.clone(),
            by,
            instance,
        }),
    }
}

fn announce(producer: &Committer, from: Point, inputs: &InputList) {
    tracing::info!(
        producer = %producer.name(),
        epoch = producer.epoch(),
        batches = producer.next_seq(),
        files = inputs.files.len(),
        pass = from.pass,
        file = inputs.files.get(from.file as usize).map_or("", |f| f.pin.name.as_str()),
        unit = from.unit + 1,
        skip = from.skip,
        "producing"
    );
}

/// Which process this is, for people.
fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}", host.trim(), std::process::id())
}
