//! Starting and stopping: the order of both is written here, once. Everything that can be refused is
//! refused before the producer is opened, because opening it stops an older instance.

use std::sync::Arc;

use batchweave_core::commit::Plain;
use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, ProducerName, Seq};
use batchweave_core::manifest::Manifest;
use batchweave_daemon::admin::{Admin, Health};
use batchweave_log::{CommitEnd, DriverOptions, Log, LogOptions, Producer, ProducerOpening};
use batchweave_store::counting::Counted;
use batchweave_store::{OpenOptions, Store};
use futures::FutureExt;
use prometheus::Registry;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::batching::BatchingOptions;
use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::metrics::{Metrics, register_store};
use crate::packing::{Point, Shape};
use crate::pipeline::Pipeline;
use crate::prepare::{list_inputs, load_tokenizer, pad_token, settings};
use crate::reading::Reading;
use crate::sources::{InputList, ReadOptions, Share};
use crate::tokenizer::Tokenizer;
use crate::tokenizing::Tokenizing;
use crate::upload::Uploader;
use crate::{resume, stream};

/// Batches in one object at most: their log entry must stay small.
const GROUP_BATCHES_MAX: usize = 64;
/// About one put to S3, for the first back-off after a lost commit.
const PUT_LATENCY: std::time::Duration = std::time::Duration::from_millis(50);

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
        /// Its batches in the stream, as far as known.
        batches: Seq,
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
        ..OpenOptions::default()
    };
    let store = batchweave_store::open(&config.store.url, &options).await?;
    run_on(store, config, stop).await
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
    let registry = Registry::new();
    let counted = Counted::new(store);
    register_store(&registry, counted.clone())?;
    let metrics = Arc::new(Metrics::new(&registry)?);
    let health = Health::default();
    let end = CancellationToken::new();
    // However this function is left, nothing that it started stays.
    let _end = end.clone().drop_guard();
    serve_admin(&config, registry, &health, &end).await?;

    let store: Arc<dyn Store> = Arc::new(counted);
    batchweave_store::probe(store.as_ref(), rand::random()).await?;
    let tokenizer = load_tokenizer(&config).await?;
    let settings = settings(&config, tokenizer.as_ref());
    let pad = pad_token(&config, tokenizer.as_ref())?;
    stream::open(&store, &config, tokenizer.as_ref()).await?;
    let log_options = LogOptions {
        seed: rand::random(),
        write_snapshots: true,
    };
    let log = Log::open(store.clone(), &log_options).await?;
    let name: ProducerName = config.producer.name.parse().map_err(RunError::task)?;
    if let Some(batches) = finished(log.manifest(), &name) {
        return Ok(Outcome::Finished { batches });
    }
    health.not_ready("listing the input");
    let inputs = Arc::new(list_inputs(&config).await?);
    let resume = resume::Resume {
        store: &store,
        producer: &name,
        inputs: &inputs,
        settings: &settings,
    };
    let cursor = log.manifest().producer(&name).map(|p| p.cursor.clone());
    resume.check(&cursor.unwrap_or_default()).await?;
    let producer = match Producer::open(log, name.clone(), &instance()).await? {
        ProducerOpening::Opened(producer) => *producer,
        ProducerOpening::Finished { tgbs } => return Ok(Outcome::Finished { batches: tgbs }),
        ProducerOpening::Sealed => return Ok(Outcome::Sealed),
    };
    let cursor: Cursor = producer.cursor();
    let from = resume.check(&cursor).await?;
    let hash = resume.pin().await?;
    announce(&producer, from, &inputs);
    health.ready("producing");

    let parts = Parts {
        store,
        tokenizer,
        inputs,
        settings,
        hash,
        from,
        pad,
        metrics: metrics.clone(),
    };
    let pipeline = pipeline(&config, &producer, parts);
    let policy = Plain::new(config.commit.linger.0, PUT_LATENCY, rand::random());
    let driver = DriverOptions {
        tgbs_per_entry: config.commit.max_batches,
        ..DriverOptions::default()
    };
    let queue = producer.spawn(policy, driver);
    let mut progress = queue.progress();
    let watched = metrics.clone();
    tokio::spawn(async move {
        while progress.changed().await.is_ok() {
            watched.committed(&progress.borrow_and_update());
        }
    });
    let last = queue.progress();
    let work = pipeline.run(queue, stop.clone());
    let ended = with_deadline(work, &stop, config.shutdown.deadline.0).await;
    metrics.committed(&last.borrow());
    match ended {
        Some(ended) => outcome(ended?, &config),
        None => Ok(Outcome::Stopped {
            batches: last.borrow().next_seq,
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
        CommitEnd::Drained { next_seq } => Ok(Outcome::Stopped { batches: next_seq }),
        CommitEnd::Sealed => Ok(Outcome::Sealed),
        CommitEnd::Fenced { by, instance } => Err(RunError::Fenced {
            producer: config.producer.name.clone(),
            by,
            instance,
        }),
    }
}

fn announce(producer: &Producer, from: Point, inputs: &InputList) {
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

async fn serve_admin(
    config: &ProducerConfig,
    registry: Registry,
    health: &Health,
    end: &CancellationToken,
) -> Result<(), RunError> {
    let Some(address) = config.admin.listen.0 else {
        return Ok(());
    };
    let admin = Admin::bind(address, registry, health.clone())
        .await
        .map_err(RunError::Admin)?;
    let address = admin.address().map_err(RunError::Admin)?;
    tracing::info!(%address, "admin endpoint: /metrics, /healthz, /readyz");
    tokio::spawn(admin.serve(end.clone()));
    Ok(())
}

/// Which process this is, for people.
fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}", host.trim(), std::process::id())
}

