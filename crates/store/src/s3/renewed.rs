//! A store whose requests are repeated once with new credentials, where the store has refused those that a request
//! was signed with and there are others by now. A refused request had no effect.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use super::S3Store;
use super::credentials::Renewable;
use crate::{
    Body, Chunks, Create, Effect, ErrorKind, Inspect, ListPage, ObjectMeta, Op, PendingUpload,
    Store, StoreError, Watch,
};

#[derive(Debug)]
pub(super) struct Renewed {
    store: S3Store,
    credentials: Renewable,
}

impl Renewed {
    pub(super) fn new(store: S3Store, credentials: Renewable) -> Self {
        Self { store, credentials }
    }

    async fn again<T, R>(&self, run: impl Fn() -> R + Send + Sync) -> Result<T, StoreError>
    where
        T: Send,
        R: Future<Output = Result<T, StoreError>> + Send,
    {
        let generation = self.credentials.generation();
        let outcome = run().await;
        let refused = outcome.as_ref().err().is_some_and(is_refusal);
        if refused && self.credentials.renew(generation).await {
            return run().await;
        }
        outcome
    }
}

/// Returns whether other credentials may help. The answer to a HEAD has no body that would say so.
fn is_refusal(error: &StoreError) -> bool {
    let refused = matches!(error.kind, ErrorKind::Denied | ErrorKind::WrongKeys);
    let unsaid = error.op == Op::Head && error.kind == ErrorKind::Other;
    (refused || unsaid) && error.effect == Effect::DidNot
}

#[async_trait]
impl Store for Renewed {
    fn root(&self) -> &str {
        self.store.root()
    }

    fn key_bytes_max(&self) -> usize {
        self.store.key_bytes_max()
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.again(|| self.store.create(key, body.clone())).await
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.again(|| self.store.upload(key, body.clone())).await
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.again(|| self.store.get(key, at_most)).await
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.again(|| self.store.get_fresh(key, at_most)).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        self.again(|| self.store.get_range(key, range.clone()))
            .await
    }

    async fn open_range(
        &self,
        key: &str,
        range: Range<u64>,
        fresh: bool,
    ) -> Result<Box<dyn Body>, StoreError> {
        self.again(|| self.store.open_range(key, range.clone(), fresh))
            .await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.again(|| self.store.head(key)).await
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        self.again(|| self.store.list(prefix, page.clone())).await
    }

    async fn list_after(&self, prefix: &str, after: &str) -> Result<ListPage, StoreError> {
        self.again(|| self.store.list_after(prefix, after)).await
    }

    async fn folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.again(|| self.store.folders(prefix)).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.again(|| self.store.delete(key)).await
    }

    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        self.again(|| self.store.delete_many(keys)).await
    }

    async fn unfinished(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        self.again(|| self.store.unfinished(prefix)).await
    }

    async fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        self.again(|| self.store.abort(upload)).await
    }

    async fn watch(&self, prefix: &str) -> Result<Option<Watch>, StoreError> {
        self.store.watch(prefix).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        self.store.inspect()
    }
}
