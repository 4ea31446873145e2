//! Leading: when the next round is, and when to stop.

use std::time::Duration;

use super::super::{Action, Queue};
use super::constants::{BURST, OTHERS_FIRST, OTHERS_MIN, OTHERS_WEIGHT, QUIET_PACE, STAY_FOR};
use super::{Dac, Doing};

#[derive(Debug, Clone, Copy)]
pub(super) struct Leading {
    pub(super) next_round: Duration,
    /// Mean number of others' intents in a round.
    others: f64,
    /// Whether a round has brought as many as a burst does.
    burst: bool,
    /// When a round brought something, others' or own.
    brought: Duration,
    /// Rounds in a row that brought nothing.
    quiet: u32,
    /// When the round began that is under way, and how many of others' intents it has found.
    began: Duration,
    found: usize,
}

impl Leading {
    /// From now on, with rounds so far apart.
    pub(super) fn new(now: Duration, pace: Duration) -> Self {
        Self {
            next_round: now + pace,
            others: OTHERS_FIRST,
            burst: false,
            brought: now,
            quiet: 0,
            began: now,
            found: 0,
        }
    }

    /// A round begins.
    pub(super) fn begin(&mut self, now: Duration, pace: Duration) {
        (self.began, self.next_round) = (now, now + self.pace(pace));
    }

    /// The round's record had room for so many of others' intents only. The rest does not wait for
    /// a whole pace, or a thousand producers would announce more than records take.
    pub(super) fn had_no_room(&mut self, others: usize) {
        let taken = others as f64 / self.found.max(1) as f64;
        let pace = self.next_round.saturating_sub(self.began);
        self.next_round = self.began + pace.mul_f64(taken.min(1.0));
    }

    /// Whether it is time for a round; the first own item ends a silence.
    pub(super) fn is_due(&self, now: Duration, ready: usize) -> bool {
        now >= self.next_round || (self.quiet > 0 && ready > 0)
    }

    /// A round has brought so many items of its own and of others; whether to go on.
    pub(super) fn found(&mut self, now: Duration, own: usize, others: usize) -> bool {
        self.found = others;
        self.burst |= others >= BURST;
        if own + others > 0 {
            (self.brought, self.quiet) = (now, 0);
        } else {
            self.quiet += 1;
            if self.burst {
                return now.saturating_sub(self.brought) < STAY_FOR;
            }
        }
        self.others += OTHERS_WEIGHT * (others as f64 - self.others);
        self.others >= OTHERS_MIN
    }

    /// Time to the next round: in silence longer and longer.
    pub(super) fn pace(&self, pace: Duration) -> Duration {
        (pace * (1 + self.quiet / 8)).min(QUIET_PACE.max(pace))
    }
}

impl Dac {
    /// A leader's round.
    pub(super) fn round(&mut self, now: Duration, queue: Queue) -> Action {
        let pace = self.pace();
        match &mut self.leading {
            Some(leading) if leading.is_due(now, queue.ready) => {
                leading.begin(now, pace);
                self.act(now, Doing::Sweep, Action::List)
            }
            Some(leading) => {
                let next = leading.next_round;
                self.wait(now, next)
            }
            None => Action::Idle,
        }
    }
}
