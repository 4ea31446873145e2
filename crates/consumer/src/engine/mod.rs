//! What is fetched, held, pushed and freed: the consumer's rules as a pure state machine.
//!
//! Invariants:
//! - A frame that was pushed to a rank leaves the arena only after that rank's release or end.
//! - A session is pushed its frames in order, each once, never more than its credits at a time.
//! - What ranks hold leaves room for others: a rank holds no more than all leave, but for two steps.
//! - Frames nobody was pushed may be dropped, the one needed latest first, when one that is needed
//!   sooner wants the room: so a rank that stops reading holds up no other.

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

pub(crate) use cursor::{Cause, Session, SessionId};
use due::Due;

use crate::engine::allocator::{Place, Space};
use crate::engine::location::{FrameId, Location, Places};
use crate::mistakes::{self, Mistake};

/// The bounds that the configuration sets.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Bytes fetched or being fetched that no rank was pushed yet.
    pub(crate) ahead_bytes: u64,
    /// A refill waits until it is at least this large, so that reads are.
    pub(crate) refill_bytes: u64,
    /// Steps ahead of each rank.
    pub(crate) steps_ahead: u64,
    /// Largest frame that can ever be placed.
    pub(crate) segment_bytes: u64,
    /// Bytes of all segments when the arena is fully grown.
    pub(crate) arena_bytes: u64,
}

/// A frame to read: from where, to where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetch {
    /// Which.
    pub(crate) id: FrameId,
    /// From here in the store.
    pub(crate) from: Location,
    /// To here in the arena.
    pub(crate) to: Place,
}

/// A frame that can never be had: it fits no segment, or its step does not fit the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge {
    pub(crate) id: FrameId,
    /// Of the frame, or of all segments that the step needs.
    pub(crate) bytes: u64,
    pub(crate) room: Room,
}

/// Where something does not fit, and how large that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Segment(u64),
    Arena(u64),
}

/// What the shell has to do after an event.
#[derive(Debug, Clone)]
pub(crate) enum Action<R, E> {
    /// Read these, in order of need.
    Fetch(Vec<Fetch>),
    /// Add a segment to the arena.
    Grow,
    /// Send this frame to that rank.
    Push {
        session: SessionId,
        id: FrameId,
        place: Place,
        ready: R,
        /// Nobody was sent this frame before.
        first: bool,
    },
    /// The stream ended at this step, and the rank has had all before.
    End(SessionId, Step),
    /// The rank's next frame can't be had.
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
    place: Option<Place>,
    state: State<R, E>,
    holders: usize,
    pushed: bool,
    /// It was to be fetched before, and there was no room.
    stalled: bool,
    /// The log says something else of its step now: nobody is sent it any more.
    stale: bool,
}

/// The state machine. `R` is what ranks are told of a ready frame, `E` why a frame can't be had.
#[derive(Debug)]
pub(crate) struct Engine<R, E> {
    limits: Limits,
    space: Space,
    steps: BTreeMap<Step, Places>,
    head: Step,
    end: Option<Step>,
    frames: BTreeMap<FrameId, Frame<R, E>>,
    sessions: BTreeMap<SessionId, Session>,
    held_bytes: u64,
    growing: bool,
    cramped: bool,
    /// When to look for what to read ahead.
    ahead: Due,
    /// When to look for steps that are not known; those found last.
    unknown: (Due, Arc<[Step]>),
    /// Frames that found no room when they were to be fetched last.
    stalled: BTreeSet<FrameId>,
}

impl<R: Clone, E: Clone + From<TooLarge>> Engine<R, E> {
    /// An engine with no segments, steps or sessions.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            space: Space::default(),
            steps: BTreeMap::new(),
            head: 0,
            end: None,
            frames: BTreeMap::new(),
            sessions: BTreeMap::new(),
            held_bytes: 0,
            growing: false,
            cramped: false,
            ahead: Due::default(),
            unknown: (Due::default(), Arc::new([])),
            stalled: BTreeSet::new(),
        }
    }

    /// A segment was added.
    pub(crate) fn add_segment(&mut self, bytes: u64) -> u32 {
        self.changed();
        self.growing = false;
        self.space.add_segment(bytes)
    }

    /// The segment that was asked for comes later: ask again.
    pub(crate) fn growth_postponed(&mut self) {
        self.changed();
        self.growing = false;
    }

    /// A segment could not be added; the arena stays as it is.
    pub(crate) fn growth_failed(&mut self) {
        self.changed();
        self.growing = false;
        self.limits.arena_bytes = self.space.total();
    }

    /// The first step that is not committed, and where the stream ends once that is decided.
    pub(crate) fn set_head(&mut self, head: Step, end: Option<Step>) {
        self.changed();
        (self.head, self.end) = (head, end);
    }

    /// A rank joined.
    pub(crate) fn open(&mut self, id: SessionId, session: Session) {
        self.changed();
        self.sessions.insert(id, session);
    }

    /// A rank is gone: all it held is free.
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

    /// A rank released a frame; false when it did not hold it.
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

    /// A rank wants nothing more; what it holds stays held until it is released.
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

    /// A fetch is over. Frames that nobody wants any more are dropped here, not before: their
    /// place was being written.
    pub(crate) fn fetched(&mut self, id: FrameId, outcome: Result<R, E>) {
        self.ahead.changed = true;
        let Some(frame) = self.frames.get_mut(&id) else {
            return;
        };
        frame.state = match outcome {
            Ok(ready) => State::Ready(ready),
            Err(why) => {
                if let Some(place) = frame.place.take() {
                    self.space.give_back(place);
                }
                State::Failed(why)
            }
        };
        self.drop_if_unwanted(id);
    }

    /// The ranks' positions: of those that are to get more.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values().filter(|session| !session.done)
    }

    /// One rank.
    pub(crate) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// Whether a rank that is to get more stands where `at` says.
    pub(crate) fn active_at(&self, id: SessionId, at: impl Fn(&Session) -> bool) -> bool {
        self.sessions
            .get(&id)
            .is_some_and(|session| !session.done && at(session))
    }

    /// Bytes that ranks hold, bytes in use, bytes of all segments.
    pub(crate) fn bytes(&self) -> (u64, u64, u64) {
        (self.held_bytes, self.space.used(), self.space.total())
    }

    /// Pushes what can be pushed and starts what should be fetched.
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
        self.space.total() + self.limits.segment_bytes <= self.limits.arena_bytes
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
                        let Some(place) = frame.place else { break };
                        let (ready, first) = (ready.clone(), !frame.pushed);
                        actions.push(Action::Push {
                            session: id,
                            id: next,
                            place,
                            ready,
                            first,
                        });
                        frame.pushed = true;
                        frame.holders += 1;
                        if frame.holders == 1 {
                            self.held_bytes += place.bytes;
                        }
                        session.take_next(place.bytes);
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
        let place = self.frames.get(&id).and_then(|frame| frame.place);
        place.map_or(0, |place| place.bytes)
    }

    fn unhold(&mut self, id: FrameId) {
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.holders -= 1;
            if frame.holders == 0 {
                self.held_bytes -= frame.place.map_or(0, |p| p.bytes);
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
        if let Some(place) = frame.and_then(|f| f.place) {
            self.space.give_back(place);
        }
    }
}

#[cfg(test)]
mod tests;
