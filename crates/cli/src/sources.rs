//! Which documents steps were made from: provenance objects, and the files' names from producers' input
//! lists.

use batchweave_core::ids::{Hash, ProducerName};
use batchweave_core::keys;
use batchweave_core::provenance::{Piece, Provenance};
use batchweave_producer::sources::InputList;
use batchweave_store::Store;

use crate::error::CliError;

/// Files' names by their number in an input list.
pub(crate) type Names = Vec<String>;

/// The provenance object under `key`.
pub(crate) async fn provenance(store: &dyn Store, key: &str) -> Result<Provenance, CliError> {
    let bytes = match store.get(key, keys::bytes_max(key)).await {
        Ok(bytes) => bytes,
        Err(e) if e.is_not_found() => {
            return Err(CliError::Unsound(format!(
                "{}/{key} is missing: nobody can tell which documents are in its steps; \
                 restore it from a bucket version or backup",
                store.root()
            )));
        }
        Err(e) => return Err(e.into()),
    };
    Provenance::decode(&bytes)
        .map_err(|why| CliError::Unsound(format!("{}/{key}: {why}", store.root())))
}

/// The names in the input list of `producer` under `hash`; none when there is no such list.
pub(crate) async fn names(
    store: &dyn Store,
    producer: &ProducerName,
    hash: Hash,
) -> Result<Names, CliError> {
    let key = keys::inputs(producer, hash);
    let bytes = match store.get(&key, keys::bytes_max(&key)).await {
        Ok(bytes) => bytes,
        Err(e) if e.is_not_found() => return Ok(Names::new()),
        Err(e) => return Err(e.into()),
    };
    let pins = InputList::pins_from_json(&bytes)
        .map_err(|why| CliError::Unsound(format!("{}/{key}: {why}", store.root())))?;
    Ok(pins.into_iter().map(|pin| pin.name).collect())
}

/// `corpus/a.jsonl:17`, lines and rows from 1.
pub(crate) fn place(piece: &Piece, names: &Names) -> String {
    let (file, line) = (piece.file, piece.unit.saturating_add(1));
    match usize::try_from(file).ok().and_then(|n| names.get(n)) {
        Some(name) => format!("{name}:{line}"),
        None => format!("input file {}:{line}", file.saturating_add(1)),
    }
}
