//! Create-only puts with a definite outcome: after any answer but a clear yes the object is read back. The
//! same bytes mean that our put won. Without an object the same bytes are put at the same key again, until
//! the answer is definite (pitfalls P2, P3, P4).

use batchweave_core::guards;
use batchweave_core::keys;
use batchweave_store::{Backoff, Create, Effect, ErrorKind, Store, StoreError};
use bytes::Bytes;
use tracing::warn;

use crate::clock::Clock;

/// The outcome of a put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// The object holds exactly our bytes.
    Ours,
    /// The object holds these other bytes.
    Theirs(Bytes),
}

/// Tries of a request that surely had no effect (refused connection, 503) before it fails.
const DID_NOT_TRIES: u32 = 12;

/// A put without a definite outcome.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: StoreError,
    /// The put may have happened, or may still happen; otherwise it surely did not.
    pub(crate) in_doubt: bool,
}

/// Puts `body` at `key` and finds out which object is there. Fails when the put surely did not happen, or
/// when the store refuses reads; retries while the outcome is unknown.
pub(crate) async fn put(
    store: &dyn Store,
    clock: &dyn Clock,
    key: &str,
    body: Bytes,
) -> Result<Resolved, StoreError> {
    let put = put_again(store, clock, key, body, false).await;
    put.map_err(|failed| failed.error)
}

/// Puts `body` as [`put`] does. `in_doubt`: the same body was put there before, with an unknown outcome.
pub(crate) async fn put_again(
    store: &dyn Store,
    clock: &dyn Clock,
    key: &str,
    body: Bytes,
    mut in_doubt: bool,
) -> Result<Resolved, Failed> {
    let mut backoff = Backoff::STORE;
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match store.create(key, body.clone()).await {
            Ok(Create::Created) => return Ok(Resolved::Ours),
            Ok(Create::Exists) => None,
            Err(e) => Some(e),
        };
        if let Some(e) = &error {
            in_doubt |= e.effect == Effect::Unknown;
            if in_doubt && guards::moves_on_after_unknown_outcome() {
                return Ok(Resolved::Ours);
            }
            let hopeless = !e.kind.is_transient() || tries >= DID_NOT_TRIES;
            if !in_doubt && hopeless {
                let error = e.clone();
                return Err(Failed { error, in_doubt });
            }
            if tries % 10 == 1 {
                warn!(key, tries, error = %e, "the outcome of a put is unknown: reading the object back");
            }
        }
        let found = if error.is_none() || in_doubt {
            let read = read(store, clock, key).await;
            // A 412 may answer our own first try.
            read.map_err(|error| Failed {
                error,
                in_doubt: true,
            })?
        } else {
            None
        };
        match found {
            Some(bytes) if bytes == body && !trusts_412(error.is_none()) => {
                return Ok(Resolved::Ours);
            }
            Some(bytes) => return Ok(Resolved::Theirs(bytes)),
            None => clock.sleep(backoff.pause()).await,
        }
    }
}

fn trusts_412(exists: bool) -> bool {
    exists && guards::trusts_412()
}

/// Reads the object, `None` when it is absent; retries until the answer is definite.
async fn read(
    store: &dyn Store,
    clock: &dyn Clock,
    key: &str,
) -> Result<Option<Bytes>, StoreError> {
    let mut backoff = Backoff::STORE;
    loop {
        match store.get(key, keys::bytes_max(key)).await {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(e) if e.kind == ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind.is_transient() => {
                warn!(key, error = %e, "cannot read a record back; retrying");
                clock.sleep(backoff.pause()).await;
            }
            Err(e) => return Err(e),
        }
    }
}
