//! Finds out why a record does not continue the log. No correct writer puts such a record, so the root itself
//! was changed.

use batchweave_core::ids::{Hash, StreamId, Version};
use batchweave_core::keys;
use batchweave_core::stream::StreamConfig;
use batchweave_store::Store;

use crate::error::LogError;
use crate::read::window::get_record;

/// Fails when stream.json is missing or belongs to another stream than `stream`.
pub(crate) async fn check_root(store: &dyn Store, stream: StreamId) -> Result<(), LogError> {
    let now = match store.get(keys::STREAM, keys::bytes_max(keys::STREAM)).await {
        Ok(bytes) => Some(StreamConfig::from_json(&bytes, keys::STREAM)?.stream_id),
        Err(e) if e.is_not_found() => None,
        Err(e) => return Err(e.into()),
    };
    if now == Some(stream) {
        return Ok(());
    }
    Err(LogError::OtherRoot {
        root: store.root().to_owned(),
        stream,
        now: now.map_or("no stream.json".to_owned(), |id| format!("stream {id}")),
    })
}

/// Fails when the record before `version` has changed since it was read: it had the hash `held` then.
pub(crate) async fn check_previous(
    store: &dyn Store,
    version: Version,
    held: Hash,
) -> Result<(), LogError> {
    let Some(before) = version.checked_sub(1) else {
        return Ok(());
    };
    let now = get_record(store, before).await?;
    if now.as_ref().map(|bytes| Hash::sha256(bytes)) != Some(held) {
        return Err(LogError::Altered {
            key: keys::log(before),
            held,
        });
    }
    Ok(())
}
