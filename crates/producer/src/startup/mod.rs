//! From the configuration to an opened producer and its pipeline. Everything that can be refused is refused
//! before the producer is opened, because opening it fences an older instance.
//!
//! - `first_answer` waits for the store; `stream` finds or creates the stream; `tokenizer_file` stores the tokenizer beside it; `inputs` makes the finder of the input files;
//! - `forms` finds what names of files mean, now and for an older cursor;
//! - `settings` lists the settings that a cursor keeps; `resume` checks the stored cursor against them and the
//!   input;
//! - `sources` plans the order of several sources;
//! - `assemble` makes the pipeline; `check` opens the same for `--check`, and changes nothing.

mod assemble;
mod check;
mod first_answer;
mod forms;
mod inputs;
mod reading;
mod resume;
mod settings;
mod sources;
mod stream;
mod tokenizer_file;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use batchweave_core::commit_policy::{Dac, DacOptions};
use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::manifest::Manifest;
use batchweave_log::{Committer, Log, LogOptions, OpenOutcome};

use self::inputs::file_root;
use self::resume::{Place, Resume, Resumed};
use self::settings::settings;
use self::sources::plan;
use crate::config::{Delete, ProducerConfig};
use crate::error::RunError;
use crate::packing::Point;
use crate::site::Site;
use crate::sources::{FileRoot, InputFinder, InputList, Inputs, SourceError, store_list};
use crate::transform::DocumentTransform;
use crate::transform::chat::Dialect;

pub(crate) use assemble::{Parts, assemble};
pub use check::check;
pub(crate) use inputs::input_finder;
pub(crate) use reading::read_options;

/// A producer in its new epoch and the state that its pipeline starts from.
pub(crate) struct Opened {
    pub(crate) producer: Committer,
    /// The commit policy, which has learned from the opening.
    pub(crate) policy: Dac,
    pub(crate) parts: Parts,
}

/// The result of startup, when nothing failed.
pub(crate) enum Opening {
    Opened(Box<Opened>),
    /// The producer finished before, with this many batches.
    Finished(Seq),
    /// The stream is sealed or has ended.
    Sealed,
}

/// Checks everything that the configuration names, opens the producer and stores its input list. The health of `site`
/// shows the current step.
pub(crate) async fn open(site: &Site, config: &ProducerConfig) -> Result<Opening, RunError> {
    let health = &site.health;
    let (ready, mut log) = open_stream(site, config).await?;
    let name: ProducerName = config.producer.name.parse()?;
    if let Some(batches) = finished(log.manifest(), &name) {
        return Ok(Opening::Finished(batches));
    }
    refuse_deletion(log.manifest(), config)?;
    health.not_ready("listing the input");
    let resume = Resume {
        store: &site.store,
        producer: &name,
        settings: &settings(config, &ready.transform),
        sources: &config.all_sources(),
    };
    let (place, mut resumed) = find_place(&mut log, &resume, &ready.finder).await?;
    forms::check(config, &resumed.inputs)?;
    for line in resumed.inputs.left_out.lines() {
        tracing::warn!("{line}");
    }
    health.not_ready("opening the producer");
    let mut policy = policy(config);
    let producer = match take_over(log, &name, &mut policy).await? {
        ControlFlow::Continue(producer) => producer,
        ControlFlow::Break(opening) => return Ok(opening),
    };
    // An older instance may have committed until it was fenced.
    let now = Place::of(producer.state());
    if now != place {
        let listed = ready.finder.find(BTreeSet::new()).await?;
        resumed = resume.check(&now, listed).await?;
    }
    let parts = parts(site, config, &producer, ready, resumed).await?;
    log_start(&producer, parts.from.at, &parts.inputs.now());
    log_end(config);
    Ok(Opening::Opened(Box::new(Opened {
        producer,
        policy,
        parts,
    })))
}

/// The parts of a producer that are ready before its cursor is known.
struct Ready {
    transform: Arc<DocumentTransform>,
    finder: InputFinder,
    root: Option<FileRoot>,
}

/// Probes the store, loads the tokenizer, and opens the stream and its log.
async fn open_stream(site: &Site, config: &ProducerConfig) -> Result<(Ready, Log), RunError> {
    let store = &site.store;
    let health = &site.health;
    health.not_ready("probing the store");
    // `pipeline::batch` fills an object beyond its size by less than one batch.
    let largest = 2 * config.packing.object_bytes.bytes();
    let patience = config.upload.give_up_after.0;
    first_answer::probe(store.as_ref(), largest, patience, health).await?;
    health.not_ready("loading the tokenizer");
    let transform = site.transform(config).await?;
    health.not_ready("opening the stream");
    let finder = input_finder(config);
    let root = file_root(config, &finder).await?;
    stream::open(store, config, &transform, &finder).await?;
    tokenizer_file::store(store, config, &transform).await;
    health.not_ready("opening the log");
    let log = Log::open(store.clone(), &LogOptions::new(rand::random())).await?;
    let ready = Ready {
        transform,
        finder,
        root,
    };
    Ok((ready, log))
}

