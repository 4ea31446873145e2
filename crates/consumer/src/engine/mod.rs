//! The rules by which frames are fetched, pushed, held and freed, as a pure state machine.
//!
//! Invariants:
//! - A frame that was pushed to a rank leaves the arena only after that rank's release or end.
//! - A session is pushed its frames in order, each once, never more than its credits at a time.
//! - A rank holds at most as many bytes as no rank holds, except for two steps that it may always hold.
//! - Frames not delivered to any rank may be evicted, furthest-needed first, to make room for one needed
//!   sooner, once the arena has grown as far as it can. So a rank that stops reading blocks no other.
//!
//! `schedule` decides what to fetch and evict, `due` when that is worth computing; `cursor` is the position of
//! one rank; `location` and `known_locations` say where frames lie in the store, `allocator` where in the arena;
//! `layouts` describes their payloads; `cause` and `depth` explain late frames and count ready ones.

pub(crate) mod allocator;
mod cause;
mod cursor;
mod depth;
mod due;
mod known_locations;
pub(crate) mod layouts;
pub(crate) mod location;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchweave_core::ids::Step;

pub(crate) use cursor::{Cause, ReadCursor, SessionId};
use due::Due;

use crate::engine::allocator::{ArenaAllocator, FrameRegion};
use crate::engine::location::{FrameId, Location, SliceLocations};
use crate::mistakes::{self, Mistake};

/// The configured bounds of the engine.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Bytes of frames that are fetched, or being fetched, and not pushed to any rank.
    pub(crate) ahead_bytes: u64,
    /// Reading ahead waits until it is at least this many bytes, so that reads are large.
    pub(crate) refill_bytes: u64,
    /// Steps that are read ahead of each rank.
    pub(crate) steps_ahead: u64,
    /// The largest frame that fits into a segment.
    pub(crate) segment_bytes: u64,
    /// Bytes of the fully grown arena.
    pub(crate) arena_bytes: u64,
}

/// A frame to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) id: FrameId,
    /// Its location in the store.
    pub(crate) from: Location,
    /// Its destination in the arena.
    pub(crate) to: FrameRegion,
}

/// A frame that cannot be loaded: it fits no segment, or its step does not fit the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge {
    pub(crate) id: FrameId,
    /// The size of the frame, or of all segments that the step needs.
    pub(crate) bytes: u64,
    pub(crate) room: Room,
}

/// The place where something does not fit, and its size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Segment(u64),
    Arena(u64),
}

/// An action for the caller of the engine to perform.
#[derive(Debug, Clone)]
pub(crate) enum Action<R, E> {
    /// Read these, in order of need.
    Fetch(Vec<Fetch>),
    /// Add a segment to the arena.
    Grow,
    /// Send a frame to a rank.
    Push {
        session: SessionId,
        id: FrameId,
        region: FrameRegion,
        ready: R,
        /// No rank was sent this frame before.
        first: bool,
    },
    /// The stream ends before this step, and the rank was sent all steps before it.
    End(SessionId, Step),
    /// The rank's next frame can't be read, for this reason.
    Fail(SessionId, E),
}

#[derive(Debug)]
enum State<R, E> {
    Fetching,
    Ready(R),
    Failed(E),
}

#[derive(Debug)]
struct Frame<R, E> {
    region: Option<FrameRegion>,
    state: State<R, E>,
    holders: usize,
    pushed: bool,
    /// An earlier attempt to schedule it found no room.
    stalled: bool,
    /// The log has another batch at its step now, so it is not sent any more.
    stale: bool,
}

/// The state machine. `R` describes a ready frame, `E` is the reason why a frame can't be read.
#[derive(Debug)]
pub(crate) struct Engine<R, E> {
    limits: Limits,
    arena: ArenaAllocator,
    steps: BTreeMap<Step, SliceLocations>,
    head: Step,
    end: Option<Step>,
    frames: BTreeMap<FrameId, Frame<R, E>>,
    sessions: BTreeMap<SessionId, ReadCursor>,
    held_bytes: u64,
    growing: bool,
    /// Growing has to wait for ranks that have an older arena mapped.
    postponed: bool,
    cramped: bool,
    /// When to compute again what to read ahead.
    ahead: Due,
    /// When to search again for steps that are not located, and the result of the last search.
    unknown: (Due, Arc<[Step]>),
    /// Frames that found no room when scheduling was last attempted.
    stalled: BTreeSet<FrameId>,
}

