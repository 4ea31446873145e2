//! A store that counts requests and bytes, and takes virtual time for each request.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use batchweave_dev_s3::{LatencyProfile, Op};
use batchweave_store::layer::{Call, Intercept};
use batchweave_store::{self as store, Chunks, Store, StoreError};
use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// The virtual time that a request takes.
#[derive(Debug)]
pub(super) enum Delay {
    /// Requests take no time.
    None,
    /// Every request takes the same time, so that time counts sequential rounds.
    Round(Duration),
    /// Times are drawn from a latency profile.
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

/// A store that counts requests and bytes, and takes virtual time for each request.
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

    /// Returns the requests so far, and the bytes of bodies sent and received.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.requests.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// Counts a request with the bytes of its body and waits for the time that it takes.
    async fn request(&self, op: store::Op, bytes: u64) {
        self.requests.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        let time = self.delay.draw(match op {
            store::Op::Create | store::Op::Upload => Op::Put,
            store::Op::Head => Op::Head,
            store::Op::List => Op::List,
            store::Op::Delete => Op::Delete,
            _ => Op::Get,
        });
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
    }
}

#[async_trait]
impl Intercept for Latent {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn around<T, F>(&self, call: Call<'_>, run: F) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        self.request(call.op, call.bytes as u64).await;
        run.await
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.request(store::Op::Get, 0).await;
        let body = self.inner.get(key, at_most).await?;
        self.bytes.fetch_add(body.len() as u64, Relaxed);
        Ok(body)
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        self.request(store::Op::GetRange, range.end - range.start)
            .await;
        self.inner.get_range(key, range).await
    }
}
