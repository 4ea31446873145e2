//! Repeating a call to a store that fails for a while.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Backoff, StoreError};

/// How long a call is repeated, and the pauses between.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    pauses: Backoff,
    limit: Limit,
}

#[derive(Debug, Clone, Copy)]
enum Limit {
    Calls(u32),
    Time(Duration),
}

impl Retry {
    /// Returns the policy of at most `calls` calls.
    pub const fn calls(calls: u32, pauses: Backoff) -> Self {
        let limit = Limit::Calls(calls);
        Self { pauses, limit }
    }

    /// Returns the policy of calls that begin within `time` of the first.
    pub const fn within(time: Duration, pauses: Backoff) -> Self {
        let limit = Limit::Time(time);
        Self { pauses, limit }
    }

    /// Calls `once` until it succeeds, fails for a reason that a retry does not remove, or the limit is reached.
    /// Reports each failure before a retry to `failed`.
    pub async fn run<T, F>(
        self,
        once: impl Fn() -> F,
        failed: impl Fn(&StoreError),
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let Self { mut pauses, limit } = self;
        let (began, mut calls) = (Instant::now(), 0);
        loop {
            let error = match once().await {
                Err(error) if error.kind.is_transient() => error,
                done => return done,
            };
            calls += 1;
            let is_last = match limit {
                Limit::Calls(most) => calls >= most,
                Limit::Time(time) => began.elapsed() + pauses.peek() > time,
            };
            if is_last {
                return Err(error);
            }
            failed(&error);
            tokio::time::sleep(pauses.pause()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{Effect, ErrorKind, Op};

    const SECOND: Duration = Duration::from_secs(1);
    const PAUSES: Backoff = Backoff::new(SECOND, SECOND);

    /// Calls that fail with `kind` until the call number `good`: the outcome, the calls, and the reports.
    async fn tried(retry: Retry, kind: ErrorKind, good: u32) -> (bool, u32, u32) {
        let (calls, reports) = (Cell::new(0), Cell::new(0));
        let once = || {
            calls.set(calls.get() + 1);
            let error = StoreError::new(Op::Get, "memory://x/k", kind, Effect::DidNot, "");
            let outcome = (calls.get() == good).then_some(()).ok_or(error);
            std::future::ready(outcome)
        };
        let outcome = retry.run(once, |_| reports.set(reports.get() + 1)).await;
        (outcome.is_ok(), calls.get(), reports.get())
    }

    #[tokio::test(start_paused = true)]
    async fn transient_failures_are_retried_up_to_the_limit() {
        use ErrorKind::{Denied, Timeout};
        let calls = Retry::calls(3, PAUSES);
        assert_eq!(tried(calls, Timeout, 1).await, (true, 1, 0));
        assert_eq!(tried(calls, Timeout, 3).await, (true, 3, 2));
        assert_eq!(tried(calls, Timeout, 4).await, (false, 3, 2));
        assert_eq!(tried(calls, Denied, 2).await, (false, 1, 0));
        let within = Retry::within(3 * SECOND, PAUSES);
        assert_eq!(tried(within, Timeout, 4).await, (true, 4, 3));
        assert_eq!(tried(within, Timeout, 9).await, (false, 4, 3));
    }
}
