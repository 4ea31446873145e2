//! A store in the memory of this process: for tests and simulations.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;

use crate::contract::{Chunks, Create, ListPage, ObjectMeta, Store};
use crate::error::{Effect, ErrorKind, Op, StoreError};

/// Keys on one page of a listing, as on S3.
const PAGE: usize = 1000;

/// Objects in a map.
#[derive(Debug, Default)]
pub struct MemoryStore {
    objects: Mutex<BTreeMap<String, Bytes>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        // The map is whole between any two statements: a panic elsewhere can't tear it.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, op: Op, key: &str) -> Result<Bytes, StoreError> {
        let found = self.objects().get(key).cloned();
        found.ok_or_else(|| StoreError {
            op,
            location: format!("memory://{key}"),
            kind: ErrorKind::NotFound,
            effect: Effect::DidNot,
            detail: "no such object".to_owned(),
        })
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn root(&self) -> &str {
        "memory://"
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        let mut objects = self.objects();
        if objects.contains_key(key) {
            return Ok(Create::Exists);
        }
        objects.insert(key.to_owned(), body);
        Ok(Create::Created)
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.create(key, body).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.find(Op::Get, key)
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        let body = self.find(Op::GetRange, key)?;
        if range.end > body.len() as u64 || range.start > range.end {
            return Err(StoreError {
                op: Op::GetRange,
                location: format!("memory://{key}"),
                kind: ErrorKind::Range,
                effect: Effect::DidNot,
                detail: format!("bytes {range:?} of an object of {} bytes", body.len()),
            });
        }
        let part = body.slice(range.start as usize..range.end as usize);
        Ok(futures::stream::iter([Ok(part)]).boxed())
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let size = self.find(Op::Head, key)?.len() as u64;
        Ok(ObjectMeta { key: key.to_owned(), size })
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        let objects = self.objects();
        let from = page.unwrap_or_else(|| prefix.to_owned());
        let mut found = objects.range(from..).take_while(|(key, _)| key.starts_with(prefix));
        let listed = found
            .by_ref()
            .take(PAGE)
            .map(|(key, body)| ObjectMeta { key: key.clone(), size: body.len() as u64 })
            .collect();
        Ok(ListPage { objects: listed, next: found.next().map(|(key, _)| key.clone()) })
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.objects().remove(key);
        Ok(())
    }
}
