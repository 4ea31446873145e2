//! Creating one copy of the log's content.

use batchweave_store::{Create, Store, StoreError};
use bytes::Bytes;
use tracing::warn;

use crate::read::fitting::get_fitting;

/// Creates a copy of the log's content. All writers write the same bytes, so an existing object counts as ours, unless
/// it has other bytes: then it is damaged, of a former log or forged, and replaced.
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
    warn!(
        key,
        "replacing a copy of the log's content that is damaged or another's"
    );
    store.delete(key).await?;
    if store.create(key, bytes).await? == Create::Exists {
        warn!(
            key,
            "another writer stored this copy of the log's content again meanwhile: left as it is"
        );
    }
    Ok(())
}
