//! `--check`: opens everything that the configuration names, as a start does, and changes nothing: the tokenizer
//! and template, the first documents of the input (`documents`), the stream (`stream`) and its size (`size`) and the store.

mod balance;
mod balance_rows;
mod documents;
mod drawn;
mod function;
mod readable;
mod size;
mod stream;

use std::path::Path;
use std::sync::Arc;

use batchweave_daemon::check::{Findings, check_creates, open_store};
use batchweave_store::{ErrorKind, Store, local_path};
use futures::future::BoxFuture;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::settings::settings;
use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::transform::chat::DIALECT_KEY;
use crate::transform::{DocumentTransform, missing_begin_token};
use crate::worker::Worker;

/// Opens everything that `config` names and returns what it found. Leaves nothing behind.
pub fn check(config: ProducerConfig) -> BoxFuture<'static, Findings> {
    Box::pin(open_everything(config))
}

async fn open_everything(config: ProducerConfig) -> Findings {
    let config = config.with_named_source();
    // Lanes differ in their shares only.
    let config = match config.producer.lanes.first() {
        Some(lane) => config.of_lane(lane),
        None => config,
    };
    let mut findings = Findings::default();
    let store = check_store(&config, &mut findings).await;
    let transform = check_transform(&config, &mut findings).await;
    let listed = documents::check(&config, transform.as_ref(), &mut findings).await;
    if let Some(transform) = &transform {
        let opened = (store.as_ref(), listed.clone());
        let committed = stream::check(&config, transform, opened, &mut findings).await;
        findings.opened("kept", kept(&config, transform));
        if let Some((list, committed)) = listed.as_ref().zip(committed) {
            size::check(&config, transform, (list, committed), &mut findings).await;
        }
    }
    if let Some((without_end, text)) = config.end_of_repeating() {
        let unbounded = without_end && config.bound().is_none();
        findings.opened(if unbounded { "warning" } else { "end" }, text);
    }
    // Last: from here on Ctrl-C ends this program only after the objects of the check are deleted.
    if let Some(store) = store {
        let largest = 2 * config.packing.object_bytes.bytes();
        report_creates(store.as_ref(), largest, &mut findings).await;
    }
    findings
}

/// Returns the keys that decide the batches' bytes, whose values a producer can't change later. Not `sources`, of which some
/// may join and leave, by rules of their own.
fn kept(config: &ProducerConfig, transform: &DocumentTransform) -> String {
    let settings = settings(config, transform);
    let mut keys: Vec<&str> = settings.keys().map(String::as_str).collect();
    // The dialect is not of the file: it is what this release makes of a template.
    keys.retain(|key| ![DIALECT_KEY, "sources", "mixture"].contains(key));
    let keys = keys.join(", ");
    format!(
        "{keys}: they decide the bytes, so a restart with other values is refused; keys at their defaults may do so \
         too, see docs/configuration.md"
    )
}

/// Reports whether the store creates objects exclusively, up to this size in bytes.
async fn report_creates(store: &dyn Store, largest: u64, findings: &mut Findings) {
    match Box::pin(check_creates(store, largest)).await {
        Ok(0) => {
            let text = format!("{}: readable, creates are exclusive", store.root());
            findings.opened("store", text);
        }
        Ok(left) => {
            let text = format!(
                "{}: readable, creates are exclusive; {left} small objects stay below probe/, since these \
                 credentials may not delete",
                store.root()
            );
            findings.opened("store", text);
        }
        Err(why) => findings.fault("store.url", why),
    }
}

/// Opens the store; a folder that a start would create is checked without creating it.
async fn check_store(config: &ProducerConfig, findings: &mut Findings) -> Option<Arc<dyn Store>> {
    let (url, create) = (&config.store.url, config.stream.create);
    let why = match Box::pin(open_store(url, &config.store.options())).await {
        Ok(store) => return Some(store),
        Err(why) => why,
    };
    let folder = local_path(url).map(Path::new);
    let folder = folder.filter(|folder| folder.is_absolute());
    match folder.filter(|_| create && why.kind == ErrorKind::NoBucket) {
        Some(folder) => {
            let mut above = folder.ancestors().skip(1);
            let there = above.find(|above| above.exists()).unwrap_or(Path::new("/"));
            let usable = if there.is_dir() {
                access(there, Access::WRITE_OK | Access::EXEC_OK)
            } else {
                Err(Errno::NOTDIR)
            };
            match usable {
                Ok(()) => findings.opened("store", format!("{url}: a start creates this folder")),
                Err(errno) => {
                    let (there, why) = (there.display(), std::io::Error::from(errno));
                    let text = format!(
                        "{url} can't be created in {there}: {why}; give a folder of its own to the stream, and that one to this user"
                    );
                    findings.fault("store.url", text);
                }
            }
        }
        None => findings.fault("store.url", why),
    }
    None
}

/// Loads the tokenizer and the template.
async fn check_transform(
    config: &ProducerConfig,
    findings: &mut Findings,
) -> Option<Arc<DocumentTransform>> {
    let loaded = config.clone();
    let transform = match Worker::start("tokenizer", move || DocumentTransform::new(&loaded)) {
        Ok(worker) => worker.join().await,
        Err(why) => Err(why),
    };
    match transform.map_err(RunError::from).and_then(|t| Ok(t?)) {
        Ok(transform) => {
            let border = |token: Option<u32>, does: &str| match token {
                Some(token) => format!("; token {token} {does} a document"),
                None => String::new(),
            };
            let begins = border(transform.begin_token(), "begins");
            let ends = border(transform.end_token(), "ends");
            findings.opened("tokenizer", transform.identity().name + &begins + &ends);
            if let Some(warning) = missing_begin_token(config) {
                findings.opened("warning", warning);
            }
            for warning in config.unlike_batches() {
                findings.opened("warning", warning);
            }
            if config.documents().has_template() {
                findings.opened("template", config.chat.template.clone());
            }
            for text in transform.stages_in_words() {
                findings.opened("stage", text);
            }
            Some(Arc::new(transform))
        }
        Err(why) => {
            findings.fault("", why);
            None
        }
    }
}
