//! Finds out why a record does not continue the log. No correct writer puts such a record, so the root itself
//! was changed.

use batchweave_core::ids::{Hash, StreamId, Version};
use batchweave_core::keys;
use batchweave_core::stream::StreamConfig;
use batchweave_store::{Store, found};
use bytes::Bytes;

use crate::error::LogError;
use crate::read::fitting::{get_fitting, record_with_hash};

/// Fails when stream.json is missing or belongs to another stream than `stream`.
pub(crate) async fn check_root(store: &dyn Store, stream: StreamId) -> Result<(), LogError> {
    let ours = |bytes: &Bytes| match StreamConfig::from_json(bytes, keys::STREAM) {
        Ok(config) if config.stream_id == stream => Ok(()),
        other => Err(other.map(|config| config.stream_id)),
    };
    let now = match found(get_fitting(store, keys::STREAM, ours).await)? {
        Some(Ok(())) => return Ok(()),
        Some(Err(other)) => Some(other?),
        None => None,
    };
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
    if record_with_hash(store, before, held).await?.is_none() {
        return Err(LogError::Altered {
            key: keys::log(before),
            held,
        });
    }
    Ok(())
}
