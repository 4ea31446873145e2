//! Leading: when the next round is due, and when to stop.

use std::time::Duration;

use super::constants::{BURST, OTHERS_FIRST, OTHERS_MIN, OTHERS_WEIGHT, QUIET_PACE, STAY_FOR};

#[derive(Debug, Clone, Copy)]
pub(super) struct Leading {
    pub(super) next_round: Duration,
    /// Mean number of other producers' intents in a round.
    others: f64,
    /// A round found at least `BURST` intents.
    burst: bool,
    /// The last round that committed something.
    brought: Duration,
    /// Consecutive rounds that committed nothing.
    quiet: u32,
    /// The start of the round under way.
    began: Duration,
    /// Other producers' intents that the round under way found.
    found: usize,
}

impl Leading {
    /// Leads from now on; the first round is after `pace`.
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

    pub(super) fn begin(&mut self, now: Duration, pace: Duration) {
        (self.began, self.next_round) = (now, now + self.pace(pace));
    }

    /// Advances the next round, since the record had room for `others` of the found intents only. Without
    /// this, a thousand producers would announce more than the records can take.
    pub(super) fn had_no_room(&mut self, others: usize) {
        let taken = others as f64 / self.found.max(1) as f64;
        let pace = self.next_round.saturating_sub(self.began);
        self.next_round = self.began + pace.mul_f64(taken.min(1.0));
    }

    /// Returns whether a round is due; the first own item ends a silence.
    pub(super) fn is_due(&self, now: Duration, ready: usize) -> bool {
        now >= self.next_round || (self.quiet > 0 && ready > 0)
    }

    /// Notes the items that a round found and returns whether to go on leading.
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

    /// Returns the interval to the next round, which grows during silence.
    pub(super) fn pace(&self, pace: Duration) -> Duration {
        (pace * (1 + self.quiet / 8)).min(QUIET_PACE.max(pace))
    }
}
