//! The contract of every store. One conformance suite (`testing::conformance`) checks it.
//!
//! Invariants:
//! - A key is created at most once: of any number of concurrent `create` calls on an absent key,
//!   exactly one answers `Created`; every other answers `Exists` or an error.
//! - A created object is visible whole or not at all, and its bytes never change.
//! - After `Created`, every later `get`, `head` and `list` by anyone sees the object.
//! - `list` promises no order.
//! - An error states whether the operation may have taken effect (`StoreError::effect`).

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Range;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::body::Copied;
use crate::{Body, Inspect, PendingUpload, StoreError, Watch};

/// The outcome of a create-only put that received a clear answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Create {
    /// The object did not exist and now holds our bytes.
    Created,
    /// The object existed already. Below a retrying client it may be our own first try: to find out,
    /// read the object and compare.
    Exists,
}

/// An object as `head` and `list` describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Key below the store's root.
    pub key: String,
    pub size: u64,
    /// The store's entity tag of these bytes, where a listing contains one.
    pub etag: Option<String>,
    /// The time at which the object was written, by the store's clock. For people: nothing is decided by it.
    pub modified: Option<SystemTime>,
}

impl ObjectMeta {
    /// Returns the description of an object of which the store says no more.
    pub fn new(key: String, size: u64) -> Self {
        Self {
            key,
            size,
            etag: None,
            modified: None,
        }
    }
}

/// One page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Objects, in no promised order.
    pub objects: Vec<ObjectMeta>,
    /// Token for the next page, to pass to `list`; `None` on the last page.
    pub next: Option<String>,
}

/// Chunks of a ranged read in order; their lengths add up to the range's exactly, or the last item
/// is an error.
pub type Chunks = BoxStream<'static, Result<Bytes, StoreError>>;

/// An object store below one root. Keys are relative to the root, `/`-separated, made of
/// `[A-Za-z0-9._@=-]` segments, never empty, never `.` or `..`.
#[async_trait]
pub trait Store: Send + Sync + Debug + 'static {
    /// Returns the root's URL for messages (`s3://bucket/prefix`, `file:///dir`).
    fn root(&self) -> &str;

    /// Returns the most bytes of a key. Every store accepts 255, the limit of file systems for one
    /// segment.
    fn key_bytes_max(&self) -> usize {
        255
    }

    /// Creates `key` with `body` if it is absent. Sends one request without hidden retries, so that a
    /// 412 after a lost answer never hides our own success. For records, which are small.
    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError>;

    /// Creates `key`, a name that only this caller uses (data objects). May retry and may use multipart
    /// uploads; answers `Exists` only if the object there has another size.
    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError>;

    /// Reads a whole object of at most `at_most` bytes. Fails with `ErrorKind::NotFound` if it is absent
    /// and with `ErrorKind::TooLarge` if it is larger, without reading or allocating more than the bound,
    /// whatever length the store claims.
    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError>;

    /// Reads like `get`, but over a new connection: to confirm bytes that look damaged, because the
    /// damage may lie in the connection or a proxy.
    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.get(key, at_most).await
    }

    /// Reads bytes `range` of the object as chunks in order of arrival. Fails with `ErrorKind::Range` if
    /// the range reaches beyond the object.
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError>;

    /// Opens bytes `range` of the object for large reads straight into the caller's memory. Returns when
    /// the first bytes have arrived. `fresh` demands a new connection, so that a second try of a late
    /// read is independent of the first. Throttling is reported immediately instead of retried, so that
    /// the caller can slow down.
    async fn open_range(
        &self,
        key: &str,
        range: Range<u64>,
        fresh: bool,
    ) -> Result<Box<dyn Body>, StoreError> {
        let _ = fresh;
        let chunks = self.get_range(key, range).await?;
        Ok(Box::new(Copied::new(chunks).await?))
    }

    /// Returns the size of the object.
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError>;

    /// Lists one page of the objects whose keys begin with `prefix` (which ends in `/` or is empty).
    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError>;

    /// Lists in byte order the objects below `prefix` whose keys are greater than `after`; `next` is the key to continue
    /// after. Fails where a store lists in no order. By default it lists all of `prefix`.
    async fn list_after(&self, prefix: &str, after: &str) -> Result<ListPage, StoreError> {
        let (mut objects, mut page) = (Vec::new(), None);
        loop {
            let listed = self.list(prefix, page).await?;
            let behind = listed.objects.into_iter();
            objects.extend(behind.filter(|object| object.key.as_str() > after));
            page = listed.next;
            if page.is_none() {
                break;
            }
        }
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(ListPage {
            objects,
            next: None,
        })
    }

    /// Returns the names of the folders directly below `prefix`, sorted. By default it lists all of `prefix`.
    async fn folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let mut names = BTreeSet::new();
        let mut page = None;
        loop {
            let listed = self.list(prefix, page).await?;
            let keys = listed.objects.iter();
            let below = keys.filter_map(|object| object.key.strip_prefix(prefix)?.split_once('/'));
            names.extend(below.map(|(name, _)| name.to_owned()));
            page = listed.next;
            if page.is_none() {
                return Ok(names.into_iter().collect());
            }
        }
    }

    /// Deletes the object; deleting an absent one succeeds.
    async fn delete(&self, key: &str) -> Result<(), StoreError>;

    /// Deletes objects in as few requests as possible; absent ones count as deleted. Returns the keys
    /// that the store refused, each with its error. An error of the call means that a request failed:
    /// then the state of all keys is unknown.
    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        let mut refused = Vec::new();
        for key in keys {
            if let Err(error) = self.delete(key).await {
                refused.push((key.clone(), error));
            }
        }
        Ok(refused)
    }

    /// Lists uploads below `prefix` that were neither completed nor aborted; not all of them, where
    /// there are very many. One without a key was left behind by a dead process.
    async fn unfinished(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        let _ = prefix;
        Ok(Vec::new())
    }

    /// Aborts an unfinished upload; succeeds if it is gone already.
    async fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        let _ = upload;
        Ok(())
    }

    /// Returns a watch of the objects directly below `prefix`, where the store notices new ones without requests. It is
    /// a hint: only a poll finds every object. Fails with `ErrorKind::NotFound` while there is nothing to watch.
    async fn watch(&self, prefix: &str) -> Result<Option<Watch>, StoreError> {
        let _ = prefix;
        Ok(None)
    }

    /// Returns access to properties beyond the contract, for `batchweave doctor`.
    fn inspect(&self) -> Option<&dyn Inspect> {
        None
    }
}
