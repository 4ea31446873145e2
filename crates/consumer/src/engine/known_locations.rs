//! The known locations of slices, and the slices that are still to be located.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::Step;

use super::{Engine, ReadCursor, State, TooLarge};
use crate::engine::location::{FrameId, Location, SliceLocations};

impl<R: Clone, E: Clone + From<TooLarge>> Engine<R, E> {
    /// Adds the locations of a step's slices from `first` on.
    pub(crate) fn add_step(&mut self, step: Step, first: u32, frames: Arc<[Location]>) {
        self.changed();
        self.steps.entry(step).or_default().add(first, frames);
    }

    /// Fails slices that can't be located: ranks that reach them receive the reason.
    pub(crate) fn fail_slices(&mut self, step: Step, slices: Range<u32>, why: &E) {
        self.changed();
        for slice in slices {
            let id = FrameId { step, slice };
            if self.distance(id).is_some() && !self.frames.contains_key(&id) {
                self.insert(id, None, State::Failed(why.clone()), false);
            }
        }
    }

    /// Forgets steps at which the log has other batches now. Frames of them are not sent any more; those that
    /// ranks hold stay until released.
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

    /// The steps that are known to have slices in an object.
    pub(crate) fn steps_in(&self, key: &str) -> impl Iterator<Item = Step> {
        let inside = |(_, places): &(&Step, &SliceLocations)| places.lie_in(key);
        self.steps.iter().filter(inside).map(|(step, _)| *step)
    }

    /// The slices of `step` that ranks need soon and that are not located: sorted, without overlap.
    pub(crate) fn lacking(&self, step: Step) -> Vec<Range<u32>> {
        let ahead = self.limits.steps_ahead;
        let needs = |s: &&ReadCursor| {
            s.next.step <= step && !s.quarantine().contains(step) && s.before(step) <= ahead
        };
        let needing = self.active().filter(needs).map(ReadCursor::block);
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

    /// Whether some of `slices` are neither located nor failed.
    pub(super) fn lacks(&self, step: Step, slices: &Range<u32>) -> bool {
        let covered = self.steps.get(&step).is_some_and(|at| at.cover(slices));
        let decided = |slice| {
            let id = FrameId { step, slice };
            let frame = self.frames.get(&id);
            frame.is_some_and(|frame| !frame.stale) || self.location(id).is_some()
        };
        !covered && !slices.clone().all(decided)
    }

    /// The location of a frame, if known.
    pub(super) fn location(&self, id: FrameId) -> Option<&Location> {
        self.steps.get(&id.step)?.at(id.slice)
    }
}
