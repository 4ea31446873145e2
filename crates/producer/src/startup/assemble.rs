//! The pipeline of an opened producer, as configured.

use std::sync::Arc;

use batchweave_core::ids::Seq;
use batchweave_core::inputs::{Chain, LinkId};
use batchweave_core::order::{MixtureChanges, Sampler, SamplerState};
use batchweave_log::{ChangesInLog, Committer};
use batchweave_store::Store;
use prometheus::IntGauge;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::sources::sampler_options;
use crate::buffers::Buffers;
use crate::config::{LastBatch, ProducerConfig};
use crate::error::RunError;
use crate::flow_control;
use crate::metrics::Metrics;
use crate::packing::{Packer, Point, Restart, ShuffledRows};
use crate::pipeline::batch::{BatchBuilderOptions, keep_stage};
use crate::pipeline::named_files::NamedFiles;
use crate::pipeline::new_files::{NewFilePoller, StoredInputs};
use crate::pipeline::read::ChunkSize;
use crate::pipeline::repeated::Repeated;
use crate::pipeline::stages::ProducerStages;
use crate::pipeline::tokenize::ChunkTokenizer;
use crate::pipeline::upload::Uploader;
use crate::pipeline::{BatchWindows, MixedSources, Pipeline, Reading};
use crate::progress::InputProgress;
use crate::sample::SampleTaker;
use crate::sources::{FileRoot, InputFinder, Inputs, NamedPaths, SourcePlan};
use crate::transform::DocumentTransform;

/// Most batches in one object: its log entry must stay small.
const GROUP_BATCHES_MAX: usize = 64;

/// The state that startup prepared for the pipeline.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) transform: Arc<DocumentTransform>,
    pub(crate) finder: InputFinder,
    pub(crate) inputs: Arc<Inputs>,
    /// The configured root of the files that documents name.
    pub(crate) root: Option<FileRoot>,
    pub(crate) settings: Map<String, Value>,
    /// The links of the stored input list.
    pub(crate) chain: Chain,
    /// The last one of these links.
    pub(crate) head: LinkId,
    pub(crate) from: Restart,
    /// The plans of the sources.
    pub(crate) plans: Vec<Arc<SourcePlan>>,
    /// The state of the sampler of sources with names; `None` at the start.
    pub(crate) order: Option<SamplerState>,
    /// The pieces that the cursor counts are of standard JSON alone.
    pub(crate) strict_replay: bool,
}

impl Parts {
    /// Returns the pollers of the sources that are followed.
    fn pollers(
        &self,
        config: &ProducerConfig,
        producer: &Committer,
        bad_folders: &IntGauge,
    ) -> Vec<Option<NewFilePoller>> {
        let list = Arc::new(StoredInputs::new(
            self.store.clone(),
            producer,
            self.inputs.clone(),
            self.chain.clone(),
        ));
        let poller = |paths: &NamedPaths, plan: &Arc<SourcePlan>| {
            NewFilePoller::new(
                self.finder.clone(),
                paths.clone(),
                plan.clone(),
                config.source.follow_every.0,
                config.inbox.writers.clone(),
                list.clone(),
                bad_folders,
            )
        };
        let sources = self.finder.sources.iter().zip(&self.plans);
        sources
            .map(|(paths, plan)| plan.follows.then(|| poller(paths, plan)))
            .collect()
    }
}

/// Returns the pipeline of `producer`; `stop_waiting` ends waits of flow control.
pub(crate) fn assemble(
    config: &ProducerConfig,
    producer: &Committer,
    parts: Parts,
    metrics: Arc<Metrics>,
    progress: Arc<InputProgress>,
    sampler: Option<Arc<SampleTaker>>,
    stop_waiting: CancellationToken,
) -> Result<Pipeline, RunError> {
    let batches = config
        .producer
        .limit
        .batches(config.producer.index, config.producer.of);
    let stages = ProducerStages::new(
        producer.name().as_str(),
        parts.transform.clone(),
        &producer.changes(),
        producer.made_from(),
        batches,
    );
    let begun = stages.begin(parts.from.clone(), producer.made_from())?;
    let uploader = uploader(config, producer, &parts, metrics.clone(), sampler);
    let (reading, changes) = reading(config, producer, &parts, &metrics)?;
    let mut settings = parts.settings.clone();
    keep_stage(&mut settings, &begun.form);
    let own = || packer(config, &parts, producer.made_from(), batches);
    let batching = BatchBuilderOptions {
        packer: begun.packer.unwrap_or_else(own),
        slices: stages.slices(&begun.form),
        encoder: begun.form.encoder,
        stage: begun.stage,
        stage_name: begun.form.name,
        missing: begun.missing,
        take_first: taken(&parts, &producer.changes()),
        stages: Some(stages),
        next_seq: producer.made_from(),
        first_new: producer.next_seq(),
        changes,
        batches,
        inputs: parts.head,
        settings,
        fill_last: config.packing.last_batch == LastBatch::Pad,
        on_bad_document: config.source.on_bad_document,
        strict_replay: parts.strict_replay,
        object_bytes: config.packing.object_bytes.bytes(),
        group_batches: flow_control::entry_max(config).min(GROUP_BATCHES_MAX),
    };
    let function = !config.transform.function.is_empty();
    let follows = parts.plans.iter().any(|plan| plan.follows);
    let source = |config: &ProducerConfig| (config.source.format, config.source.field.clone());
    Ok(Pipeline {
        files: NamedFiles::from_config(config, parts.inputs.clone(), parts.root),
        end: end(config, parts.from.at.pass),
        reading,
        batching,
        tokenizing: ChunkTokenizer {
            transform: parts.transform,
            inputs: parts.inputs,
            sources: config.by_source().iter().map(source).collect(),
            metrics: function.then(|| metrics.function.clone()),
        },
        threads: config.document_threads(),
        linger: config.commit.linger.0,
        windows: BatchWindows {
            batches: config.longest_window(),
            linger: config.shortest_linger().filter(|_| follows),
        },
        uploader: Arc::new(uploader),
        uploads: config.upload.concurrency,
        repeated: Repeated::new(producer),
        memory: config.upload.memory.bytes(),
        metrics,
        progress,
        held: Arc::default(),
        stop_waiting,
    })
}

