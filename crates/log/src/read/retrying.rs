//! A store whose reads are tried again after failures that pass, and of objects that came damaged: a
//! throttled, lost or wrong read says nothing about the log. Writes go through as they are: what became of them is for `resolve`.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use batchweave_core::{json, keys};
use batchweave_store::{
    Backoff, Chunks, Create, Inspect, ListPage, ObjectMeta, PendingUpload, Store, StoreError,
};
use bytes::Bytes;
use tracing::warn;

use crate::clock::Clock;

/// Failures in a row of one read before its caller is told: about a minute and a half.
const TRIES_MAX: u32 = 20;
/// Further reads, each over a connection of its own, of a JSON object that does not end in its digest:
/// it may have been damaged on the way here. The last answer counts.
const LOOKS_MAX: u32 = 4;

#[derive(Debug)]
pub(crate) struct Patient {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

impl Patient {
    pub(crate) fn around(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(Self { store, clock })
    }

    async fn retry<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        read: impl Fn() -> F,
    ) -> Result<T, StoreError> {
        let (mut backoff, mut tries) = (Backoff::STORE, 1);
        loop {
            match read().await {
                Err(e) if e.kind.is_transient() && tries < TRIES_MAX => {
                    if tries % 5 == 0 {
                        warn!(error = %e, tries, "a read failed: trying again");
                    }
                    tries += 1;
                    self.clock.sleep(backoff.pause()).await;
                }
                answer => return answer,
            }
        }
    }
}

/// Reads a whole JSON object, and again, over new connections, while it does not end in its own digest.
/// The last answer counts: what is damaged in the store is for its parser to refuse.
pub async fn get_intact(store: &dyn Store, key: &str) -> Result<Bytes, StoreError> {
    let at_most = keys::bytes_max(key);
    let bytes = store.get(key, at_most).await?;
    look_again(store, key, at_most, bytes).await
}

/// Whether objects of this kind end in their digest: all JSON but links of input lists, whose names
/// hold their hash.
fn has_digest(key: &str) -> bool {
    key.strip_suffix(".json").is_some() && !key.starts_with("inputs/")
}

async fn look_again(
    store: &dyn Store,
    key: &str,
    at_most: u64,
    mut bytes: Bytes,
) -> Result<Bytes, StoreError> {
    // A link of an input list is compared with the hash in its name by its own reader.
    if key.starts_with(keys::INPUTS) {
        return Ok(bytes);
    }
    for _ in 0..LOOKS_MAX {
        if !has_digest(key) || json::is_intact(&bytes) {
            break;
        }
        bytes = store.get_fresh(key, at_most).await?;
        if json::is_intact(&bytes) {
            warn!(
                key,
                "a read brought damaged bytes of a whole object; it was read again"
            );
        }
    }
    Ok(bytes)
}

#[async_trait]
impl Store for Patient {
    fn root(&self) -> &str {
        self.store.root()
    }

    fn key_bytes_max(&self) -> usize {
        self.store.key_bytes_max()
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.store.create(key, body).await
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.store.upload(key, body).await
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let bytes = self.retry(|| self.store.get(key, at_most)).await?;
        look_again(self, key, at_most, bytes).await
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.retry(|| self.store.get_fresh(key, at_most)).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        self.retry(|| self.store.get_range(key, range.clone()))
            .await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.retry(|| self.store.head(key)).await
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        self.retry(|| self.store.list(prefix, page.clone())).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.store.delete(key).await
    }

    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        self.store.delete_many(keys).await
    }

    async fn unfinished(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        self.retry(|| self.store.unfinished(prefix)).await
    }

    async fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        self.store.abort(upload).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        self.store.inspect()
    }
}
