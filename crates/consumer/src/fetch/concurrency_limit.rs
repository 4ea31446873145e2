//! How many reads may be in flight: as many as still bring something. Pure; the time comes from outside.
//!
//! While the reads that are allowed are all in use, now and then one more step is tried. It stays when
//! the throughput has grown with it, by a good part of what it would if every read brought as much as
//! those before. Otherwise the number goes back, and the next trial waits longer. When answers take much
//! longer than they did, reads queue somewhere: fewer are tried, and kept where they do about as well. A
//! store that throttles gets a third fewer at once.

use std::time::Duration;

/// Reads that are allowed before anything is known.
const FIRST: usize = 8;
const LEAST: usize = 2;
/// A window is at least so long, and holds twice as many answers as reads are allowed.
const WINDOW: Duration = Duration::from_millis(200);
/// Of what a step up could bring at most, this much must come.
const WORTH: f64 = 0.4;
/// Windows until the next trial: after a step that brought nothing, twice as many each time.
const REST: (u32, u32) = (4, 64);
const REST_THROTTLED: u32 = 32;
/// Throttled reads that were in flight together count as one.
const THROTTLED_ONCE: Duration = Duration::from_secs(1);
/// Answers that take so many times the usual wait in a queue.
const QUEUED: u32 = 3;
/// Differences that mean nothing.
const QUEUED_LEAST: Duration = Duration::from_millis(20);

/// The state machine.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    allowed: usize,
    most: usize,
    window: Window,
    trial: Option<Trial>,
    rest: u32,
    next_rest: u32,
    /// The shortest usual wait for an answer; it grows slowly, since stores change.
    calm: Option<Duration>,
    throttled: Option<Duration>,
}

#[derive(Debug)]
struct Window {
    begun: Duration,
    bytes: u64,
    answers: Vec<Duration>,
    /// Answers that came while more reads waited than were allowed.
    busy: usize,
}

/// A step whose worth is not known yet.
#[derive(Debug)]
struct Trial {
    before: usize,
    rate: f64,
}

impl ConcurrencyLimit {
    /// At most `most` reads.
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

    /// Reads that may be in flight.
    pub(crate) fn allowed(&self) -> usize {
        self.allowed
    }

    /// A read is over that brought `bytes` and waited so long for its first. `busy` says that all
    /// allowed reads were in flight.
    pub(crate) fn done(&mut self, now: Duration, bytes: u64, answered: Duration, busy: bool) {
        let window = &mut self.window;
        window.bytes += bytes;
        window.answers.push(answered);
        window.busy += usize::from(busy);
        let long = now.saturating_sub(window.begun);
        if window.answers.len() < 2 * self.allowed || long < WINDOW {
            return;
        }
        let window = std::mem::replace(&mut self.window, Window::new(now));
        // Of a node that does not want more, nothing can be learned.
        if window.busy * 10 >= window.answers.len() * 9 {
            self.judge(window.bytes as f64 / long.as_secs_f64(), window.usual());
        } else {
            self.end_trial();
        }
    }

    /// A read was refused since there are too many.
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

    fn judge(&mut self, rate: f64, answered: Duration) {
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

    /// More reads must bring more, and fewer may bring a little less.
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

    /// The median.
    fn usual(mut self) -> Duration {
        self.answers.sort_unstable();
        let middle = self.answers.len() / 2;
        self.answers.get(middle).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
