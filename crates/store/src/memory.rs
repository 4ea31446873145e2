//! A store in memory, for tests and simulation. It never waits, so it suits virtual time.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, Range};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;

use crate::{
    Chunks, Create, Effect, ErrorKind, ListPage, Location, ObjectMeta, Op, Store, StoreError, key,
};

/// Keys per page of a listing, as in S3.
const PAGE_KEYS: usize = 1000;
/// Ranged reads arrive in chunks of at most this size, as from S3.
const CHUNK_BYTES: usize = 64 * 1024;

static NAMED: LazyLock<Mutex<BTreeMap<String, Arc<MemoryStore>>>> = LazyLock::new(Mutex::default);

/// A store in a map of this process.
pub struct MemoryStore {
    root: String,
    objects: Mutex<BTreeMap<String, Bytes>>,
}

impl MemoryStore {
    /// Returns a new, empty store.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::with_root("memory://anonymous"))
    }

    /// Returns this process's store of the given name, created empty on first use.
    pub fn named(name: &str) -> Arc<Self> {
        let mut named = lock(&NAMED);
        let make = || Arc::new(Self::with_root(&Location::Memory(name).to_string()));
        Arc::clone(named.entry(name.to_owned()).or_insert_with(make))
    }

    /// Returns a new, empty store that names itself by this URL: for tests of messages.
    pub fn at(root: &str) -> Arc<Self> {
        Arc::new(Self::with_root(root))
    }

    fn with_root(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            objects: Mutex::default(),
        }
    }

    /// Replaces or adds an object, against the contract: for tests that damage objects.
    pub fn overwrite(&self, key: &str, body: Bytes) {
        lock(&self.objects).insert(key.to_owned(), body);
    }

    /// Returns all keys in order.
    pub fn keys(&self) -> Vec<String> {
        lock(&self.objects).keys().cloned().collect()
    }

    /// Stores `body` unless `key` exists; returns the existing body.
    fn put(&self, op: Op, key: &str, body: Bytes) -> Result<Option<Bytes>, StoreError> {
        key::check(op, &self.root, key)?;
        let mut objects = lock(&self.objects);
        if let Some(existing) = objects.get(key) {
            return Ok(Some(existing.clone()));
        }
        // A copy, so that a slice of a large buffer does not keep all of it alive.
        objects.insert(key.to_owned(), Bytes::copy_from_slice(&body));
        Ok(None)
    }

    fn find(&self, op: Op, key: &str) -> Result<Bytes, StoreError> {
        key::check(op, &self.root, key)?;
        let found = lock(&self.objects).get(key).cloned();
        found.ok_or_else(|| self.error(op, key, ErrorKind::NotFound, "no such object"))
    }

    fn error(&self, op: Op, key: &str, kind: ErrorKind, detail: &str) -> StoreError {
        StoreError::new(
            op,
            format!("{}/{key}", self.root),
            kind,
            Effect::DidNot,
            detail,
        )
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MemoryStore({}, {} objects)",
            self.root,
            lock(&self.objects).len()
        )
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn root(&self) -> &str {
        &self.root
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        match self.put(Op::Create, key, body)? {
            None => Ok(Create::Created),
            Some(_) => Ok(Create::Exists),
        }
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        let size = body.len();
        match self.put(Op::Upload, key, body)? {
            Some(there) if there.len() != size => Ok(Create::Exists),
            _ => Ok(Create::Created),
        }
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let object = self.find(Op::Get, key)?;
        let size = object.len() as u64;
        if size > at_most {
            let location = format!("{}/{key}", self.root);
            return Err(StoreError::too_large(location, Some(size), at_most));
        }
        Ok(object)
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        key::check_range(&self.root, key, &range)?;
        let object = self.find(Op::GetRange, key)?;
        if range.end > object.len() as u64 {
            let detail = format!(
                "range {}..{} of an object of {} bytes",
                range.start,
                range.end,
                object.len()
            );
            return Err(self.error(Op::GetRange, key, ErrorKind::Range, &detail));
        }
        let body = object.slice(range.start as usize..range.end as usize);
        let starts = (0..body.len()).step_by(CHUNK_BYTES);
        let chunks =
            starts.map(move |start| Ok(body.slice(start..body.len().min(start + CHUNK_BYTES))));
        Ok(stream::iter(chunks).boxed())
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let object = self.find(Op::Head, key)?;
        Ok(ObjectMeta::new(key.to_owned(), object.len() as u64))
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        key::check_prefix(Op::List, &self.root, prefix)?;
        let after = match &page {
            Some(last) => Bound::Excluded(last.clone()),
            None => Bound::Included(prefix.to_owned()),
        };
        let objects = lock(&self.objects);
        let mut found = objects
            .range((after, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, body)| ObjectMeta::new(key.clone(), body.len() as u64));
        let objects: Vec<_> = found.by_ref().take(PAGE_KEYS).collect();
        let more = found.next().is_some();
        let next = objects.last().filter(|_| more).map(|last| last.key.clone());
        Ok(ListPage { objects, next })
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        key::check(Op::Delete, &self.root, key)?;
        lock(&self.objects).remove(key);
        Ok(())
    }
}
