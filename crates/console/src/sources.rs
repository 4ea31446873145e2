//! The source documents of steps: provenance objects, and file names from the producers' input lists.

use std::collections::BTreeMap;

use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::PinnedFile;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::ProducerState;
use batchweave_core::order::{Weight, unnamed_source};
use batchweave_core::provenance::{Piece, Provenance};
use batchweave_log::{Log, LogError, get_fitting, read_inputs};
use batchweave_store::{Store, found};
use futures::future::BoxFuture;

use crate::error::CliError;

/// Files of an input list; their indexes are the file numbers in provenance.
pub type Names = Vec<PinnedFile>;

/// Returns names and configured weights of the sources of a producer, as its cursor keeps them; empty for one that has
/// only one, or has committed nothing.
pub fn weighted(state: &ProducerState) -> Vec<(String, Weight)> {
    let named = state
        .cursor
        .0
        .pointer("/settings/sources")
        .and_then(serde_json::Value::as_array);
    let source = |source: &serde_json::Value| {
        let name = source["name"].as_str()?.to_owned();
        Some((name, Weight::new(source["weight"].as_f64()?).ok()?))
    };
    named
        .map(|all| all.iter().filter_map(source).collect())
        .unwrap_or_default()
}

/// Returns the names of sources by their numbers in `source_ids`; none where producers have other ones there.
pub fn numbered(m: &Manifest) -> BTreeMap<u16, Option<String>> {
    let mut names: BTreeMap<u16, Option<String>> = BTreeMap::new();
    for (_, state) in m.producers() {
        for (number, (name, _)) in (0..).zip(weighted(state)) {
            let known = names.entry(number).or_insert_with(|| Some(name.clone()));
            if known.as_ref() != Some(&name) {
                *known = None;
            }
        }
    }
    names
}

/// Reads the provenance object under `key`.
pub fn provenance<'a>(
    store: &'a dyn Store,
    key: &'a str,
) -> BoxFuture<'a, Result<Provenance, CliError>> {
    Box::pin(async move {
        let read = found(get_fitting(store, key, |bytes| Provenance::decode(bytes)).await)?
            .ok_or_else(|| {
                CliError::Unsound(format!(
                    "{}/{key} is missing: the source documents of its steps are unknown; \
                 restore it from a bucket version or backup",
                    store.root()
                ))
            })?;
        read.map_err(|why| CliError::Unsound(format!("{}/{key}: {why}", store.root())))
    })
}

/// Returns the files of `producer` in the input list that its cursor refers to now; earlier lists, which
/// older steps refer to, are prefixes of it. Empty when the list is not there.
pub fn names<'a>(
    log: &'a mut Log,
    producer: &'a ProducerName,
) -> BoxFuture<'a, Result<Names, CliError>> {
    Box::pin(async move {
        // Retries after the first read.
        let mut tries = 0..2;
        loop {
            let state = log.manifest().producer(producer);
            let head = state.and_then(|p| p.input_list().ok()).flatten();
            let unnamed = state.and_then(|p| unnamed_source(&p.cursor));
            let unnamed = unnamed.map(str::to_owned);
            match read_inputs(log.store().as_ref(), producer, head).await {
                Ok((_, mut pins)) => {
                    for pin in pins.iter_mut().filter(|pin| pin.source.is_none()) {
                        pin.source.clone_from(&unnamed);
                    }
                    return Ok(pins);
                }
                Err(LogError::Store(why)) if why.is_not_found() => {}
                Err(why) => return Err(why.into()),
            }
            if tries.next().is_none() {
                return Ok(Names::new());
            }
            // The list has grown since, and its earlier version was reclaimed.
            log.catch_up().await?;
        }
    })
}

/// Formats the place of a document: `corpus/a.jsonl:17`, lines and rows counted from 1; `corpus/a.jsonl@9216` in a file
/// whose lines are numbered by the byte at which they begin; and the source, where the producer has several.
pub fn place(piece: &Piece, names: &Names) -> String {
    let (file, line) = (piece.file, piece.unit.saturating_add(1));
    let Some(pin) = usize::try_from(file).ok().and_then(|n| names.get(n)) else {
        return format!("input file {}:{line}", file.saturating_add(1));
    };
    let place = document(pin, piece.unit);
    match &pin.source {
        Some(source) => format!("{place} ({source})"),
        None => place,
    }
}

/// Formats the place of document `unit` of a file.
pub fn document(pin: &PinnedFile, unit: u64) -> String {
    if pin.by_byte {
        format!("{}@{unit}", pin.name)
    } else {
        format!("{}:{}", pin.name, unit.saturating_add(1))
    }
}
