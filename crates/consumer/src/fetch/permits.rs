//! Permits for the reads in flight, as many as the concurrency limit allows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::IntGauge;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::concurrency_limit::ConcurrencyLimit;
use crate::context::Context;

/// The permits, of which each read in flight holds one.
#[derive(Debug)]
pub(crate) struct Permits {
    semaphore: Semaphore,
    state: Mutex<State>,
    context: Arc<Context>,
    begun: Duration,
    shown: IntGauge,
}

#[derive(Debug)]
struct State {
    limit: ConcurrencyLimit,
    /// Permits in existence, in use or not.
    given: usize,
}

/// A permit for one read, returned when dropped.
pub(crate) struct Permit<'a> {
    of: &'a Permits,
    permit: Option<SemaphorePermit<'a>>,
}

impl Permits {
    /// Permits for at most `most` reads; `shown` is the gauge of the current limit.
    pub(crate) fn new(most: usize, shown: IntGauge, context: Arc<Context>) -> Self {
        let limit = ConcurrencyLimit::new(most);
        let given = limit.allowed();
        shown.set(given.cast_signed() as i64);
        Self {
            semaphore: Semaphore::new(given),
            state: Mutex::new(State { limit, given }),
            begun: context.now(),
            context,
            shown,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit. Permits are granted in the order of the calls, which is the order of need.
    pub(crate) async fn acquire(&self) -> Permit<'_> {
        let Ok(permit) = self.semaphore.acquire().await else {
            // The semaphore is never closed; the end of the daemon cancels the task.
            return std::future::pending().await;
        };
        Permit {
            of: self,
            permit: Some(permit),
        }
    }

    /// Lowers the limit, since the store throttles.
    pub(crate) fn throttled(&self) {
        let now = self.context.since(self.begun);
        self.change(|limit| limit.throttled(now));
    }

    fn change(&self, change: impl FnOnce(&mut ConcurrencyLimit)) {
        let mut state = self.state();
        change(&mut state.limit);
        let allowed = state.limit.allowed();
        if allowed > state.given {
            self.semaphore.add_permits(allowed - state.given);
            state.given = allowed;
        } else if allowed < state.given {
            // Permits in use are dropped when they are returned.
            state.given -= self.semaphore.forget_permits(state.given - allowed);
        }
        self.shown.set(allowed.cast_signed() as i64);
    }
}

impl Permit<'_> {
    /// Reports that the read returned `bytes`, the first of them after `answered`.
    pub(crate) fn done(self, bytes: u64, answered: Duration) {
        let busy = self.of.semaphore.available_permits() == 0;
        let now = self.of.context.since(self.of.begun);
        self.of
            .change(|limit| limit.done(now, bytes, answered, busy));
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state();
        if state.given > state.limit.allowed() {
            state.given -= 1;
            if let Some(permit) = self.permit.take() {
                permit.forget();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(most: usize) -> (Permits, IntGauge) {
        let gauge = IntGauge::new("allowed", "allowed").unwrap();
        let context = Arc::new(Context::system());
        (Permits::new(most, gauge.clone(), context), gauge)
    }

    #[tokio::test(start_paused = true)]
    async fn fewer_are_allowed_once_permits_in_use_are_returned() {
        let (permits, gauge) = permits(8);
        let mut held = Vec::new();
        for _ in 0..7 {
            held.push(permits.acquire().await);
        }
        permits.throttled();
        assert_eq!((gauge.get(), permits.semaphore.available_permits()), (5, 0));
        held.truncate(5);
        assert_eq!(permits.semaphore.available_permits(), 0);
        held.truncate(4);
        assert_eq!(permits.semaphore.available_permits(), 1);
        held.clear();
        assert_eq!(permits.semaphore.available_permits(), 5);
        assert_eq!(permits.state().given, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn more_are_allowed_as_they_bring_more() {
        let (permits, gauge) = permits(32);
        let permits = Arc::new(permits);
        let reader = |permits: Arc<Permits>| async move {
            loop {
                let permit = permits.acquire().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                permit.done(8 << 20, Duration::from_millis(30));
            }
        };
        let readers: Vec<tokio::task::JoinHandle<()>> = (0..40)
            .map(|_| tokio::spawn(reader(Arc::clone(&permits))))
            .collect();
        tokio::time::sleep(Duration::from_mins(5)).await;
        readers.iter().for_each(tokio::task::JoinHandle::abort);
        for reader in readers {
            assert!(reader.await.is_err_and(|why| why.is_cancelled()));
        }
        assert_eq!(gauge.get(), 32);
        assert_eq!(permits.semaphore.available_permits(), 32);
    }
}
