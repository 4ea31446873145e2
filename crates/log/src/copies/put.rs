//! Creating one copy of the log's content.

use batchweave_core::keys;
use batchweave_store::{Create, Store, StoreError};
use bytes::Bytes;
use tracing::warn;

/// Creates a copy of what the log says. Its bytes are the same whoever writes it, so an object that
/// is there is as good as ours, unless it was damaged: then it is replaced.
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
    warn!(key, "a damaged copy of the log's content is replaced");
    store.delete(key).await?;
    match store.create(key, bytes).await? {
        Create::Created | Create::Exists => Ok(()),
    }
}
