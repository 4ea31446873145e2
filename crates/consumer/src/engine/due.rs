//! When it is worth looking far ahead, and which steps are not known there.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::ids::Step;

use super::{Engine, TooLarge};

/// Whether to look far ahead again: when something but positions has changed, or when ranks have gone on
/// by some part of the way ahead. Each look costs as much as the way is long, and steps may be many.
#[derive(Debug)]
pub(super) struct Due {
    /// Something but positions.
    pub(super) changed: bool,
    /// Steps that ranks have gone on.
    pub(super) steps: u64,
}

/// Looks on the way to what is looked at.
const LOOKS: u64 = 16;

impl Due {
    pub(super) fn is_now(&self, ahead: u64) -> bool {
        self.changed || self.steps >= (ahead / LOOKS).max(1)
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
    /// Something but a position has changed.
    pub(super) fn changed(&mut self) {
        self.ahead.changed = true;
        self.unknown.0.changed = true;
    }

    /// Steps that ranks need soon and that are not known; forgets those that nobody needs any more.
    pub(crate) fn unknown_steps(&mut self) -> Arc<[Step]> {
        if self.unknown.0.is_now(self.limits.steps_ahead) {
            self.unknown.0.done();
            self.unknown.1 = self.look_for_unknown();
        }
        Arc::clone(&self.unknown.1)
    }

    fn look_for_unknown(&mut self) -> Arc<[Step]> {
        let mut unknown = BTreeSet::new();
        let mut soon = BTreeSet::new();
        let committed = |step: &Step| self.end.is_none_or(|end| *step < end);
        let readers = self.active().map(|s| (s.next.step, s.skips(), s.block()));
        for (from, skips, slices) in readers.collect::<BTreeSet<_>>() {
            let next = |step: &Step| Some(skips.pass(step + 1));
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
    fn looks_come_after_a_part_of_the_way_or_a_change() {
        let mut due = Due::default();
        assert!(due.is_now(64), "nothing was looked at yet");
        due.done();
        for (steps, now) in [(0, false), (3, false), (4, true)] {
            due.steps = steps;
            assert_eq!(due.is_now(64), now, "{steps} of 64 steps");
        }
        due.done();
        due.steps = 1;
        assert!(due.is_now(31) && due.is_now(0), "a short way costs little");
        assert!(!due.is_now(32));
        due.changed = true;
        assert!(due.is_now(1024));
    }
}
