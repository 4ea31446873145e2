//! The number of producers that commit at present: distinct names in this period and the one before.

use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Debug, Clone, Default)]
pub(super) struct Activity {
    now: BTreeSet<u64>,
    before: usize,
    /// Entries in this period and the one before.
    entries: [usize; 2],
    began: Duration,
}

/// Producers beyond this number are not counted.
const ACTIVE_MAX: usize = 1 << 14;

impl Activity {
    pub(super) fn note(&mut self, now: Duration, producers: &[u64], period: Duration) {
        if now.saturating_sub(self.began) > period {
            self.before = self.now.len();
            self.entries = [0, self.entries[0]];
            self.now.clear();
            self.began = now;
        }
        self.entries[0] += producers.len();
        for producer in producers {
            if self.now.len() < ACTIVE_MAX {
                self.now.insert(*producer);
            }
        }
    }

    /// Returns whether at least `least` producers commit repeatedly, or three times as many commit at all.
    pub(super) fn is_crowd(&self, least: usize) -> bool {
        let (count, entries) = (self.count(), self.entries[0].max(self.entries[1]));
        count >= 3 * least || (count >= least && entries >= 3 * count)
    }

    /// Returns the number of active producers, this one included.
    pub(super) fn count(&self) -> usize {
        self.now.len().max(self.before) + 1
    }
}
