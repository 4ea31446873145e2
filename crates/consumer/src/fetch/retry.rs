//! Retries of reads. While the store fails they have no limit, since ranks are notified and have their own
//! deadlines. A missing or short object is read once more, on another connection.

use std::ops::Range;
use std::time::Duration;

use batchweave_arena::ArenaError;
use batchweave_store::{Backoff, Body, Effect, ErrorKind, Op, StoreError};

use super::Fetcher;
use crate::context::Context;
use crate::store_health::{ReadKind, StoreHealth};

/// A read that is throttled this many times in a row reports that the store fails.
const THROTTLED_MAX: u32 = 3;

/// The reason why a read failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Arena(#[from] ArenaError),
}

impl ReadError {
    /// Whether the error is about the object, not about the store.
    fn is_about_object(&self) -> bool {
        let gone = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::Range);
        matches!(self, Self::Store(why) if gone(why.kind))
    }

    fn is_final(&self) -> bool {
        match self {
            Self::Store(why) => self.is_about_object() || why.kind == ErrorKind::Invalid,
            Self::Arena(_) => true,
        }
    }
}

/// Calls `once` until it succeeds or fails for good. Its argument asks for a new connection: given `fresh`,
/// and to confirm that an object is missing or short.
pub(super) async fn with_retries<T, F>(
    fetcher: &Fetcher,
    mut fresh: bool,
    once: impl Fn(bool) -> F,
) -> Result<T, ReadError>
where
    F: Future<Output = Result<T, ReadError>>,
{
    let resources = &fetcher.resources;
    let (health, context) = (&resources.store_health, &resources.context);
    let (mut backoff, mut throttled, mut confirming) = (Backoff::STORE, 0, false);
    loop {
        match once(fresh).await {
            Ok(done) => {
                health.note(ReadKind::Data, None);
                return Ok(done);
            }
            Err(why) if why.is_about_object() && !confirming => {
                (fresh, confirming) = (true, true);
                continue;
            }
            Err(ReadError::Store(why)) if !ReadError::Store(why.clone()).is_final() => {
                if why.kind == ErrorKind::Throttled {
                    resources.metrics.throttled_reads.inc();
                    fetcher.permits.throttled();
                    throttled += 1;
                }
                if why.kind != ErrorKind::Throttled || throttled >= THROTTLED_MAX {
                    health.note(ReadKind::Data, Some(&why));
                }
            }
            Err(why) => return Err(why),
        }
        let pause = context.jittered(backoff.pause());
        between_tries(context, health, pause, throttled > 0).await;
    }
}

/// Waits between two tries. Pauses grow to seconds, so the first read that succeeds after a failure ends those of all
/// others; a throttled one waits on.
async fn between_tries(context: &Context, health: &StoreHealth, pause: Duration, throttled: bool) {
    tokio::select! {
        biased;
        () = health.answers_again(), if !throttled => {}
        () = context.sleep(pause) => {}
    }
}

/// Opens a range; when the answer is late, a second request races the first.
pub(super) async fn open(
    fetcher: &Fetcher,
    key: &str,
    range: &Range<u64>,
    fresh: bool,
) -> Result<Box<dyn Body>, StoreError> {
    let resources = &fetcher.resources;
    let ask = |second| {
        resources
            .store
            .open_range(key, range.clone(), fresh || second)
    };
    let again = || resources.metrics.hedged_reads.inc();
    fetcher.hedges.race(ask, again).await
}

/// Returns the error of a body that ends early: the store breaks its contract, and a retry may succeed.
pub(super) fn short_body(fetcher: &Fetcher, key: &str, at: u64, end: u64) -> StoreError {
    let location = format!("{}/{key}", fetcher.resources.store.root());
    let detail = format!("the answer ended at byte {at} instead of {end}");
    let (kind, effect) = (ErrorKind::Timeout, Effect::DidNot);
    StoreError::new(Op::GetRange, location, kind, effect, detail)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_first_answer_of_a_store_ends_pauses_but_of_throttled_reads() {
        let (context, health) = (Context::system(), StoreHealth::default());
        let pause =
            |throttled| between_tries(&context, &health, Duration::from_hours(1), throttled);
        let (mut failed, mut throttled) = (pin!(pause(false)), pin!(pause(true)));
        assert!(failed.as_mut().now_or_never().is_none());
        assert!(throttled.as_mut().now_or_never().is_none());
        health.note(ReadKind::Log, None);
        assert!(failed.as_mut().now_or_never().is_none(), "nothing failed");
        health.note_failure(ReadKind::Log, "refused".to_owned());
        health.note(ReadKind::Log, None);
        assert!(failed.as_mut().now_or_never().is_some());
        assert!(throttled.as_mut().now_or_never().is_none());
    }
}
