//! The clock by which everything in this crate waits, so that a simulator can scale, skew and jump it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

/// A monotonic clock that tasks can sleep by.
pub trait Clock: Send + Sync + Debug {
    /// Returns the time since any fixed instant.
    fn now(&self) -> Duration;

    /// Returns a future that ends after `time`.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
}

/// The clock of the Tokio runtime.
#[derive(Debug)]
pub struct TokioClock(Instant);

impl TokioClock {
    /// Returns a clock that begins now.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(time).boxed()
    }
}
