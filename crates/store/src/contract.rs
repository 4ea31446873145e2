//! The contract that every store obeys. One conformance suite (`testing::conformance`) checks it.
//!
//! Invariants:
//! - A key is created at most once: of any number of concurrent `create` calls on an absent key,
//!   exactly one answers `Created`; every other answers `Exists` or an error.
//! - A created object is visible whole or not at all, and its bytes never change.
//! - After `Created`, every later `get`, `head` and `list` by anyone sees the object.
//! - `list` promises no order.
//! - An error says whether the deed may have happened (`StoreError::effect`).

use std::fmt::Debug;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::body::Copied;
use crate::{Body, Inspect, PendingUpload, StoreError};

/// What a create-only put that was answered clearly has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Create {
    /// The object did not exist and now holds our bytes.
    Created,
    /// The object existed before this call. With a retrying client underneath it may still be our
    /// own first try: whoever needs to know reads the object and compares.
    Exists,
}

/// What `head` and `list` tell of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Full key below the store's root.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// The store's own name of these bytes, where a listing tells one.
    pub etag: Option<String>,
}

/// One page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Objects, in no promised order.
    pub objects: Vec<ObjectMeta>,
    /// Pass it to `list` for the next page; `None` on the last.
    pub next: Option<String>,
}

/// Chunks of a ranged read in order; their lengths add up to the range's exactly, or the last item
/// is an error.
pub type Chunks = BoxStream<'static, Result<Bytes, StoreError>>;

/// An object store below one root. Keys are relative to the root, `/`-separated, made of
/// `[A-Za-z0-9._@=-]` segments, never empty, never `.` or `..`.
#[async_trait]
pub trait Store: Send + Sync + Debug + 'static {
    /// The root as a person would write it, for messages (`s3://bucket/prefix`, `file:///dir`).
    fn root(&self) -> &str;

    /// A key of so many bytes is not too long. File systems take 255 bytes for a segment, so that is
    /// what any store takes.
    fn key_bytes_max(&self) -> usize {
        255
    }

    /// Creates `key` with `body` if it is absent; one try, no hidden retries, so that a 412 after a
    /// lost answer never hides our own success. For records: small bodies.
    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError>;

    /// Creates `key` under a name that nobody else uses (data objects). May retry inside, may use
    /// multipart for large bodies; `Exists` is answered only if the object there has another size.
    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError>;

    /// The whole object, if it has `at_most` bytes. Absent: `ErrorKind::NotFound`. Larger:
    /// `ErrorKind::TooLarge`, before more than the bound is read or allocated, whatever length the
    /// store claims.
    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError>;

    /// The same over a connection of its own: a second look at bytes that do not make sense, which
    /// a connection or what lies on its way may have damaged.
    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.get(key, at_most).await
    }

    /// Bytes `range` of the object, as chunks as they arrive. A range that reaches beyond the
    /// object is `ErrorKind::Range`.
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError>;

    /// Bytes `range` of the object, to be read straight to where they are needed: the way for large
    /// reads. Answers when the first of them are there. `fresh` asks for a connection of its own, so
    /// that the second try of a read that is late does not share the fate of the first. That the store
    /// throttles is said at once, so that the caller can slow down.
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

    /// Size of the object.
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError>;

    /// One page of the objects whose keys begin with `prefix` (which ends in `/` or is empty).
    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError>;

    /// Deletes the object; deleting an absent one succeeds.
    async fn delete(&self, key: &str) -> Result<(), StoreError>;

    /// Deletes objects, in as few requests as this kind of store can; absent ones count as deleted.
    /// Returns those that it refused, each with its reason. An error as a whole means that a request
    /// failed: of all keys it is unknown then whether they are gone.
    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        let mut refused = Vec::new();
        for key in keys {
            if let Err(error) = self.delete(key).await {
                refused.push((key.clone(), error));
            }
        }
        Ok(refused)
    }

    /// Uploads of keys below `prefix` that were begun and neither completed nor given up; some of
    /// them, where there are very many. One without a key belongs to nobody any more.
    async fn unfinished(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        let _ = prefix;
        Ok(Vec::new())
    }

    /// Gives an unfinished upload up; one that is gone already succeeds.
    async fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        let _ = upload;
        Ok(())
    }

    /// What can be found out about this kind of store beyond the contract, for `batchweave doctor`.
    fn inspect(&self) -> Option<&dyn Inspect> {
        None
    }
}
