//! How many producers commit at present: distinct names over this period and the one before.

use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Debug, Clone, Default)]
pub(super) struct Activity {
    now: BTreeSet<u64>,
    before: usize,
    began: Duration,
}

/// More are counted as this many.
const ACTIVE_MAX: usize = 1 << 14;

impl Activity {
    pub(super) fn note(&mut self, now: Duration, producers: &[u64], period: Duration) {
        if now.saturating_sub(self.began) > period {
            self.before = self.now.len();
            self.now.clear();
            self.began = now;
        }
        for producer in producers {
            if self.now.len() < ACTIVE_MAX {
                self.now.insert(*producer);
            }
        }
    }

    /// The producers beside this one, and this one.
    pub(super) fn count(&self) -> usize {
        self.now.len().max(self.before) + 1
    }
}