impl<R: Clone, E: Clone + From<TooLarge>> Engine<R, E> {
    /// An engine with no segments, steps or sessions.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            arena: ArenaAllocator::default(),
            steps: BTreeMap::new(),
            head: 0,
            end: None,
            frames: BTreeMap::new(),
            sessions: BTreeMap::new(),
            held_bytes: 0,
            growing: false,
            postponed: false,
            cramped: false,
            ahead: Due::default(),
            unknown: (Due::default(), Arc::new([])),
            stalled: BTreeSet::new(),
        }
    }

    /// Adds a segment and returns its index.
    pub(crate) fn add_segment(&mut self, bytes: u64) -> u32 {
        self.changed();
        (self.growing, self.postponed) = (false, false);
        self.arena.add_segment(bytes)
    }

    /// Postpones the requested segment: it will be requested again.
    pub(crate) fn growth_postponed(&mut self) {
        self.changed();
        (self.growing, self.postponed) = (false, true);
    }

    /// Gives up growing, since no segment could be created.
    pub(crate) fn growth_failed(&mut self) {
        self.changed();
        self.growing = false;
        self.limits.arena_bytes = self.arena.total();
    }

    /// Sets the first step that is not committed, and the end of the stream once that is decided.
    pub(crate) fn set_head(&mut self, head: Step, end: Option<Step>) {
        self.changed();
        (self.head, self.end) = (head, end);
    }

    /// Adds the cursor of a new session.
    pub(crate) fn open(&mut self, id: SessionId, session: ReadCursor) {
        self.changed();
        self.sessions.insert(id, session);
    }

    /// Removes a rank; the frames that it held are free.
    pub(crate) fn close(&mut self, id: SessionId) {
        self.changed();
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        for frame in session.held() {
            self.unhold(frame);
        }
        self.drop_unwanted();
    }

    /// Releases a frame of a rank; returns false if the rank does not hold it.
    pub(crate) fn release(&mut self, id: SessionId, frame: FrameId) -> bool {
        let bytes = self.place_bytes(frame);
        let session = self.sessions.get_mut(&id);
        let held = session.is_some_and(|s| s.release(frame, bytes));
        if held {
            self.unhold(frame);
            self.drop_if_unwanted(frame);
        }
        held
    }

    /// Pushes nothing more to a rank; frames that it holds stay until it releases them.
    pub(crate) fn stop(&mut self, id: SessionId) {
        self.changed();
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        session.done = true;
        if mistakes::is(Mistake::StoppedFrees) {
            let held: Vec<FrameId> = session.held().collect();
            for frame in held {
                self.unhold(frame);
            }
        }
        self.drop_unwanted();
    }

    /// Takes the outcome of a fetch. A frame that no rank wants any more is dropped only here, since its region
    /// was being written until now.
    pub(crate) fn fetched(&mut self, id: FrameId, outcome: Result<R, E>) {
        self.ahead.changed = true;
        let Some(frame) = self.frames.get_mut(&id) else {
            return;
        };
        frame.state = match outcome {
            Ok(ready) => State::Ready(ready),
            Err(why) => {
                if let Some(region) = frame.region.take() {
                    self.arena.free(region);
                }
                State::Failed(why)
            }
        };
        self.drop_if_unwanted(id);
    }

    /// The cursors of ranks that still receive frames.
    pub(crate) fn active(&self) -> impl Iterator<Item = &ReadCursor> {
        self.sessions.values().filter(|session| !session.done)
    }

    /// The cursor of a rank.
    pub(crate) fn session(&self, id: SessionId) -> Option<&ReadCursor> {
        self.sessions.get(&id)
    }

    /// Whether a rank still receives frames and its cursor satisfies `at`.
    pub(crate) fn active_at(&self, id: SessionId, at: impl Fn(&ReadCursor) -> bool) -> bool {
        self.sessions
            .get(&id)
            .is_some_and(|session| !session.done && at(session))
    }

    /// The bytes that ranks hold, the bytes in use, and the bytes of all segments.
    pub(crate) fn bytes(&self) -> (u64, u64, u64) {
        (self.held_bytes, self.arena.used(), self.arena.total())
    }

    /// Pushes ready frames and schedules fetches; returns the actions to perform.
    pub(crate) fn advance(&mut self) -> Vec<Action<R, E>> {
        let mut actions = Vec::new();
        self.push_ready(&mut actions);
        let fetches = self.schedule();
        // Frames that can't be placed fail while scheduling.
        self.push_ready(&mut actions);
        if !fetches.is_empty() {
            actions.push(Action::Fetch(fetches));
        }
        if self.cramped && !self.growing && self.can_grow() {
            self.growing = true;
            actions.push(Action::Grow);
        }
        actions
    }

    fn can_grow(&self) -> bool {
        self.arena.total() + self.limits.segment_bytes <= self.limits.arena_bytes
    }

    fn push_ready(&mut self, actions: &mut Vec<Action<R, E>>) {
        let (mut failed, mut passed, mut done) = (Vec::new(), 0, false);
        for (&id, session) in &mut self.sessions {
            while !session.done {
                let next = session.next;
                if let Some(end) = self.end.filter(|end| next.step >= *end) {
                    (session.done, done) = (true, true);
                    let later = u64::from(mistakes::is(Mistake::EndElsewhere));
                    actions.push(Action::End(id, end + later));
                    break;
                }
                let free = self.limits.arena_bytes.saturating_sub(self.held_bytes);
                if !session.has_credit() || !session.has_share(free) {
                    break;
                }
                let Some(frame) = self.frames.get_mut(&next).filter(|frame| !frame.stale) else {
                    break;
                };
                match &frame.state {
                    State::Fetching => break,
                    State::Failed(why) => {
                        (session.done, done) = (true, true);
                        failed.push(next);
                        actions.push(Action::Fail(id, why.clone()));
                    }
                    State::Ready(ready) => {
                        let Some(region) = frame.region else { break };
                        let (ready, first) = (ready.clone(), !frame.pushed);
                        actions.push(Action::Push {
                            session: id,
                            id: next,
                            region,
                            ready,
                            first,
                        });
                        frame.pushed = true;
                        frame.holders += 1;
                        if frame.holders == 1 {
                            self.held_bytes += region.bytes;
                        }
                        session.take_next(region.bytes);
                        passed += u64::from(session.next.step != next.step);
                    }
                }
            }
        }
        self.ahead.steps += passed;
        self.unknown.0.steps += passed;
        if done {
            self.changed();
        }
        for id in failed {
            self.drop_if_unwanted(id);
        }
    }

    fn place_bytes(&self, id: FrameId) -> u64 {
        let region = self.frames.get(&id).and_then(|frame| frame.region);
        region.map_or(0, |region| region.bytes)
    }

    fn unhold(&mut self, id: FrameId) {
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.holders -= 1;
            if frame.holders == 0 {
                self.held_bytes -= frame.region.map_or(0, |p| p.bytes);
            }
        }
    }

    fn drop_unwanted(&mut self) {
        let ids: Vec<FrameId> = self.frames.keys().copied().collect();
        for id in ids {
            self.drop_if_unwanted(id);
        }
    }

    fn drop_if_unwanted(&mut self, id: FrameId) {
        let Some(frame) = self.frames.get(&id) else {
            return;
        };
        let busy = frame.holders > 0 || matches!(frame.state, State::Fetching);
        if !busy && frame.stale {
            self.changed();
            self.forget(id);
        } else if !busy && self.distance(id).is_none() {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: FrameId) {
        let frame = self.frames.remove(&id);
        if let Some(region) = frame.and_then(|f| f.region) {
            self.arena.free(region);
        }
    }
}

#[cfg(test)]
mod tests;
