//! A store whose reads are retried after transient failures and damaged answers: a throttled, lost or wrong
//! read says nothing about the log. Writes are not retried: `resolve` finds out their outcomes.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use batchweave_core::{json, keys};
use batchweave_store::{
    Backoff, Chunks, Inspect, ListPage, ObjectMeta, PendingUpload, Store, StoreError, layer,
};
use bytes::Bytes;
use tracing::warn;

use crate::clock::Clock;
use crate::read::fitting::REREADS_MAX;

/// Consecutive failures of one read before it fails: about a minute and a half.
const TRIES_MAX: u32 = 20;

/// A store whose reads are retried.
#[derive(Debug)]
pub(crate) struct RetryingReads {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

impl RetryingReads {
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
                        warn!(error = %e, tries, "a read failed; retrying");
                    }
                    tries += 1;
                    self.clock.sleep(backoff.pause()).await;
                }
                answer => return answer,
            }
        }
    }
}

/// Whether the object at `key` ends in its digest: all JSON objects do, except links of input lists and tokenizer
/// files, whose names hold their hash.
fn has_digest(key: &str) -> bool {
    let named = [keys::INPUTS, keys::TOKENIZERS];
    key.strip_suffix(".json").is_some() && !named.iter().any(|prefix| key.starts_with(prefix))
}

async fn reread_damaged(
    store: &dyn Store,
    key: &str,
    at_most: u64,
    mut bytes: Bytes,
) -> Result<Bytes, StoreError> {
    // The readers of the others compare them with the hash in their names.
    for _ in 0..REREADS_MAX {
        if !has_digest(key) || json::is_intact(&bytes) {
            break;
        }
        bytes = store.get_fresh(key, at_most).await?;
        if json::is_intact(&bytes) {
            warn!(
                key,
                "a read returned damaged bytes of an intact object; it was read again"
            );
        }
    }
    Ok(bytes)
}

#[async_trait]
impl layer::Intercept for RetryingReads {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let bytes = self.retry(|| self.store.get(key, at_most)).await?;
        reread_damaged(self, key, at_most, bytes).await
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

    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        self.store.delete_many(keys).await
    }

    async fn unfinished(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        self.retry(|| self.store.unfinished(prefix)).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        self.store.inspect()
    }
}
