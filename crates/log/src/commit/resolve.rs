//! A create-only put has three outcomes; this resolves the third. After any answer but a clear yes
//! the object itself says who won: the same bytes mean us. No object: the same bytes are put at the
//! same key again, until the answer is definite (pitfalls P2, P3, P4).

use batchweave_core::guards;
use batchweave_core::keys;
use batchweave_store::{Create, Effect, ErrorKind, Store, StoreError};
use bytes::Bytes;
use tracing::warn;

use crate::clock::{Clock, Pause};

/// Who has the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// The object holds exactly our bytes.
    Ours,
    /// It holds these.
    Theirs(Bytes),
}

/// Tries of a request that surely did not happen (refused connections, 503) before giving up.
const DID_NOT_TRIES: u32 = 12;

/// Nobody knows who has the key.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: StoreError,
    /// The put may have happened, or may yet; otherwise it surely did not.
    pub(crate) in_doubt: bool,
}

/// Puts `body` at `key` and finds out who has it. Fails when the put surely did not happen, or when
/// the store refuses to say; while the outcome is only unknown it goes on asking.
pub(crate) async fn put(
    store: &dyn Store,
    clock: &dyn Clock,
    key: &str,
    body: Bytes,
) -> Result<Resolved, StoreError> {
    let put = put_again(store, clock, key, body, false).await;
    put.map_err(|failed| failed.error)
}

/// The same, `in_doubt` when that body was put there before and nobody has seen the answer.
pub(crate) async fn put_again(
    store: &dyn Store,
    clock: &dyn Clock,
    key: &str,
    body: Bytes,
    mut in_doubt: bool,
) -> Result<Resolved, Failed> {
    let mut pause = Pause::new();
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
                warn!(key, tries, error = %e, "the outcome of a put is open: asking the store");
            }
        }
        let asked = if error.is_none() || in_doubt {
            let read = read(store, clock, key).await;
            // A 412 may be of our own first try.
            read.map_err(|error| Failed {
                error,
                in_doubt: true,
            })?
        } else {
            None
        };
        match asked {
            Some(bytes) if bytes == body && !trusted(error.is_none()) => return Ok(Resolved::Ours),
            Some(bytes) => return Ok(Resolved::Theirs(bytes)),
            None => pause.wait(clock).await,
        }
    }
}

fn trusted(exists: bool) -> bool {
    exists && guards::trusts_412()
}

/// The object, or `None` when it is absent; asks until one of the two is certain.
async fn read(
    store: &dyn Store,
    clock: &dyn Clock,
    key: &str,
) -> Result<Option<Bytes>, StoreError> {
    let mut pause = Pause::new();
    loop {
        match store.get(key, keys::bytes_max(key)).await {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(e) if e.kind == ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind.is_transient() => {
                warn!(key, error = %e, "reading back a record failed: trying again");
                pause.wait(clock).await;
            }
            Err(e) => return Err(e),
        }
    }
}
