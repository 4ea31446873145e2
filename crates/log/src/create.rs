//! Making a stream: one create-only put of stream.json.

use std::sync::Arc;

use batchweave_core::keys;
use batchweave_core::stream::StreamConfig;
use batchweave_store::Store;
use bytes::Bytes;

use crate::LogError;
use crate::clock::TokioClock;
use crate::commit::resolve::{self, Resolved};
use crate::read::retrying::get_intact;

/// What `create` found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Creation {
    /// The stream is new.
    Created(StreamConfig),
    /// It was there, with the same parameters; its own stream.json is returned.
    Existed(StreamConfig),
}

/// Creates the stream at the store's root, or finds it there with the same parameters.
pub async fn create(store: &Arc<dyn Store>, wanted: &StreamConfig) -> Result<Creation, LogError> {
    wanted
        .check()
        .map_err(|r| batchweave_core::error::FormatError::rule(keys::STREAM, r))?;
    match get_intact(store.as_ref(), keys::STREAM).await {
        Ok(bytes) => return compare(store.as_ref(), &bytes, wanted),
        Err(e) if e.is_not_found() => {}
        Err(e) => return Err(e.into()),
    }
    let strangers = store.list("", None).await?.objects;
    if let Some(stranger) = strangers.iter().find(|o| !o.key.starts_with("probe/")) {
        // A race with another creator is no stranger: its stream.json decides.
        match get_intact(store.as_ref(), keys::STREAM).await {
            Ok(bytes) => return compare(store.as_ref(), &bytes, wanted),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e.into()),
        }
        let root = store.root().to_owned();
        return Err(LogError::RootInUse {
            root,
            example: stranger.key.clone(),
        });
    }
    let bytes = Bytes::from(wanted.to_json());
    let clock = TokioClock::shared();
    match resolve::put(store.as_ref(), clock.as_ref(), keys::STREAM, bytes).await? {
        Resolved::Ours => Ok(Creation::Created(wanted.clone())),
        Resolved::Theirs(bytes) => compare(store.as_ref(), &bytes, wanted),
    }
}

fn compare(store: &dyn Store, bytes: &[u8], wanted: &StreamConfig) -> Result<Creation, LogError> {
    let found = StreamConfig::from_json(bytes, keys::STREAM)?;
    let differences = found.differences(wanted);
    if differences.is_empty() {
        return Ok(Creation::Existed(found));
    }
    Err(LogError::OtherStream {
        root: store.root().to_owned(),
        differences,
    })
}
