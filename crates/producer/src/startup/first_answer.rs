//! The first requests of a start. A store that is not up yet, as after a power failure, is waited for as long as for an
//! upload, so that a producer does not end at one refused connection.

use std::time::Duration;

use batchweave_daemon::health::Health;
use batchweave_store::{Backoff, Retry, Store, StoreError};

/// The pauses between the probes.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// Probes the store for objects of up to `largest` bytes; tries again for `give_up_after` while it does not answer.
pub(super) async fn probe(
    store: &dyn Store,
    largest: u64,
    give_up_after: Duration,
    health: &Health,
) -> Result<(), StoreError> {
    let once = || batchweave_store::probe(store, rand::random(), largest);
    let failed = |error: &StoreError| {
        health.not_ready(format!("waiting for the store: {error}"));
        tracing::warn!(
            %error,
            "the store does not answer at the start; trying again for up to upload.give_up_after ({give_up_after:?})"
        );
    };
    Retry::within(give_up_after, PAUSES).run(once, failed).await
}
