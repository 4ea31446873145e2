//! A store behind the HTTP interface of a cloud: all that Google Cloud Storage and Azure Blob have in common. What
//! differs is a [`Dialect`].
//!
//! Invariants:
//! - `create` sends one request and never retries it (a retry could hide our own success).
//! - Data requests are retried by our rules: data keys are unique, so a retry finds its own object.
//! - Bodies are in memory; every request and every wait for a chunk has a time-out.

pub(crate) mod answer;
mod bucket;
pub(crate) mod dialect;
mod halves;
mod listing;
mod refusal;
mod requests;
pub(crate) mod signing;
pub(crate) mod transport;
mod upload;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};

use self::answer::Fault;
pub(crate) use self::answer::{Answer, header};
pub(crate) use self::dialect::{Dialect, Listed, Listing, Page, Refusal, Request, encoded, time};
use self::transport::Transport;
use crate::{
    Chunks, Create, Effect, ErrorKind, Inspect, ListPage, ObjectMeta, Op, OpenOptions, Patience,
    Store, StoreError, download, key,
};

/// Deletes of single objects at a time.
const DELETES_AT_ONCE: usize = 16;

/// A store in a bucket or container, below a prefix.
#[derive(Clone)]
pub(crate) struct CloudStore(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    root: String,
    /// Prefix of all keys; empty, or ends in `/`.
    prefix: String,
    keys: key::Keys,
    patience: Patience,
    pub(crate) transport: Transport,
    pub(crate) dialect: Box<dyn Dialect>,
}

/// The place of a store in its cloud.
pub(crate) struct Place<'a> {
    pub(crate) root: String,
    pub(crate) prefix: &'a str,
}

impl CloudStore {
    /// Returns the store of `place`, without a request.
    pub(crate) fn new(
        place: Place<'_>,
        options: &OpenOptions,
        transport: Transport,
        dialect: Box<dyn Dialect>,
    ) -> Self {
        let prefix = match place.prefix {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        let keys = if options.input {
            key::Keys::Foreign
        } else {
            key::Keys::Ours
        };
        Self(Arc::new(Inner {
            root: place.root,
            prefix,
            keys,
            patience: options.patience,
            transport,
            dialect,
        }))
    }

    /// Returns the name of a key in the bucket.
    pub(crate) fn full(&self, key: &str) -> String {
        format!("{}{key}", self.0.prefix)
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.0.prefix
    }

    pub(crate) fn error(
        &self,
        op: Op,
        key: &str,
        kind: ErrorKind,
        effect: Effect,
        detail: impl Into<String>,
    ) -> StoreError {
        StoreError::new(op, format!("{}/{key}", self.0.root), kind, effect, detail)
    }

    pub(crate) fn failed(&self, op: Op, key: &str, fault: &Fault) -> StoreError {
        self.error(op, key, fault.kind, fault.effect(op), &*fault.detail)
    }
}

impl fmt::Debug for CloudStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloudStore({})", self.0.root)
    }
}

#[async_trait]
impl Store for CloudStore {
    fn root(&self) -> &str {
        &self.0.root
    }

    fn key_bytes_max(&self) -> usize {
        key::KEY_BYTES_MAX - self.0.prefix.len().min(key::KEY_BYTES_MAX)
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.0.keys.check(Op::Create, &self.0.root, key)?;
        let request = self.0.dialect.create(&self.full(key), body);
        let answer = self.once(Op::Create, key, request).await?;
        self.created(Op::Create, key, &answer)
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.0.keys.check(Op::Upload, &self.0.root, key)?;
        upload::upload(self, key, body).await
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.0.keys.check(Op::Get, &self.0.root, key)?;
        download::whole(self, key, at_most, false).await
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.0.keys.check(Op::Get, &self.0.root, key)?;
        download::whole(self, key, at_most, true).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        self.0.keys.check_range(&self.0.root, key, &range)?;
        download::range(Arc::new(self.clone()), key, range).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.0.keys.check(Op::Head, &self.0.root, key)?;
        let name = self.full(key);
        let answer = self
            .answered(Op::Head, key, || self.0.dialect.head(&name))
            .await?;
        match self.0.dialect.described(&name, &answer) {
            Ok(listed) => Ok(ObjectMeta {
                key: key.to_owned(),
                size: listed.size,
                etag: None,
                modified: listed.modified,
            }),
            Err(why) => Err(self.broken(Op::Head, key, why)),
        }
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        self.0.keys.check_prefix(Op::List, &self.0.root, prefix)?;
        listing::page(self, prefix, page).await
    }

    async fn list_after(&self, prefix: &str, after: &str) -> Result<ListPage, StoreError> {
        self.0.keys.check_prefix(Op::List, &self.0.root, prefix)?;
        listing::page_after(self, prefix, after).await
    }

    async fn folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.0.keys.check_prefix(Op::List, &self.0.root, prefix)?;
        listing::folders(self, prefix).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.0.keys.check(Op::Delete, &self.0.root, key)?;
        let name = self.full(key);
        let deleted = self.answered(Op::Delete, key, || self.0.dialect.delete(&name));
        match deleted.await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        let deletes = keys.iter().cloned().map(|key| async move {
            let error = self.delete(&key).await.err()?;
            Some((key, error))
        });
        let answers = stream::iter(deletes).buffered(DELETES_AT_ONCE);
        Ok(answers.filter_map(std::future::ready).collect().await)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}
