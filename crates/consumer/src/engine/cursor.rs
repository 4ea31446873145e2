//! One connected rank as the engine sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::Step;

use crate::engine::location::FrameId;
use crate::quarantine::Skips;

/// Number of a session, never used twice in a daemon's life.
pub(crate) type SessionId = u64;

/// Steps that a rank may hold whatever others hold: one in use, one to come.
const LEAST_STEPS: usize = 2;

/// What a rank's next frame waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The step is not known: not committed, or not read from the log yet.
    Unknown,
    /// The frame is on its way from the store.
    Fetching,
    /// The same, late: there was no room for it when it was to be fetched ahead.
    Backpressure,
    /// There is no room: ranks hold all of the arena.
    ArenaFull,
    /// The rank holds all its credits.
    Held,
    /// The rank holds its share of the arena.
    Share,
}

/// What a rank reads and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// Its slices of every step.
    pub(crate) slices: Range<u32>,
    /// The next frame to push.
    pub(crate) next: FrameId,
    /// Where it began.
    start: Step,
    /// Steps that it passes over.
    skips: Arc<Skips>,
    /// Steps of which it may hold frames at a time.
    credits: usize,
    /// Frames pushed and not released: their slices by step, and their bytes in the arena.
    held: BTreeMap<Step, BTreeSet<u32>>,
    held_bytes: u64,
    /// Nothing more is pushed: it was told of the end or of a failure, or said so itself.
    pub(super) done: bool,
}

impl Session {
    /// A rank that reads `slices` from `step` on, without the steps of `skips`.
    pub(crate) fn new(slices: Range<u32>, step: Step, credits: usize, skips: Arc<Skips>) -> Self {
        let step = skips.pass(step);
        let next = FrameId {
            step,
            slice: slices.start,
        };
        Self {
            slices,
            next,
            start: step,
            skips,
            credits,
            held: BTreeMap::new(),
            held_bytes: 0,
            done: false,
        }
    }

    /// Its first slice, and the one behind its last.
    pub(super) fn block(&self) -> (u32, u32) {
        (self.slices.start, self.slices.end)
    }

    /// Frames that it holds.
    pub(crate) fn held(&self) -> impl Iterator<Item = FrameId> {
        let frames = |(step, slices): (&Step, &BTreeSet<u32>)| {
            let step = *step;
            let slices: Vec<u32> = slices.iter().copied().collect();
            slices.into_iter().map(move |slice| FrameId { step, slice })
        };
        self.held.iter().flat_map(frames)
    }

    /// Steps of which it holds frames.
    pub(crate) fn held_steps(&self) -> usize {
        self.held.len()
    }

    /// Whether its credits allow another frame. A step that was begun may always be completed.
    pub(crate) fn has_credit(&self) -> bool {
        self.begun() || self.held.len() < self.credits
    }

    /// Whether it may hold another frame where `free` bytes of the arena are held by nobody: it holds
    /// no more than it leaves. Its least steps it may always hold.
    ///
    /// These are the dynamic thresholds of Choudhury and Hahne (1998) for the shared buffer of a
    /// switch: whoever holds much stops first, and what is left is never nothing.
    pub(super) fn has_share(&self, free: u64) -> bool {
        self.begun() || self.held.len() < LEAST_STEPS || self.held_bytes < free
    }

    fn begun(&self) -> bool {
        self.next.slice > self.slices.start
    }

    /// Steps taken since it joined.
    pub(super) fn taken(&self) -> u64 {
        self.distance(self.start, self.next.step)
    }

    fn distance(&self, from: Step, to: Step) -> u64 {
        self.skips.between(from, to)
    }

    /// The step that it reads `count` steps after its next one.
    pub(super) fn ahead(&self, count: u64) -> Step {
        self.skips.ahead(self.next.step, count)
    }

    /// How many steps it reads before `step`.
    pub(super) fn before(&self, step: Step) -> u64 {
        self.distance(self.next.step, step)
    }

    /// What it passes over.
    pub(crate) fn skips(&self) -> &Skips {
        &self.skips
    }

    /// Takes the next frame, which has `bytes` in the arena, and moves on to the one after it.
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
                step: self.skips.pass(step + 1),
                slice: self.slices.start,
            }
        };
    }

    /// Releases a frame that has `bytes` in the arena; false when it does not hold it.
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

    /// Whether this frame is still to be pushed to it.
    pub(super) fn wants(&self, id: FrameId) -> bool {
        !self.done
            && self.slices.contains(&id.slice)
            && id >= self.next
            && !self.skips.skips(id.step)
    }
}
