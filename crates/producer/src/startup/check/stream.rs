//! The stream of `--check`: absent, or with the configured parameters and a place for this producer.

use std::path::Path;
use std::sync::Arc;

use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::keys;
use batchweave_core::manifest::state::ProducerState;
use batchweave_core::stream::StreamConfig;
use batchweave_daemon::check::Findings;
use batchweave_log::{Log, LogError, LogOptions, get_fitting};
use batchweave_store::{Store, found};
use bytes::Bytes;

use super::super::resume::{Place, Resume};
use super::super::settings::settings;
use super::super::stream::wanted;
use super::super::{host, instance_of};
use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::pipeline::stages::lacking;
use crate::sources::InputList;
use crate::transform::DocumentTransform;

/// Checks the stream in `store`, if that could be opened, and that the producer can continue with the input that
/// was `listed`. Returns the batches that it has committed, if it is to make more.
pub(super) async fn check(
    config: &ProducerConfig,
    transform: &Arc<DocumentTransform>,
    (store, listed): (Option<&Arc<dyn Store>>, Option<InputList>),
    findings: &mut Findings,
) -> Option<Seq> {
    let outcome = Box::pin(examine(config, transform, (store, listed), findings)).await;
    outcome.map_err(|why| findings.fault("", why)).ok()?
}

async fn examine(
    config: &ProducerConfig,
    transform: &Arc<DocumentTransform>,
    (store, listed): (Option<&Arc<dyn Store>>, Option<InputList>),
    findings: &mut Findings,
) -> Result<Option<Seq>, RunError> {
    let wanted = wanted(config, transform)?;
    if let Err(why) = wanted.check() {
        findings.fault("stream", why);
    }
    let Some(store) = store else {
        findings.opened("stream", none_yet(&wanted));
        return Ok(Some(0));
    };
    let Some(there) = stored(store.as_ref(), &wanted).await? else {
        check_creation(store.as_ref(), config).await?;
        findings.opened("stream", none_yet(&wanted));
        return Ok(Some(0));
    };
    let options = LogOptions {
        write_snapshots: false,
        ..LogOptions::new(rand::random())
    };
    let log = Log::open(Arc::clone(store), &options).await?;
    let (steps, sealed) = (log.manifest().next_step(), log.manifest().sealed());
    let end = if sealed { "; it is sealed" } else { "" };
    findings.opened("stream", format!("{}, {steps} steps{end}", shape(&there)));
    examine_producer(config, transform, (store, &log, listed), findings).await
}

/// Checks the producer in the stream's log, and that it can continue with the input that was listed. Returns the batches
/// that it has committed, if it is to make more.
async fn examine_producer(
    config: &ProducerConfig,
    transform: &Arc<DocumentTransform>,
    (store, log, listed): (&Arc<dyn Store>, &Log, Option<InputList>),
    findings: &mut Findings,
) -> Result<Option<Seq>, RunError> {
    let name: ProducerName = config.producer.name.parse()?;
    let Some(state) = log.manifest().producer(&name) else {
        findings.opened("producer", format!("{name} is new in this stream"));
        report_lacking(transform, log, (&name, 0), findings);
        return Ok(Some(0));
    };
    if state.finished {
        let text = format!(
            "{name} finished before, with {} batches: a start reads nothing; new documents need another producer.name",
            state.next_seq
        );
        findings.opened("producer", text);
        return Ok(None);
    }
    if let Some(listed) = listed {
        let resume = Resume {
            store,
            producer: &name,
            settings: &settings(config, transform),
            sources: &config.all_sources(),
            stages: &crate::startup::settings::of_stages(config),
        };
        drop(Box::pin(resume.check(&Place::of(Some(state)), listed)).await?);
    }
    let text = format!("{name} continues after {} batches", state.next_seq);
    findings.opened("producer", text + &running(state));
    report_lacking(transform, log, (&name, state.next_seq), findings);
    Ok(Some(state.next_seq))
}

/// Warns of the stages at which a producer with this next batch will hold.
fn report_lacking(
    transform: &DocumentTransform,
    log: &Log,
    (name, next_seq): (&ProducerName, Seq),
    findings: &mut Findings,
) {
    for text in lacking(transform, log.manifest(), name, next_seq) {
        findings.opened("warning", text);
    }
}

/// Returns the parameters of the stream in `store`, if there is one; fails where they are not the wanted ones.
async fn stored(
    store: &dyn Store,
    wanted: &StreamConfig,
) -> Result<Option<StreamConfig>, RunError> {
    let parse = |bytes: &Bytes| StreamConfig::from_json(bytes, keys::STREAM);
    let Some(there) = found(get_fitting(store, keys::STREAM, parse).await)? else {
        return Ok(None);
    };
    let there = there.map_err(LogError::from)?;
    let differences = there.differences(wanted);
    if !differences.is_empty() {
        let root = store.root().to_owned();
        return Err(LogError::OtherStream { root, differences }.into());
    }
    Ok(Some(there))
}

/// Fails where a start could not create the stream.
async fn check_creation(store: &dyn Store, config: &ProducerConfig) -> Result<(), RunError> {
    let root = store.root().to_owned();
    let others = store.list("", None).await?.objects;
    let other = others.into_iter().find(|o| !o.key.starts_with("probe/"));
    if let Some(example) = other.map(|o| o.key) {
        return Err(LogError::RootInUse { root, example }.into());
    }
    if !config.stream.create {
        return Err(LogError::NoStream { root }.into());
    }
    Ok(())
}

fn none_yet(wanted: &StreamConfig) -> String {
    format!("none yet: a start creates it, {}", shape(wanted))
}

/// Returns the size of a batch.
fn shape(stream: &StreamConfig) -> String {
    format!(
        "{} slices x {} {}s x {} tokens",
        stream.slices,
        stream.rows_per_slice,
        stream.row_name(),
        stream.seq_len
    )
}

/// Returns a warning where the instance that opened the producer still runs on this machine.
fn running(state: &ProducerState) -> String {
    let Some(pid) = instance_of(&state.instance, &host()) else {
        return String::new();
    };
    let alive = !state.retired && Path::new("/proc").join(pid.to_string()).exists();
    if !alive {
        return String::new();
    }
    format!(
        "; it runs now, as process {pid}, and a second start would stop that one: another producer needs another \
         producer.name"
    )
}
