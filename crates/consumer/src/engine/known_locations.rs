//! Where the slices of steps lie, as far as that is known, and of which it is to be found out.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::Step;

use super::{Engine, Session, State, TooLarge};
use crate::engine::location::{FrameId, Location, Places};

impl<R: Clone, E: Clone + From<TooLarge>> Engine<R, E> {
    /// The places of a block of a step's slices became known: from slice `first` on.
    pub(crate) fn add_step(&mut self, step: Step, first: u32, frames: Arc<[Location]>) {
        self.changed();
        self.steps.entry(step).or_default().add(first, frames);
    }

    /// The places of slices of a step can't be had: ranks that reach them get the reason.
    pub(crate) fn fail_slices(&mut self, step: Step, slices: Range<u32>, why: &E) {
        self.changed();
        for slice in slices {
            let id = FrameId { step, slice };
            if self.distance(id).is_some() && !self.frames.contains_key(&id) {
                self.insert(id, None, State::Failed(why.clone()), false);
            }
        }
    }

    /// The log says something else of these steps now: what is known of them and was fetched is not sent
    /// to anybody. What ranks hold stays until they release it.
    pub(crate) fn forget_steps(&mut self, steps: &BTreeSet<Step>) {
        self.changed();
        self.steps.retain(|step, _| !steps.contains(step));
        let stale = |id: &&FrameId| steps.contains(&id.step);
        let ids: Vec<FrameId> = self.frames.keys().filter(stale).copied().collect();
        for id in ids {
            if let Some(frame) = self.frames.get_mut(&id) {
                frame.stale = true;
            }
            self.drop_if_unwanted(id);
        }
    }

    /// The known steps that have slices in an object.
    pub(crate) fn steps_in(&self, key: &str) -> impl Iterator<Item = Step> {
        let inside = |(_, places): &(&Step, &Places)| places.lie_in(key);
        self.steps.iter().filter(inside).map(|(step, _)| *step)
    }

    /// The slices of `step` that ranks need soon and whose places are not known: sorted and apart.
    pub(crate) fn lacking(&self, step: Step) -> Vec<Range<u32>> {
        let ahead = self.limits.steps_ahead;
        let needs =
            |s: &&Session| s.next.step <= step && !s.skips().skips(step) && s.before(step) <= ahead;
        let needing = self.active().filter(needs).map(Session::block);
        let blocks: BTreeSet<(u32, u32)> = needing.collect();
        let mut lacking: Vec<Range<u32>> = Vec::new();
        for (first, end) in blocks {
            if !self.lacks(step, &(first..end)) {
                continue;
            }
            match lacking.last_mut().filter(|last| first <= last.end) {
                Some(last) => last.end = last.end.max(end),
                None => lacking.push(first..end),
            }
        }
        lacking
    }

    /// Whether the place of one of `slices` is neither known nor known not to be had.
    pub(super) fn lacks(&self, step: Step, slices: &Range<u32>) -> bool {
        let covered = self.steps.get(&step).is_some_and(|at| at.cover(slices));
        let decided = |slice| {
            let id = FrameId { step, slice };
            let frame = self.frames.get(&id);
            frame.is_some_and(|frame| !frame.stale) || self.location(id).is_some()
        };
        !covered && !slices.clone().all(decided)
    }

    /// Where a frame lies, if that is known.
    pub(super) fn location(&self, id: FrameId) -> Option<&Location> {
        self.steps.get(&id.step)?.at(id.slice)
    }
}
