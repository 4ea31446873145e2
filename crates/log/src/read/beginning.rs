//! The state before version 0: empty, or, of a fork, the one that `stream.json` names by its hash.

use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::fork::ForkState;
use batchweave_core::stream::StreamConfig;
use batchweave_store::Store;
use bytes::Bytes;
use futures::future::BoxFuture;

use crate::error::LogError;
use crate::read::fitting::get_fitting;

/// Returns the state with which the log of a stream begins; `stream_json` are the bytes as stored.
pub(crate) fn beginning<'a>(
    store: &'a dyn Store,
    stream: StreamConfig,
    stream_json: &'a [u8],
) -> BoxFuture<'a, Result<Manifest, LogError>> {
    Box::pin(async move {
        let Some(parent) = stream.parent.clone() else {
            return Ok(Manifest::new(stream, stream_json));
        };
        let parse = |bytes: &Bytes| ForkState::from_json(bytes, &parent);
        let state = match get_fitting(store, keys::FORK, parse).await {
            Err(e) if e.is_not_found() => {
                let root = store.root().to_owned();
                return Err(LogError::NoForkState { root });
            }
            state => state??,
        };
        Ok(Manifest::forked(stream, stream_json, state)?)
    })
}
