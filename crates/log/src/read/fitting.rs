//! Reads that are repeated until the bytes fit their key. The bytes of another object, an older version of the same
//! key and a rotated range may be intact by themselves: one wrong answer says nothing about the object.

use std::sync::Arc;

use async_trait::async_trait;
use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_store::{Store, StoreError, found, layer};
use bytes::Bytes;
use tracing::warn;

/// Further reads, each over a new connection, of an object that does not fit.
pub(crate) const REREADS_MAX: u32 = 4;

/// Reads a whole object and parses it. While `parse` refuses the bytes, reads them again over new connections; the
/// last answer counts.
pub async fn get_fitting<T: Send, E: Send>(
    store: &dyn Store,
    key: &str,
    parse: impl Fn(&Bytes) -> Result<T, E> + Send + Sync,
) -> Result<Result<T, E>, StoreError> {
    let at_most = keys::bytes_max(key);
    let mut bytes = store.get(key, at_most).await?;
    let mut parsed = parse(&bytes);
    for _ in 0..REREADS_MAX {
        if parsed.is_ok() {
            break;
        }
        let again = store.get_fresh(key, at_most).await?;
        if again == bytes {
            continue;
        }
        (parsed, bytes) = (parse(&again), again);
        if parsed.is_ok() {
            warn_misread(key);
        }
    }
    Ok(parsed)
}

/// Logs that a read returned other bytes than the object has.
pub(crate) fn warn_misread(key: &str) {
    warn!(
        key,
        "a read returned bytes that do not belong to this key; it was read again"
    );
}

/// Reads the record of a version; `None` when it is missing or has another hash, also when read again.
pub(crate) async fn record_with_hash(
    store: &dyn Store,
    version: Version,
    hash: Hash,
) -> Result<Option<Bytes>, StoreError> {
    let fits = |bytes: &Bytes| {
        let same = Hash::sha256(bytes) == hash;
        same.then(|| bytes.clone()).ok_or(())
    };
    let record = found(get_fitting(store, &keys::log(version), fits).await)?;
    Ok(record.and_then(Result::ok))
}

/// A store whose whole reads each use a new connection: for a second try of work that a wrong read may have spoiled.
#[derive(Debug)]
pub(crate) struct FreshReads(Arc<dyn Store>);

impl FreshReads {
    pub(crate) fn around(store: &Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Self(Arc::clone(store)))
    }
}

#[async_trait]
impl layer::Intercept for FreshReads {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.0.get_fresh(key, at_most).await
    }
}
