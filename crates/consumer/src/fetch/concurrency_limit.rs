//! The limit on reads in flight: as many as still increase the throughput. Pure; the time is an argument.
//!
//! While all allowed reads are in use, a higher limit is tried from time to time. It is kept if the throughput has
//! grown by a good part of the proportional increase. Otherwise the limit returns to its value before, and the
//! next trial waits longer. When answers take much longer than they did, reads wait in a queue somewhere: a lower
//! limit is tried, and kept if the throughput is about the same. When the store throttles, the limit drops by a
//! third immediately.

use std::time::Duration;

/// The limit at the start.
const FIRST: usize = 8;
const LEAST: usize = 2;
/// The shortest window. It also has at least twice as many answers as reads are allowed.
const WINDOW: Duration = Duration::from_millis(200);
/// The part of the proportional increase in throughput that a higher limit must achieve.
const WORTH: f64 = 0.4;
/// Windows until the next trial: the first and the largest number, doubled after each trial that failed.
const REST: (u32, u32) = (4, 64);
const REST_THROTTLED: u32 = 32;
/// Throttled reads within this time count as one.
const THROTTLED_ONCE: Duration = Duration::from_secs(1);
/// Reads whose answers take this many times the usual time are waiting in a queue.
const QUEUED: u32 = 3;
/// Smaller differences in answer times mean nothing.
const QUEUED_LEAST: Duration = Duration::from_millis(20);

/// The state machine that adjusts the limit.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    allowed: usize,
    most: usize,
    window: Window,
    trial: Option<Trial>,
    rest: u32,
    next_rest: u32,
    /// The shortest median answer time; it grows slowly, since stores change.
    calm: Option<Duration>,
    throttled: Option<Duration>,
}

#[derive(Debug)]
struct Window {
    begun: Duration,
    bytes: u64,
    answers: Vec<Duration>,
    /// Answers that arrived while all allowed reads were in use.
    busy: usize,
}

/// A new limit that is being tried.
#[derive(Debug)]
struct Trial {
    before: usize,
    rate: f64,
}

impl ConcurrencyLimit {
    /// A limit of at most `most` reads.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            allowed: FIRST.min(most),
            most,
            window: Window::new(Duration::ZERO),
            trial: None,
            rest: 1,
            next_rest: REST.0,
            calm: None,
            throttled: None,
        }
    }

    /// The number of reads that may be in flight.
    pub(crate) fn allowed(&self) -> usize {
        self.allowed
    }

    /// Notes a read that returned `bytes`, the first of them after `answered`. `busy`: all allowed reads were in
    /// flight.
    pub(crate) fn done(&mut self, now: Duration, bytes: u64, answered: Duration, busy: bool) {
        let window = &mut self.window;
        window.bytes += bytes;
        window.answers.push(answered);
        window.busy += usize::from(busy);
        let elapsed = now.saturating_sub(window.begun);
        if window.answers.len() < 2 * self.allowed || elapsed < WINDOW {
            return;
        }
        let window = std::mem::replace(&mut self.window, Window::new(now));
        // Nothing can be learned while the node does not need all allowed reads.
        if window.busy * 10 >= window.answers.len() * 9 {
            self.evaluate(window.bytes as f64 / elapsed.as_secs_f64(), window.usual());
        } else {
            self.end_trial();
        }
    }

    /// Notes a read that the store throttled.
    pub(crate) fn throttled(&mut self, now: Duration) {
        let again = self
            .throttled
            .is_none_or(|last| now >= last + THROTTLED_ONCE);
        if again {
            self.throttled = Some(now);
            self.allowed = (self.allowed * 2 / 3).max(LEAST.min(self.most));
        }
        self.trial = None;
        self.rest = REST_THROTTLED;
        self.window = Window::new(now);
    }

    fn evaluate(&mut self, rate: f64, answered: Duration) {
        let queues = self.queues(answered);
        match self.trial.take() {
            Some(trial) if self.was_worth_it(&trial, rate) => {
                self.next_rest = REST.0;
                if self.allowed > trial.before {
                    self.step_up(rate);
                } else if queues {
                    self.step_down(rate);
                }
            }
            Some(trial) => {
                self.allowed = trial.before;
                self.rest = self.next_rest;
                self.next_rest = (self.next_rest * 2).min(REST.1);
            }
            None if self.rest > 0 => self.rest -= 1,
            None if queues => self.step_down(rate),
            None => self.step_up(rate),
        }
        let calm = self.calm.map_or(answered, |calm| calm.mul_f64(1.02));
        self.calm = Some(calm.min(answered));
    }

    /// Whether a trial succeeded: a higher limit must increase the throughput, a lower one may reduce it a little.
    fn was_worth_it(&self, trial: &Trial, rate: f64) -> bool {
        let could = self.allowed as f64 / trial.before as f64 - 1.0;
        rate / trial.rate - 1.0 >= could * WORTH
    }

    fn queues(&self, answered: Duration) -> bool {
        let queued = |calm: Duration| answered > (calm * QUEUED).max(calm + QUEUED_LEAST);
        self.calm.is_some_and(queued)
    }

    fn step_up(&mut self, rate: f64) {
        self.try_out(
            (self.allowed + self.allowed.div_ceil(4)).min(self.most),
            rate,
        );
    }

    fn step_down(&mut self, rate: f64) {
        let least = LEAST.min(self.most);
        self.try_out((self.allowed - self.allowed.div_ceil(8)).max(least), rate);
    }

    fn try_out(&mut self, allowed: usize, rate: f64) {
        let before = std::mem::replace(&mut self.allowed, allowed);
        self.trial = (allowed != before).then_some(Trial { before, rate });
    }

    fn end_trial(&mut self) {
        if let Some(trial) = self.trial.take() {
            self.allowed = trial.before;
        }
    }
}

impl Window {
    fn new(begun: Duration) -> Self {
        Self {
            begun,
            bytes: 0,
            answers: Vec::new(),
            busy: 0,
        }
    }

    /// Returns the median answer time.
    fn usual(mut self) -> Duration {
        self.answers.sort_unstable();
        let middle = self.answers.len() / 2;
        self.answers.get(middle).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
