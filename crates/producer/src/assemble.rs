//! From what was made ready to the stages that work on it.

use std::sync::Arc;

use batchweave_core::inputs::{Chain, LinkId};
use batchweave_log::Committer;
use batchweave_store::Store;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::ahead;
use crate::batching::BatchingOptions;
use crate::config::{LastBatch, ProducerConfig};
use crate::following::Follower;
use crate::forming::Forming;
use crate::metrics::Metrics;
use crate::packing::Restart;
use crate::pipeline::Pipeline;
use crate::reading::Reading;
use crate::sources::{Inputs, ReadOptions, Share};
use crate::tokenizing::Tokenizing;
use crate::upload::{Buffers, Uploader};

/// Batches in one object at most: their log entry must stay small.
const GROUP_BATCHES_MAX: usize = 64;

/// What was made ready before the producer was opened, and where it goes on.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) forming: Arc<Forming>,
    pub(crate) inputs: Arc<Inputs>,
    pub(crate) settings: Map<String, Value>,
    /// The input list as it is stored, and its name.
    pub(crate) list: (Chain, LinkId),
    pub(crate) from: Restart,
}

/// The stages of `producer`, as configured.
pub(crate) fn pipeline(
    config: &ProducerConfig,
    producer: &Committer,
    parts: Parts,
    metrics: Arc<Metrics>,
    pacing: CancellationToken,
) -> Pipeline {
    let encoder = parts.forming.encoder.clone();
    let object_bytes = config.packing.object_bytes.bytes();
    let batching = BatchingOptions {
        packer: parts.forming.packer(parts.from.clone()),
        slices: (encoder.slices(), parts.forming.unit_slices()),
        encoder: encoder.clone(),
        next_seq: producer.next_seq(),
        inputs: parts.list.1,
        settings: parts.settings,
        endless: config.source.epochs == 0,
        fill_last: config.packing.last_batch == LastBatch::Pad,
        on_bad_document: config.source.on_bad_document,
        object_bytes,
        group_batches: ahead::entry_max(config).min(GROUP_BATCHES_MAX),
    };
    let follower = || {
        let list = (parts.inputs.clone(), parts.list.0.clone());
        Arc::new(Follower::new(config, parts.store.clone(), producer, list))
    };
    let more = config.source.follow.then(follower);
    let uploader = Uploader {
        store: parts.store,
        stream: producer.log().manifest().stream_id(),
        producer: producer.name().clone(),
        epoch: producer.epoch(),
        nonce: producer.nonce(),
        buffers: Buffers::new(config.upload.concurrency, 2 * object_bytes + (1 << 20)),
        encoder,
        provenance: config.packing.provenance,
        give_up_after: config.upload.give_up_after.0,
        metrics: metrics.clone(),
    };
    Pipeline {
        reading: Reading {
            inputs: parts.inputs.clone(),
            options: reading(config),
            from: parts.from.at,
            passes: config.source.epochs,
            more,
        },
        batching,
        tokenizing: Tokenizing {
            forming: parts.forming,
            inputs: parts.inputs,
            format: config.source.format,
        },
        threads: threads(config),
        linger: config.commit.linger.0,
        uploader: Arc::new(uploader),
        uploads: config.upload.concurrency,
        memory: config.upload.memory.bytes(),
        metrics,
        pacing,
    }
}

fn reading(config: &ProducerConfig) -> ReadOptions {
    ReadOptions {
        format: config.source.format,
        column: config.source.column.clone(),
        arrays: arrays(config),
        max_document_bytes: config.source.max_document_bytes.bytes(),
        share: if config.source.follow {
            // Shares of input that grows are whole files, picked as they are listed.
            Share::ALL
        } else {
            Share {
                index: config.producer.index,
                of: config.producer.of,
            }
        },
    }
}

/// The arrays of a sample, if documents are samples.
fn arrays(config: &ProducerConfig) -> Vec<String> {
    let arrays = config.packing.arrays.iter();
    arrays.map(|array| array.name.clone()).collect()
}

fn threads(config: &ProducerConfig) -> usize {
    match config.tokenizer.threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads,
    }
}
