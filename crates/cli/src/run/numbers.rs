//! The numbers of both daemons, from their `/metrics` and `/readyz`.

use std::time::Duration;

use batchweave_console::admin_endpoint::{ANSWER_BYTES_MAX, get};
use batchweave_console::samples::Samples;
use tokio::time::{Instant, timeout};

/// Longest wait for an answer; both daemons answer from memory.
const PATIENCE: Duration = Duration::from_secs(2);

/// The answer of one daemon.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    pub(super) at: Instant,
    pub(super) ready: bool,
    /// The text of `/readyz`.
    pub(super) doing: String,
    pub(super) samples: Samples,
}

impl Numbers {
    /// Reads a daemon's numbers; `None` while it does not answer.
    pub(super) async fn read(admin: &str) -> Option<Self> {
        let answers = async {
            let (_, metrics) = get(admin, "/metrics", ANSWER_BYTES_MAX).await.ok()?;
            let (ready, doing) = get(admin, "/readyz", ANSWER_BYTES_MAX).await.ok()?;
            Some(Self::new(&metrics, ready, doing.trim()))
        };
        timeout(PATIENCE, answers).await.ok().flatten()
    }

    /// Returns the numbers in the text of `/metrics`.
    pub(super) fn new(metrics: &str, ready: bool, doing: &str) -> Self {
        Self {
            at: Instant::now(),
            ready,
            doing: doing.to_owned(),
            samples: Samples::parse(metrics),
        }
    }

    /// Returns the sum of a metric over its labels; 0 when there is none.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.samples.sum(name, &[])
    }
}
