//! A store that does something at one instant of a run.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use batchweave_core::keys;
use batchweave_store::{Chunks, Create, ListPage, ObjectMeta, Store, StoreError};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Random;

pub(super) enum Trip {
    Stop(CancellationToken),
    Die(Arc<Notify>),
}

/// An instant of a run: a number of writes of data and records, then a number of requests of any kind. Counting
/// writes first makes some draws fall into the middle of producing, whatever the number of reads of the opening;
/// draws of zero writes fall into the opening.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instant {
    writes: u64,
    requests: u64,
}

impl Instant {
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = Random(seed);
        Self {
            writes: random.next() % 40,
            requests: 1 + random.next() % 60,
        }
    }

    /// Returns the instant of request number `n`, from 1.
    pub(super) fn request(n: u64) -> Self {
        Self {
            writes: 0,
            requests: n,
        }
    }

    /// Counts a request. Returns true when it is the drawn one.
    fn is_reached(&mut self, is_write: bool) -> bool {
        if self.writes > 0 {
            self.writes -= u64::from(is_write);
            return false;
        }
        self.requests = self.requests.saturating_sub(1);
        self.requests == 0
    }
}

/// A store that acts at one instant; a dead store does not answer any more.
pub(super) struct Tripwire {
    inner: Arc<dyn Store>,
    left: Mutex<Instant>,
    tripped: AtomicBool,
    odd: bool,
    trip: Trip,
}

impl std::fmt::Debug for Tripwire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tripwire({:?})", self.left)
    }
}

fn is_progress(key: &str) -> bool {
    key.starts_with(keys::DATA) || key.starts_with(keys::LOG)
}

impl Tripwire {
    pub(super) fn new(inner: Arc<dyn Store>, at: Instant, trip: Trip) -> Arc<Self> {
        Arc::new(Self {
            inner,
            left: Mutex::new(at),
            tripped: AtomicBool::new(false),
            odd: at.requests % 2 == 1,
            trip,
        })
    }

    async fn count<T>(&self, is_write: bool, request: impl Future<Output = T>) -> T {
        if self.left.lock().unwrap().is_reached(is_write) {
            let first = !self.tripped.swap(true, SeqCst);
            match &self.trip {
                Trip::Stop(stop) => stop.cancel(),
                Trip::Die(dead) => {
                    if first && self.odd {
                        request.await;
                    }
                    dead.notify_one();
                    return std::future::pending().await;
                }
            }
        }
        request.await
    }
}

#[async_trait]
impl Store for Tripwire {
    fn root(&self) -> &str {
        self.inner.root()
    }
    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.count(is_progress(key), self.inner.create(key, body))
            .await
    }
    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.count(is_progress(key), self.inner.upload(key, body))
            .await
    }
    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.count(false, self.inner.get(key, at_most)).await
    }
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        self.count(false, self.inner.get_range(key, range)).await
    }
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.count(false, self.inner.head(key)).await
    }
    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        self.count(false, self.inner.list(prefix, page)).await
    }
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.count(false, self.inner.delete(key)).await
    }
}