/// Opens the producer in a new epoch, which fences an older instance. Breaks with the end of the startup when there is
/// nothing to produce.
async fn take_over(
    log: Log,
    name: &ProducerName,
    policy: &mut Dac,
) -> Result<ControlFlow<Opening, Committer>, RunError> {
    let opened = Committer::open_with(log, name.clone(), &instance(), policy).await?;
    Ok(match opened {
        OpenOutcome::Opened(producer) => ControlFlow::Continue(*producer),
        OpenOutcome::Finished { tgbs } => ControlFlow::Break(Opening::Finished(tgbs)),
        OpenOutcome::Sealed => ControlFlow::Break(Opening::Sealed),
        OpenOutcome::Fenced { by, instance } => {
            return Err(RunError::Fenced {
                producer: name.to_string(),
                by,
                instance,
            });
        }
    })
}

/// Plans the input from the place where the producer continues, and stores its list.
async fn parts(
    site: &Site,
    config: &ProducerConfig,
    producer: &Committer,
    ready: Ready,
    resumed: Resumed,
) -> Result<Parts, RunError> {
    let Resumed {
        mut inputs,
        mut chain,
        from,
        order,
        file_order,
        dialect,
        settings,
        strict_replay,
    } = resumed;
    continue_in(dialect, &ready.transform, producer.name());
    site.health.not_ready("planning the input");
    let end_token = ready.transform.end_token();
    let plans = plan(config, end_token, &mut inputs, order.as_ref(), file_order).await?;
    site.health.not_ready("storing the input list");
    let opening = (producer.epoch(), producer.nonce());
    let head = store_list(&site.store, producer.name(), opening, &mut chain, &inputs).await?;
    Ok(Parts {
        store: site.store.clone(),
        transform: ready.transform,
        finder: ready.finder,
        inputs: Arc::new(Inputs::new(inputs)),
        root: ready.root,
        settings,
        chain,
        head,
        from,
        plans,
        order,
        strict_replay,
    })
}

/// Continues in the dialect of templates in which the producer began.
fn continue_in(dialect: Dialect, transform: &DocumentTransform, producer: &ProducerName) {
    if dialect.is_earlier() {
        tracing::info!(
            %producer,
            "this producer began by the rules for templates of an earlier version: each conversation is made by those \
             and by today's, and the first one that differs stops it"
        );
        transform.continue_in(dialect);
    }
}

/// Returns the producer's place as far as the log is folded, and that in the input.
async fn find_place(
    log: &mut Log,
    resume: &Resume<'_>,
    finder: &InputFinder,
) -> Result<(Place, Resumed), RunError> {
    let current = |log: &Log| Place::of(log.manifest().producer(resume.producer));
    loop {
        let place = current(log);
        let listed = finder.find(BTreeSet::new()).await?;
        match resume.check(&place, listed).await {
            // An instance that still works may have grown the list, and older links may have been reclaimed.
            Err(why @ RunError::Source(SourceError::List(_))) => {
                log.catch_up().await?;
                if current(log) == place {
                    return Err(why);
                }
            }
            resumed => return Ok((place, resumed?)),
        }
    }
}

fn policy(config: &ProducerConfig) -> Dac {
    Dac::new(DacOptions {
        target: config.commit.latency_target.0,
        seed: rand::random(),
    })
}

/// Refuses to delete files of inboxes in a fork: its parent, and other forks, may read them.
fn refuse_deletion(manifest: &Manifest, config: &ProducerConfig) -> Result<(), RunError> {
    let deletes = config.inbox.delete == Delete::Committed;
    match &manifest.stream().parent {
        Some(parent) if deletes && config.all_sources().iter().any(|source| source.inbox) => {
            Err(RunError::SharedInbox(parent.to_string()))
        }
        _ => Ok(()),
    }
}

/// Returns the number of batches of a producer that has finished, and logs that its input is not read.
fn finished(manifest: &Manifest, name: &ProducerName) -> Option<Seq> {
    let state = manifest.producer(name).filter(|p| p.finished)?;
    tracing::info!(
        producer = %name,
        "this producer finished before, so its input is not read: new documents need a producer of another \
         name, or source.follow from the start"
    );
    Some(state.next_seq)
}

fn log_start(producer: &Committer, from: Point, inputs: &InputList) {
    let repeated = producer.next_seq() - producer.made_from();
    if repeated > 0 {
        tracing::info!(
            producer = %producer.name(),
            from = producer.made_from(),
            batches = repeated,
            "this stream is a fork: batches of its parent are made once more, compared and dropped"
        );
    }
    tracing::info!(
        producer = %producer.name(),
        term = producer.epoch(),
        batches = producer.next_seq(),
        files = inputs.files.len(),
        pass = from.pass,
        file = inputs.files.get(from.file as usize).map_or("", |f| f.pin.name.as_str()),
        unit = from.unit + 1,
        skip = from.skip,
        "producing"
    );
}

/// Logs what ends the run where sources repeat without end.
fn log_end(config: &ProducerConfig) {
    match config.end_of_repeating() {
        Some((true, text)) if config.bound().is_none() => tracing::warn!("{text}"),
        Some((_, text)) => tracing::info!("{text}"),
        None => {}
    }
}

/// Returns the name of this process for people: host and process id.
fn instance() -> String {
    format!("{}:{}", host(), std::process::id())
}

/// Returns the name of this machine.
fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().to_owned()
}

/// Returns the process id in the name of an instance of `host`; `None` for another machine's.
fn instance_of(instance: &str, host: &str) -> Option<u32> {
    let pid = instance.strip_prefix(host)?.strip_prefix(':')?;
    pid.parse().ok()
}
