//! The first requests of a start. A store that is not up yet, as after a power failure, is waited for as long as for an
//! upload, so that a producer does not end at one refused connection.

use std::time::{Duration, Instant};

use batchweave_daemon::health::Health;
use batchweave_store::{Backoff, Store, StoreError};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Probes the store for objects of up to `largest` bytes; tries again for `give_up_after` while it does not answer.
pub(super) async fn probe(
    store: &dyn Store,
    largest: u64,
    give_up_after: Duration,
    health: &Health,
) -> Result<(), StoreError> {
    let began = Instant::now();
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let probed = batchweave_store::probe(store, rand::random(), largest).await;
        let Err(error) = probed else { return Ok(()) };
        if !error.kind.is_transient() || began.elapsed() + backoff.peek() > give_up_after {
            return Err(error);
        }
        health.not_ready(format!("waiting for the store: {error}"));
        tracing::warn!(
            %error,
            "the store does not answer at the start; trying again for up to upload.give_up_after ({give_up_after:?})"
        );
        tokio::time::sleep(backoff.pause()).await;
    }
}
