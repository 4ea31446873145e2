//! Creating one copy of the log's content.

use batchweave_store::{Create, Store, StoreError};
use bytes::Bytes;
use tracing::warn;

use crate::read::fitting::get_fitting;

/// Creates a copy of the log's content. All writers write the same bytes, so an existing object counts as ours,
/// unless it is damaged: then it is replaced.
pub(crate) async fn put_copy(store: &dyn Store, key: &str, bytes: Bytes) -> Result<(), StoreError> {
    match store.create(key, bytes.clone()).await? {
        Create::Created => return Ok(()),
        Create::Exists => {}
    }
    let same = |there: &Bytes| (*there == bytes).then_some(()).ok_or(());
    if store.head(key).await?.size == bytes.len() as u64
        && get_fitting(store, key, same).await?.is_ok()
    {
        return Ok(());
    }
    warn!(key, "replacing a damaged copy of the log's content");
    store.delete(key).await?;
    match store.create(key, bytes).await? {
        Create::Created | Create::Exists => Ok(()),
    }
}
