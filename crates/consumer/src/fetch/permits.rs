//! The reads in flight, as many as the pace allows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::IntGauge;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::context::Context;
use crate::fetch::concurrency_limit::Pace;

/// Who wants to read waits here.
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
    pace: Pace,
    /// Permits that there are, in use or not.
    given: usize,
}

/// One read; over when dropped.
pub(crate) struct Permit<'a> {
    of: &'a Permits,
    permit: Option<SemaphorePermit<'a>>,
}

impl Permits {
    /// At most `most`; `shown` tells how many are allowed.
    pub(crate) fn new(most: usize, shown: IntGauge, context: Arc<Context>) -> Self {
        let pace = Pace::new(most);
        let given = pace.allowed();
        shown.set(given.cast_signed() as i64);
        Self {
            semaphore: Semaphore::new(given),
            state: Mutex::new(State { pace, given }),
            begun: context.now(),
            context,
            shown,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. Turns come in the order in which they are asked for, which is that of need.
    pub(crate) async fn acquire(&self) -> Permit<'_> {
        let Ok(permit) = self.semaphore.acquire().await else {
            // Never closed; the daemon's end cancels the task.
            return std::future::pending().await;
        };
        Permit {
            of: self,
            permit: Some(permit),
        }
    }

    /// The store asks for fewer.
    pub(crate) fn throttled(&self) {
        let now = self.context.since(self.begun);
        self.change(|pace| pace.throttled(now));
    }

    fn change(&self, change: impl FnOnce(&mut Pace)) {
        let mut state = self.state();
        change(&mut state.pace);
        let allowed = state.pace.allowed();
        if allowed > state.given {
            self.semaphore.add_permits(allowed - state.given);
            state.given = allowed;
        } else if allowed < state.given {
            // Those in use go when they are given back.
            state.given -= self.semaphore.forget_permits(state.given - allowed);
        }
        self.shown.set(allowed.cast_signed() as i64);
    }
}

impl Permit<'_> {
    /// The read brought `bytes`, the first of them after so long.
    pub(crate) fn done(self, bytes: u64, answered: Duration) {
        let busy = self.of.semaphore.available_permits() == 0;
        let now = self.of.context.since(self.of.begun);
        self.of.change(|pace| pace.done(now, bytes, answered, busy));
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state();
        if state.given > state.pace.allowed() {
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
    async fn fewer_are_allowed_once_those_in_use_are_over() {
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
        let readers = (0..40).map(|_| tokio::spawn(reader(Arc::clone(&permits))));
        let readers: Vec<tokio::task::JoinHandle<()>> = readers.collect();
        tokio::time::sleep(Duration::from_mins(5)).await;
        readers.iter().for_each(tokio::task::JoinHandle::abort);
        for reader in readers {
            assert!(reader.await.is_err_and(|why| why.is_cancelled()));
        }
        assert_eq!(gauge.get(), 32);
        assert_eq!(permits.semaphore.available_permits(), 32);
    }
}