struct Parts {
    store: Arc<dyn Store>,
    tokenizer: Arc<dyn Tokenizer>,
    inputs: Arc<InputList>,
    settings: Map<String, Value>,
    hash: Hash,
    from: Point,
    pad: Option<u32>,
    metrics: Arc<Metrics>,
}

fn pipeline(config: &ProducerConfig, producer: &Producer, parts: Parts) -> Pipeline {
    let Parts {
        store,
        tokenizer,
        inputs,
        settings,
        hash,
        from,
        pad,
        metrics,
    } = parts;
    let identity = tokenizer.identity();
    let shape = Shape {
        slices: config.stream.slices,
        rows_per_slice: config.stream.rows_per_slice,
        seq_len: config.stream.seq_len,
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = if config.tokenizer.threads == 0 {
        cores
    } else {
        config.tokenizer.threads
    };
    let object_bytes = config.packing.object_bytes.bytes();
    let options = ReadOptions {
        format: config.source.format,
        column: config.source.column.clone(),
        max_document_bytes: config.source.max_document_bytes.bytes(),
        share: Share {
            index: config.producer.index,
            of: config.producer.of,
        },
    };
    Pipeline {
        reading: Reading {
            inputs: inputs.clone(),
            options,
            from,
            passes: config.source.epochs,
        },
        batching: BatchingOptions {
            shape,
            end_token: identity.end_token,
            id_bound: identity.id_bound,
            next_seq: producer.next_seq(),
            from,
            inputs: hash,
            settings,
            endless: config.source.epochs == 0,
            on_bad_document: config.source.on_bad_document,
            object_bytes,
            group_batches: config.commit.max_batches.min(GROUP_BATCHES_MAX),
        },
        tokenizing: Tokenizing {
            tokenizer,
            inputs,
            format: config.source.format,
            field: config.source.field.clone(),
        },
        threads,
        pad,
        linger: config.commit.linger.0,
        uploader: Arc::new(Uploader {
            store,
            stream: producer.log().manifest().stream_id(),
            producer: producer.name().clone(),
            epoch: producer.epoch(),
            nonce: producer.nonce(),
            object_bytes,
            give_up_after: config.upload.give_up_after.0,
            metrics: metrics.clone(),
        }),
        uploads: config.upload.concurrency,
        metrics,
    }
}
