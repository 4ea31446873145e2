//! A store below a folder of another: compared streams share one store, so that the cost of a large store
//! affects both equally.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use batchweave_store::{Chunks, Create, ListPage, ObjectMeta, Store, StoreError};
use bytes::Bytes;

/// A view of the folder `folder` of another store.
#[derive(Debug)]
pub(super) struct Below {
    inner: Arc<dyn Store>,
    folder: String,
}

impl Below {
    pub(super) fn over(inner: &Arc<dyn Store>, folder: &str) -> Arc<dyn Store> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            folder: format!("{folder}/"),
        })
    }

    fn at(&self, key: &str) -> String {
        format!("{}{key}", self.folder)
    }

    fn without_folder(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if let Some(key) = meta.key.strip_prefix(&self.folder) {
            meta.key = key.to_owned();
        }
        meta
    }
}

#[async_trait]
impl Store for Below {
    fn root(&self) -> &str {
        self.inner.root()
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.inner.create(&self.at(key), body).await
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.inner.upload(&self.at(key), body).await
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.inner.get(&self.at(key), at_most).await
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.inner.get_fresh(&self.at(key), at_most).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        self.inner.get_range(&self.at(key), range).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let meta = self.inner.head(&self.at(key)).await?;
        Ok(self.without_folder(meta))
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        let page = self.inner.list(&self.at(prefix), page).await?;
        let objects = page.objects.into_iter();
        Ok(ListPage {
            objects: objects.map(|meta| self.without_folder(meta)).collect(),
            next: page.next,
        })
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.inner.delete(&self.at(key)).await
    }
}
