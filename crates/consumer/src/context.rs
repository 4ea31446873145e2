//! Time and randomness of the daemon: those of the system, or of the simulator.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use batchweave_log::{Clock, LogOptions, TokioClock};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A clock, a random generator, and the time of day.
#[derive(Debug)]
pub(crate) struct Context {
    clock: Arc<dyn Clock>,
    random: Mutex<StdRng>,
    /// Returns the time of day that is written into objects, for people.
    calendar: fn() -> String,
}

impl Context {
    /// The context of the system.
    pub(crate) fn system() -> Self {
        Self::new(
            TokioClock::shared(),
            rand::random(),
            batchweave_daemon::timestamp::now,
        )
    }

    pub(crate) fn new(clock: Arc<dyn Clock>, seed: [u8; 32], calendar: fn() -> String) -> Self {
        Self {
            clock,
            random: Mutex::new(StdRng::from_seed(seed)),
            calendar,
        }
    }

    /// The time since a fixed but arbitrary instant.
    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// The time since `now` returned `then`.
    pub(crate) fn since(&self, then: Duration) -> Duration {
        self.now().saturating_sub(then)
    }

    pub(crate) async fn sleep(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    pub(crate) async fn sleep_until(&self, at: Duration) {
        self.sleep(at.saturating_sub(self.now())).await;
    }

    /// Returns the output of `future`; `None` if it takes longer than `time`.
    pub(crate) async fn timeout<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            outcome = future => Some(outcome),
            () = self.sleep(time) => None,
        }
    }

    /// Returns a number that is uniformly distributed in `range`.
    pub(crate) fn random(&self, range: Range<f64>) -> f64 {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.random_range(range)
    }

    /// Returns 0.5 to 1.5 times `pause`, so that daemons that failed together do not retry together.
    pub(crate) fn jittered(&self, pause: Duration) -> Duration {
        pause.mul_f64(self.random(0.5..1.5))
    }

    pub(crate) fn calendar(&self) -> String {
        (self.calendar)()
    }

    /// Returns the options with which the daemon opens a log.
    pub(crate) fn log_options(&self) -> LogOptions {
        let seed = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            random.random()
        };
        LogOptions {
            write_snapshots: false,
            clock: Arc::clone(&self.clock),
            ..LogOptions::new(seed)
        }
    }
}

/// Ticks at a fixed period, the first one immediately. A late tick delays those after it.
#[derive(Debug)]
pub(crate) struct Ticks {
    every: Duration,
    next: Duration,
}

impl Ticks {
    pub(crate) fn new(context: &Context, every: Duration) -> Self {
        let next = context.now();
        Self { every, next }
    }

    /// Waits for the next tick. Dropped before it is done, it loses none.
    pub(crate) async fn tick(&mut self, context: &Context) {
        if context.now() < self.next {
            context.sleep_until(self.next).await;
        }
        self.next = context.now() + self.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ticks_begin_at_once_and_a_late_one_moves_the_next() {
        let context = Context::system();
        let mut ticks = Ticks::new(&context, Duration::from_secs(10));
        let begun = context.now();
        ticks.tick(&context).await;
        assert_eq!(context.since(begun), Duration::ZERO);
        context.sleep(Duration::from_secs(14)).await;
        ticks.tick(&context).await;
        ticks.tick(&context).await;
        assert_eq!(context.since(begun), Duration::from_secs(24));
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_ends_what_takes_longer() {
        let context = Context::system();
        let second = Duration::from_secs(1);
        let late = context.timeout(second, context.sleep(second * 2));
        assert_eq!(late.await, None);
        assert_eq!(context.timeout(second, async { 7 }).await, Some(7));
    }
}
