//! Creating one copy of the log's content.

use batchweave_core::keys;
use batchweave_store::{Create, Store, StoreError};
use bytes::Bytes;
use tracing::warn;

/// Creates a copy of the log's content. All writers write the same bytes, so an existing object counts as ours,
/// unless it is damaged: then it is replaced.
pub(crate) async fn put_copy(store: &dyn Store, key: &str, bytes: Bytes) -> Result<(), StoreError> {
    match store.create(key, bytes.clone()).await? {
        Create::Created => return Ok(()),
        Create::Exists => {}
    }
    if store.head(key).await?.size == bytes.len() as u64
        && store.get(key, keys::bytes_max(key)).await? == bytes
    {
        return Ok(());
    }
    warn!(key, "replacing a damaged copy of the log's content");
    store.delete(key).await?;
    match store.create(key, bytes).await? {
        Create::Created | Create::Exists => Ok(()),
    }
}
