//! When it is worth scanning the steps ahead again, and which of them are not located.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::ids::Step;

use super::{Engine, TooLarge};

/// Whether a scan of the steps ahead is due: after any change but of positions, or once ranks have advanced by a
/// part of the steps ahead. The cost of a scan grows with these steps.
#[derive(Debug)]
pub(super) struct Due {
    /// Something other than positions has changed.
    pub(super) changed: bool,
    /// Steps by which ranks have advanced since the last scan.
    pub(super) steps: u64,
}

/// Scans while ranks advance by the steps ahead.
const SCANS: u64 = 16;

impl Due {
    pub(super) fn is_now(&self, ahead: u64) -> bool {
        self.changed || self.steps >= (ahead / SCANS).max(1)
    }

    pub(super) fn done(&mut self) {
        (self.changed, self.steps) = (false, 0);
    }
}

impl Default for Due {
    fn default() -> Self {
        Self {
            changed: true,
            steps: 0,
        }
    }
}

impl<R: Clone, E: Clone + From<TooLarge>> Engine<R, E> {
    /// Makes all scans due, since something other than a position has changed.
    pub(super) fn changed(&mut self) {
        self.ahead.changed = true;
        self.unknown.0.changed = true;
    }

    /// Returns the steps that ranks need soon and that are not located, and forgets located steps that no rank
    /// needs any more.
    pub(crate) fn unknown_steps(&mut self) -> Arc<[Step]> {
        if self.unknown.0.is_now(self.limits.steps_ahead) {
            self.unknown.0.done();
            self.unknown.1 = self.scan_for_unknown();
        }
        Arc::clone(&self.unknown.1)
    }

    fn scan_for_unknown(&mut self) -> Arc<[Step]> {
        let mut unknown = BTreeSet::new();
        let mut soon = BTreeSet::new();
        let committed = |step: &Step| self.end.is_none_or(|end| *step < end);
        let readers = self
            .active()
            .map(|s| (s.next.step, s.quarantine(), s.block()));
        for (from, quarantine, slices) in readers.collect::<BTreeSet<_>>() {
            let next = |step: &Step| Some(quarantine.next_read(step + 1));
            let window = std::iter::successors(Some(from), next);
            for step in window.take(self.limits.steps_ahead as usize + 1) {
                soon.insert(step);
                if committed(&step) && self.lacks(step, &(slices.0..slices.1)) {
                    unknown.insert(step);
                }
            }
        }
        self.steps.retain(|step, _| soon.contains(step));
        unknown.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_due_after_a_part_of_the_steps_ahead_or_a_change() {
        let mut due = Due::default();
        assert!(due.is_now(64), "nothing was scanned yet");
        due.done();
        for (steps, now) in [(0, false), (3, false), (4, true)] {
            due.steps = steps;
            assert_eq!(due.is_now(64), now, "{steps} of 64 steps");
        }
        due.done();
        due.steps = 1;
        assert!(due.is_now(31) && due.is_now(0), "few steps cost little");
        assert!(!due.is_now(32));
        due.changed = true;
        assert!(due.is_now(1024));
    }
}