/// Returns the number of documents that sources with names had given at the cursor. A packer of a stage with a smaller
/// look-ahead would make its next batch of fewer.
fn taken(parts: &Parts, log: &ChangesInLog) -> u64 {
    let order = parts.order.as_ref().filter(|_| !log.stages.is_empty());
    order.map_or(0, |order| order.total[0].saturating_add(order.ahead))
}

/// Returns the packer that continues where the cursor does; `next` is the number of the next batch.
fn packer(
    config: &ProducerConfig,
    parts: &Parts,
    next: Seq,
    limit: Option<Seq>,
) -> Box<dyn Packer> {
    let transform = &parts.transform;
    let batches = transform.batches(transform.stream_form(), next, limit);
    let from = parts.from.clone();
    let inner = transform.packer(from.clone(), batches);
    let Some(shuffle) = config.row_shuffle() else {
        return inner;
    };
    Box::new(ShuffledRows::new(inner, shuffle, batches, from))
}

fn uploader(
    config: &ProducerConfig,
    producer: &Committer,
    parts: &Parts,
    metrics: Arc<Metrics>,
    sampler: Option<Arc<SampleTaker>>,
) -> Uploader {
    let object_bytes = config.packing.object_bytes.bytes();
    Uploader {
        store: parts.store.clone(),
        stream: producer.log().manifest().stream_id(),
        producer: producer.name().clone(),
        epoch: producer.epoch(),
        nonce: producer.nonce(),
        first_new: producer.next_seq(),
        buffers: Buffers::new(config.upload.concurrency as u64 * (object_bytes + (1 << 20))),
        provenance: config.packing.provenance,
        give_up_after: config.upload.give_up_after.0,
        metrics,
        sampler,
    }
}

/// Returns the point behind all documents of a producer that continues in this pass.
fn end(config: &ProducerConfig, pass: u64) -> Point {
    if config.sources.is_empty() {
        Point::pass(config.source.epochs.max(pass))
    } else {
        Point::end()
    }
}

/// Returns the reading of the sources, and the changes of the mixture that the log has for sources with names.
fn reading(
    config: &ProducerConfig,
    producer: &Committer,
    parts: &Parts,
    metrics: &Metrics,
) -> Result<(Reading, Option<MixtureChanges>), RunError> {
    let named = !config.sources.is_empty();
    let stored = parts.order.clone();
    let mut state = stored.unwrap_or_else(|| SamplerState::start(parts.plans.len()));
    let mut options = sampler_options(config)?;
    let sources = MixedSources {
        producer: producer.name().clone(),
        plans: parts.plans.clone(),
        weights: options.weights.clone(),
    };
    let mut changes = None;
    if named {
        let log = producer.changes();
        let passes = options.passes.clone();
        let (resumed, at) =
            MixtureChanges::resume(log.from.clone(), producer.made_from(), state, passes);
        (changes, state) = (Some(resumed), at);
        options.mixtures = sources.needed(&log, &state)?;
    } else {
        let from = parts.from.at;
        state.at[0].position = from.place().position(from.pass);
    }
    let reading = Reading {
        inputs: parts.inputs.clone(),
        new_files: parts.pollers(config, producer, &metrics.bad_folders),
        sources,
        named,
        sampler: Sampler::new(options, state),
        selection: config.split.selection(),
        full: ChunkSize::from_config(config),
    };
    Ok((reading, changes))
}
