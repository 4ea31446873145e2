//! Reads that are repeated: without end while the store fails, since ranks have deadlines of their own and
//! are told; once more, on another connection, when an object is missing or too short.

use std::ops::Range;
use std::time::Duration;

use batchweave_arena::ArenaError;
use batchweave_store::{Body, Effect, ErrorKind, Op, StoreError};

use crate::node::{Hub, Reads};

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Throttled this many times in a row, a read reports that the store fails; before, only that it asks for
/// too much.
const THROTTLED_FEW: u32 = 3;

/// Why a read did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Arena(#[from] ArenaError),
}

impl ReadError {
    /// What the store says of the object, not of itself.
    fn of_object(&self) -> bool {
        let gone = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::Range);
        matches!(self, Self::Store(why) if gone(why.kind))
    }

    fn is_final(&self) -> bool {
        match self {
            Self::Store(why) => self.of_object() || why.kind == ErrorKind::Invalid,
            Self::Arena(_) => true,
        }
    }
}

/// Calls `once` until it succeeds or fails for good. It is called with `true` when it is to use a fresh
/// connection: with `fresh`, and to confirm that an object is missing or too short.
pub(super) async fn patiently<T, F>(
    hub: &Hub,
    mut fresh: bool,
    once: impl Fn(bool) -> F,
) -> Result<T, ReadError>
where
    F: Future<Output = Result<T, ReadError>>,
{
    let (mut pause, mut throttled, mut confirming) = (RETRY_FIRST, 0, false);
    loop {
        match once(fresh).await {
            Ok(done) => {
                hub.store_health(Reads::Data, None);
                return Ok(done);
            }
            Err(why) if why.of_object() && !confirming => {
                (fresh, confirming) = (true, true);
                continue;
            }
            Err(ReadError::Store(why)) if !ReadError::Store(why.clone()).is_final() => {
                if why.kind == ErrorKind::Throttled {
                    hub.metrics.throttled_reads.inc();
                    hub.permits.throttled();
                    throttled += 1;
                }
                if why.kind != ErrorKind::Throttled || throttled >= THROTTLED_FEW {
                    hub.store_health(Reads::Data, Some(&why));
                }
            }
            Err(why) => return Err(why),
        }
        hub.context.sleep(hub.context.jittered(pause)).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// Opens a range; a second request races the first when that is late.
pub(super) async fn open(
    hub: &Hub,
    key: &str,
    range: &Range<u64>,
    fresh: bool,
) -> Result<Box<dyn Body>, StoreError> {
    let ask = |second| hub.store.open_range(key, range.clone(), fresh || second);
    let again = || hub.metrics.hedged_reads.inc();
    hub.hedges.race(ask, again).await
}

/// A store that breaks its contract; another try may find it whole.
pub(super) fn short(hub: &Hub, key: &str, at: u64, end: u64) -> StoreError {
    let location = format!("{}/{key}", hub.store.root());
    let detail = format!("the answer ended at byte {at} instead of {end}");
    let (kind, effect) = (ErrorKind::Timeout, Effect::DidNot);
    StoreError::new(Op::GetRange, location, kind, effect, detail)
}
