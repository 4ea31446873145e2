//! Creating a stream: one create-only put of stream.json.

use std::sync::Arc;

use batchweave_core::keys;
use batchweave_core::stream::StreamConfig;
use batchweave_store::{Store, found};
use bytes::Bytes;
use futures::future::BoxFuture;

use crate::clock::TokioClock;
use crate::commit::resolve::{self, Resolved};
use crate::error::LogError;
use crate::read::fitting::get_fitting;

/// The outcome of [`create`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Creation {
    Created(StreamConfig),
    /// The stream existed with the same parameters; this is its stream.json.
    Existed(StreamConfig),
}

/// Creates the stream at the store's root. Fails when a stream with other parameters or other objects are
/// there.
pub fn create<'a>(
    store: &'a Arc<dyn Store>,
    wanted: &'a StreamConfig,
) -> BoxFuture<'a, Result<Creation, LogError>> {
    Box::pin(async move {
        wanted
            .check()
            .map_err(|r| batchweave_core::error::FormatError::rule(keys::STREAM, r))?;
        let existing = || async {
            let fits = |bytes: &Bytes| compare(store.as_ref(), bytes, wanted);
            found(get_fitting(store.as_ref(), keys::STREAM, fits).await)
        };
        if let Some(stream) = existing().await? {
            return stream;
        }
        let others = store.list("", None).await?.objects;
        if let Some(other) = others.iter().find(|o| !o.key.starts_with("probe/")) {
            // Another creator may have been faster: then its stream.json decides.
            if let Some(stream) = existing().await? {
                return stream;
            }
            let root = store.root().to_owned();
            return Err(LogError::RootInUse {
                root,
                example: other.key.clone(),
            });
        }
        let bytes = Bytes::from(wanted.to_json());
        let clock = TokioClock::shared();
        match resolve::put(store.as_ref(), clock.as_ref(), keys::STREAM, bytes).await? {
            Resolved::Ours => Ok(Creation::Created(wanted.clone())),
            Resolved::Theirs(bytes) => match existing().await? {
                Some(stream) => stream,
                None => compare(store.as_ref(), &bytes, wanted),
            },
        }
    })
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
