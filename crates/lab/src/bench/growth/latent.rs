//! A store that counts requests and bytes, and takes virtual time for each request.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use batchweave_dev_s3::{LatencyProfile, Op};
use batchweave_store::{Chunks, Create, ListPage, ObjectMeta, Store, StoreError};
use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// How long a request takes.
#[derive(Debug)]
pub(super) enum Delay {
    /// No time.
    None,
    /// Always the same: then time counts rounds.
    Round(Duration),
    /// As drawn from a profile.
    Profile(LatencyProfile, Box<Mutex<StdRng>>),
}

impl Delay {
    pub(super) fn profile(profile: LatencyProfile, seed: u64) -> Self {
        Self::Profile(profile, Box::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    fn draw(&self, op: Op) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Round(time) => *time,
            Self::Profile(profile, rng) => {
                let mut rng = rng.lock().unwrap_or_else(PoisonError::into_inner);
                profile.sample(op, &mut *rng)
            }
        }
    }
}

/// See the file's header.
#[derive(Debug)]
pub(super) struct Latent {
    inner: Arc<dyn Store>,
    delay: Delay,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Latent {
    pub(super) fn new(inner: &Arc<dyn Store>, delay: Delay) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            delay,
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// Requests made, and bytes of bodies sent and received, so far.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.requests.load(Relaxed), self.bytes.load(Relaxed))
    }

    async fn ask(&self, op: Op, sent: usize) {
        self.requests.fetch_add(1, Relaxed);
        self.bytes.fetch_add(sent as u64, Relaxed);
        let time = self.delay.draw(op);
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
    }
}

#[async_trait]
impl Store for Latent {
    fn root(&self) -> &str {
        self.inner.root()
    }

    fn key_bytes_max(&self) -> usize {
        self.inner.key_bytes_max()
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.ask(Op::Put, body.len()).await;
        self.inner.create(key, body).await
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.ask(Op::Put, body.len()).await;
        self.inner.upload(key, body).await
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.ask(Op::Get, 0).await;
        let body = self.inner.get(key, at_most).await?;
        self.bytes.fetch_add(body.len() as u64, Relaxed);
        Ok(body)
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        self.ask(Op::Get, 0).await;
        self.bytes.fetch_add(range.end - range.start, Relaxed);
        self.inner.get_range(key, range).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.ask(Op::Head, 0).await;
        self.inner.head(key).await
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        self.ask(Op::List, 0).await;
        self.inner.list(prefix, page).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.ask(Op::Delete, 0).await;
        self.inner.delete(key).await
    }
}
