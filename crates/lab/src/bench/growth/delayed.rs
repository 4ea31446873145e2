//! A store whose requests take virtual time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use batchweave_dev_s3::{LatencyProfile, Op};
use batchweave_store::layer::{Call, Intercept};
use batchweave_store::{self as store, Store, StoreError};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// The virtual time that a request takes.
#[derive(Debug)]
pub(super) enum Delay {
    /// Every request takes the same time, so that time counts sequential rounds.
    Round(Duration),
    /// Times are drawn from the profile of S3 Standard.
    S3Standard(Box<Mutex<StdRng>>),
}

impl Delay {
    pub(super) fn s3_standard(seed: u64) -> Self {
        Self::S3Standard(Box::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    fn draw(&self, op: store::Op) -> Duration {
        let op = match op {
            store::Op::Create | store::Op::Upload => Op::Put,
            store::Op::Head => Op::Head,
            store::Op::List => Op::List,
            store::Op::Delete => Op::Delete,
            _ => Op::Get,
        };
        match self {
            Self::Round(time) => *time,
            Self::S3Standard(rng) => {
                let mut rng = rng.lock().unwrap_or_else(PoisonError::into_inner);
                LatencyProfile::S3Standard.sample(op, &mut *rng)
            }
        }
    }
}

/// A store whose requests take virtual time.
#[derive(Debug)]
pub(super) struct Delayed {
    inner: Arc<dyn Store>,
    delay: Delay,
}

impl Delayed {
    pub(super) fn over(inner: &Arc<dyn Store>, delay: Delay) -> Arc<dyn Store> {
        let inner = Arc::clone(inner);
        Arc::new(Self { inner, delay })
    }
}

#[async_trait]
impl Intercept for Delayed {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn around<T, F>(&self, call: Call<'_>, run: F) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        tokio::time::sleep(self.delay.draw(call.op)).await;
        run.await
    }
}
