//! Time as the log sees it. Everything that waits in this crate asks a clock, so that a simulator
//! can scale, skew and jump it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

/// A monotonic clock.
pub trait Clock: Send + Sync + Debug {
    /// Time since any fixed instant.
    fn now(&self) -> Duration;

    /// Ends after `time`.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
}

/// The runtime's clock.
#[derive(Debug)]
pub struct TokioClock(Instant);

impl TokioClock {
    /// A clock that begins now.
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

/// Pauses between tries: doubling, within bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause(Duration);

/// First pause after a failed try.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl Pause {
    pub(crate) fn new() -> Self {
        Self(PAUSE_MIN)
    }

    pub(crate) async fn wait(&mut self, clock: &dyn Clock) {
        clock.sleep(self.0).await;
        self.0 = (self.0 * 2).min(PAUSE_MAX);
    }
}
