//! The position of one connected rank, and the frames that it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::Step;

use crate::engine::location::FrameId;
use crate::quarantine::QuarantineRanges;

/// The number of a session, never reused by a daemon.
pub(crate) type SessionId = u64;

/// Steps that a rank may hold whatever others hold: one in use, and the next.
const LEAST_STEPS: usize = 2;

/// The reason why a rank's next frame was not pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The frame is not located: its step is not committed, or not read from the log yet.
    Unknown,
    /// The frame is being read from the store.
    Fetching,
    /// The frame is being read late, since there was no room to read it ahead.
    Backpressure,
    /// Ranks hold all of the arena.
    ArenaFull,
    /// The rank has used all its credits.
    Held,
    /// The rank holds its share of the arena.
    Share,
}

/// The slices that a rank reads, its position, and the frames that it holds.
#[derive(Debug, Clone)]
pub(crate) struct ReadCursor {
    /// The slices that it reads of every step.
    pub(crate) slices: Range<u32>,
    /// The next frame to push.
    pub(crate) next: FrameId,
    /// The step at which it began.
    start: Step,
    quarantine: Arc<QuarantineRanges>,
    /// Most steps of which it may hold frames at a time.
    credits: usize,
    /// Frames pushed and not released: their slices by step.
    held: BTreeMap<Step, BTreeSet<u32>>,
    held_bytes: u64,
    /// Nothing more is pushed: the stream or the session has ended, or a frame failed.
    pub(super) done: bool,
}

impl ReadCursor {
    /// A cursor over `slices` from `step` on, without the steps of `quarantine`.
    pub(crate) fn new(
        slices: Range<u32>,
        step: Step,
        credits: usize,
        quarantine: Arc<QuarantineRanges>,
    ) -> Self {
        let step = quarantine.next_read(step);
        let next = FrameId {
            step,
            slice: slices.start,
        };
        Self {
            slices,
            next,
            start: step,
            quarantine,
            credits,
            held: BTreeMap::new(),
            held_bytes: 0,
            done: false,
        }
    }

    /// Its first slice, and the one after its last.
    pub(super) fn block(&self) -> (u32, u32) {
        (self.slices.start, self.slices.end)
    }

    /// The frames that it holds.
    pub(crate) fn held(&self) -> impl Iterator<Item = FrameId> {
        let frames = |(step, slices): (&Step, &BTreeSet<u32>)| {
            let step = *step;
            let slices: Vec<u32> = slices.iter().copied().collect();
            slices.into_iter().map(move |slice| FrameId { step, slice })
        };
        self.held.iter().flat_map(frames)
    }

    /// The number of steps of which it holds frames.
    pub(crate) fn held_steps(&self) -> usize {
        self.held.len()
    }

    /// Whether its credits allow another frame. A step that has begun may always be completed.
    pub(crate) fn has_credit(&self) -> bool {
        self.begun() || self.held.len() < self.credits
    }

    /// Whether it may hold another frame while `free` bytes of the arena are held by no rank: it may hold at most
    /// as many bytes as that, and always `LEAST_STEPS` steps.
    ///
    /// These are the dynamic thresholds of Choudhury and Hahne (1998) for the shared buffer of a switch: a rank
    /// that holds much stops first, and some room is always left.
    pub(super) fn has_share(&self, free: u64) -> bool {
        self.begun() || self.held.len() < LEAST_STEPS || self.held_bytes < free
    }

    fn begun(&self) -> bool {
        self.next.slice > self.slices.start
    }

    /// The number of steps taken since it joined.
    pub(super) fn taken(&self) -> u64 {
        self.distance(self.start, self.next.step)
    }

    fn distance(&self, from: Step, to: Step) -> u64 {
        self.quarantine.count_read(from, to)
    }

    /// The step that it reads `count` steps after its next one.
    pub(super) fn ahead(&self, count: u64) -> Step {
        self.quarantine.advance(self.next.step, count)
    }

    /// The number of steps that it reads before `step`.
    pub(super) fn before(&self, step: Step) -> u64 {
        self.distance(self.next.step, step)
    }

    /// The steps that it passes over.
    pub(crate) fn quarantine(&self) -> &QuarantineRanges {
        &self.quarantine
    }

    /// Takes the next frame, which occupies `bytes` of the arena, and moves to the one after it.
    pub(super) fn take_next(&mut self, bytes: u64) {
        let FrameId { step, slice } = self.next;
        self.held.entry(step).or_default().insert(slice);
        self.held_bytes += bytes;
        self.next = if slice + 1 < self.slices.end {
            FrameId {
                step,
                slice: slice + 1,
            }
        } else {
            FrameId {
                step: self.quarantine.next_read(step + 1),
                slice: self.slices.start,
            }
        };
    }

    /// Releases a frame that occupies `bytes` of the arena; returns false if the rank does not hold it.
    pub(super) fn release(&mut self, id: FrameId, bytes: u64) -> bool {
        let Some(slices) = self.held.get_mut(&id.step) else {
            return false;
        };
        let held = slices.remove(&id.slice);
        if held {
            self.held_bytes -= bytes;
        }
        if slices.is_empty() {
            self.held.remove(&id.step);
        }
        held
    }

    /// Whether this frame is still to be pushed.
    pub(super) fn wants(&self, id: FrameId) -> bool {
        !self.done
            && self.slices.contains(&id.slice)
            && id >= self.next
            && !self.quarantine.contains(id.step)
    }
}
