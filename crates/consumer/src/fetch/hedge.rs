//! Hedged reads: when an answer is late, the same read is sent again on its own connection, and the first
//! answer is used.
//!
//! "Late" follows from recent answer times. At most one request in twenty is hedged, so that a store that is
//! slow in general does not get slower.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batchweave_store::StoreError;
use futures::future::select_ok;

use crate::context::Context;

/// Answers whose times are remembered.
const RECENT: usize = 128;
/// Fewer answers than this say nothing about usual times.
const FEW: usize = 16;
const PATIENCE_FIRST: Duration = Duration::from_secs(1);
const PATIENCE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// Hedged requests that each answer earns.
const SHARE: f64 = 0.05;
/// Most hedged requests that can be saved up.
const SAVED_MAX: f64 = 8.0;

/// Recent answer times, and the budget of hedged requests.
#[derive(Debug)]
pub(crate) struct Hedges {
    context: Arc<Context>,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    recent: VecDeque<Duration>,
    saved: f64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            recent: VecDeque::new(),
            saved: 2.0,
        }
    }
}

impl Window {
    fn answered(&mut self, took: Duration) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(took);
        self.saved = (self.saved + SHARE).min(SAVED_MAX);
    }

    /// Twice the 95th percentile of recent answer times.
    fn patience(&self) -> Duration {
        if self.recent.len() < FEW {
            return PATIENCE_FIRST;
        }
        let mut sorted: Vec<Duration> = self.recent.iter().copied().collect();
        sorted.sort_unstable();
        let usual = sorted[(sorted.len() * 19 / 20).min(sorted.len() - 1)];
        (usual * 2).clamp(PATIENCE.0, PATIENCE.1)
    }

    fn spend(&mut self) -> bool {
        let enough = self.saved >= 1.0;
        if enough {
            self.saved -= 1.0;
        }
        enough
    }
}

impl Hedges {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let window = Mutex::default();
        Self { context, window }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `ask(false)`; when the answer is late, also `ask(true)` after `again`. Returns the first success.
    pub(crate) async fn race<T, F>(
        &self,
        ask: impl Fn(bool) -> F,
        again: impl FnOnce(),
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let begun = self.context.now();
        let patience = { self.window().patience() };
        let mut first = Box::pin(ask(false));
        let answer = match self.context.timeout(patience, &mut first).await {
            Some(answer) => answer,
            None if self.window().spend() => {
                again();
                select_ok([first, Box::pin(ask(true))])
                    .await
                    .map(|(answer, _)| answer)
            }
            None => first.await,
        };
        if answer.is_ok() {
            self.window().answered(self.context.since(begun));
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use tokio::time::{sleep, timeout};

    use super::*;

    fn answered(count: u32, took: Duration) -> Hedges {
        let hedges = Hedges::new(Arc::new(Context::system()));
        (0..count).for_each(|_| hedges.window().answered(took));
        hedges
    }

    #[test]
    fn patience_follows_what_is_usual() {
        let after = |count, ms| {
            answered(count, Duration::from_millis(ms))
                .window()
                .patience()
        };
        assert_eq!(after(15, 30), PATIENCE_FIRST);
        assert_eq!(after(16, 30), Duration::from_millis(60));
        assert_eq!(after(500, 1), PATIENCE.0);
        assert_eq!(after(500, 60_000), PATIENCE.1);
        let hedges = answered(127, Duration::from_millis(30));
        hedges.window().answered(Duration::from_secs(9));
        assert_eq!(hedges.window().patience(), Duration::from_millis(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_read_is_asked_for_again_and_no_more_often_than_may_be() {
        let hedges = answered(100, Duration::from_millis(30));
        let (asked, again) = (Cell::new(0_u32), Cell::new(0_u32));
        // Every other request is never answered.
        let ask = |fresh: bool| {
            let number = asked.get();
            asked.set(number + 1);
            assert_eq!(
                fresh,
                number % 2 == 1,
                "the second one has a connection of its own"
            );
            async move {
                if number.is_multiple_of(2) {
                    pending::<()>().await;
                }
                sleep(Duration::from_millis(30)).await;
                Ok(number)
            }
        };
        for _ in 0..7 {
            let answer = hedges.race(&ask, || again.set(again.get() + 1)).await;
            assert!(answer.is_ok_and(|number| number % 2 == 1));
        }
        assert_eq!((asked.get(), again.get()), (14, 7));
        let spent = timeout(Duration::from_mins(10), hedges.race(&ask, || ())).await;
        assert!(spent.is_err(), "nothing is left to spend");
        assert_eq!(asked.get(), 15);
    }
}
