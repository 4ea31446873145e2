//! The state behind the hub's lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use batchweave_arena::Segment;
use batchweave_core::ids::Step;
use batchweave_core::tgb::HEADER_BYTES;
use batchweave_wire::{
    DaemonMessage, ErrorName, Fault, Hello, Progress, Release, WaitCause, Waiting, Welcome,
};
use tokio::sync::Notify;

use super::outbox::{Line, Outgoing, Owner};
use super::ranks::Ranks;
use super::{Head, Late, Needs, Reads};
use crate::engine::location::FrameId;
use crate::engine::{Action, Cause, Engine, Limits, Room, Session, SessionId, TooLarge};
use crate::fetch::{Loaded, Target};
use crate::job::admission::Admission;
use crate::job::deliveries::Deliveries;
use crate::job::membership::Member;
use crate::metrics::Metrics;
use crate::node::rewind::{History, claimed};
use crate::quarantine::Skips;

impl From<TooLarge> for Arc<Fault> {
    fn from(large: TooLarge) -> Self {
        let TooLarge { id, bytes, room } = large;
        let (message, remedy) = match room {
            Room::Segment(segment) => (
                format!(
                    "slice {} of step {} takes {bytes} bytes, a segment of the arena has {segment}",
                    id.slice, id.step
                ),
                "raise arena.segment_bytes (and arena.bytes) in the daemon's config",
            ),
            Room::Arena(arena) => (
                format!(
                    "the slices of step {} that ranks of this node read take {bytes} bytes, the arena has {arena}",
                    id.step
                ),
                "raise arena.bytes in the daemon's config to twice that: ranks hold one step while they get the next",
            ),
        };
        let fault = Fault::new(ErrorName::ArenaTooSmall, message).at_step(id.step);
        Arc::new(fault.remedy(remedy))
    }
}

/// What the hub starts after the lock is given back.
#[derive(Default)]
pub(super) struct Started {
    pub(super) fetches: Vec<Target>,
    pub(super) grow: bool,
}

/// Engine, lines and what is known of the stream.
pub(crate) struct State {
    pub(crate) engine: Engine<Arc<Loaded>, Arc<Fault>>,
    pub(crate) admission: Admission,
    pub(crate) head: Head,
    /// The store's last words while it fails.
    pub(crate) store_failures: BTreeMap<Reads, String>,
    /// Set while the log can't be followed.
    pub(crate) log_fault: Option<Fault>,
    segments: Vec<Arc<Segment>>,
    pub(super) lines: BTreeMap<SessionId, Line>,
    next_session: SessionId,
    next_delivery: u64,
    pub(super) metrics: Arc<Metrics>,
    /// Ranks of attempts, and what they have received.
    pub(super) ranks: Ranks,
    /// Ranks that wait for their job or attempt.
    pub(crate) in_a_hurry: usize,
    pub(super) history: History,
}

impl State {
    pub(super) fn new(
        limits: Limits,
        first: Arc<Segment>,
        metrics: Arc<Metrics>,
        deliveries: Deliveries,
    ) -> Self {
        let mut state = Self {
            engine: Engine::new(limits),
            admission: Admission::default(),
            head: Head::default(),
            store_failures: BTreeMap::new(),
            log_fault: None,
            segments: Vec::new(),
            lines: BTreeMap::new(),
            next_session: 0,
            next_delivery: 0,
            metrics,
            ranks: Ranks::new(deliveries),
            in_a_hurry: 0,
            history: History::default(),
        };
        state.add_segment(first);
        state
    }

    pub(super) fn add_segment(&mut self, segment: Arc<Segment>) {
        self.engine.add_segment(segment.bytes());
        self.segments.push(segment);
    }

    /// Whether a rank said that it has segments of an earlier daemon mapped, or, of so many `ranks`, has
    /// said nothing yet.
    pub(super) fn old_arena_may_be_mapped(&self, ranks: u32) -> bool {
        let here = self.lines.values().filter(|line| !line.over).count();
        here < ranks as usize || self.lines.values().any(|line| line.old_arena_mapped)
    }

    pub(super) fn postpone_growth(&mut self) {
        self.engine.growth_postponed();
    }

    pub(crate) fn set_head(&mut self, head: Head) {
        self.engine.set_head(head.next_step, head.end);
        self.metrics.head_step.set(head.next_step.cast_signed());
        self.metrics.watermark.set(head.watermark.cast_signed());
        self.show_awaited(&head);
        self.head = head;
        self.end_outdated();
    }

    pub(super) fn new_session(&mut self) -> SessionId {
        self.next_session += 1;
        self.next_session
    }

    pub(super) fn open_line(
        &mut self,
        (hello, owner): (&Hello, Owner),
        welcome: Welcome,
        member: Option<Arc<Member>>,
        skips: Arc<Skips>,
    ) -> Arc<Notify> {
        if let Some(member) = &member {
            self.ranks.begin(welcome.session, member, hello);
        }
        let (id, next_step) = (welcome.session, welcome.next_step);
        let slices = welcome.first_slice..welcome.first_slice + welcome.slice_count;
        let mut line = Line::new((hello, owner), welcome, member);
        line.reached = claimed(hello, &self.head).map(|(step, _)| step);
        let wake = line.wake.clone();
        self.lines.insert(id, line);
        let session = Session::new(slices, next_step, hello.credits as usize, skips);
        self.engine.open(id, session);
        self.metrics.sessions.inc();
        self.metrics.sessions_total.inc();
        wake
    }

    /// The user and rank that the session belongs to.
    pub(super) fn owner(&self, id: SessionId) -> Option<&Owner> {
        self.lines.get(&id).map(|line| &line.owner)
    }

    /// The rank's socket is closed: all its frames are free.
    pub(crate) fn close_line(&mut self, id: SessionId) {
        self.admission.leave(id);
        self.engine.close(id);
        if let Some(line) = self.lines.remove(&id) {
            if let Some(member) = &line.member {
                self.ranks.end(id, member);
            }
            self.forget_outdated();
            self.metrics.sessions.dec();
            // Its successor may be here already: the gauges are then the successor's.
            if self
                .lines
                .values()
                .all(|other| other.dp_rank != line.dp_rank)
            {
                self.metrics.forget_rank(&line.dp_rank);
            }
        }
    }

    /// Nothing more is sent, the coordinate is free; what the rank holds stays until released.
    pub(crate) fn stop_session(&mut self, id: SessionId) {
        self.admission.leave(id);
        if let Some(line) = self.lines.get_mut(&id) {
            line.over = true;
        }
        self.engine.stop(id);
    }

    /// Tells a rank why its session is over, unless it was told or said so before; whether it was not.
    pub(crate) fn fail_session(&mut self, id: SessionId, fault: Fault) -> bool {
        let news = self.lines.get(&id).is_some_and(|line| !line.over);
        self.stop_session(id);
        if news {
            self.send(id, DaemonMessage::Error(fault));
        }
        news
    }

    pub(crate) fn send(&mut self, id: SessionId, message: DaemonMessage) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.send(message);
        }
    }

    /// What is to be sent, and since when a frame is among it.
    pub(crate) fn take_outbox(&mut self, id: SessionId) -> (VecDeque<Outgoing>, Option<Instant>) {
        let taken = |line: &mut Line| (std::mem::take(&mut line.outbox), line.ready.take());
        self.lines.get_mut(&id).map(taken).unwrap_or_default()
    }

    /// Frees what the rank released.
    pub(crate) fn release(&mut self, id: SessionId, release: &Release) -> Result<(), Fault> {
        let Some(line) = self.lines.get_mut(&id) else {
            return Ok(());
        };
        for delivery in &release.frames {
            let Some(frame) = line.deliveries.remove(delivery) else {
                let message =
                    format!("release of frame {delivery}, which session {id} does not hold");
                return Err(Fault::new(ErrorName::BadMessage, message));
            };
            self.engine.release(id, frame);
        }
        self.received(id, release.next_step);
        Ok(())
    }

    /// Notes how the rank fares. What it waited since its last report counts for the cause that was
    /// seen last, or is seen now; `short` when the wait was over before anybody looked.
    pub(crate) fn progress(&mut self, id: SessionId, progress: &Progress) {
        let Some(line) = self.lines.get_mut(&id) else {
            return;
        };
        let more = progress.waited_us.saturating_sub(line.said.waited_us);
        let restart =
            std::mem::take(&mut line.follows_another).then_some(WaitCause::DaemonRestarting.name());
        let before = restart.or(line.cause.take());
        (line.said.waited_us, line.said.waiting) = (progress.waited_us, progress.waiting);
        self.received(id, progress.next_step);
        let now = self.late(id).map(|late| late.cause.name());
        let Some(line) = self.lines.get_mut(&id) else {
            return;
        };
        line.cause = now;
        let cause = before.or(now.filter(|_| progress.waiting));
        let labels = [line.dp_rank.as_str(), cause.unwrap_or("short")];
        let waits = self.metrics.wait_seconds.with_label_values(&labels);
        waits.inc_by(more as f64 / 1e6);
    }

    pub(crate) fn send_waiting(&mut self, id: SessionId, late: &Late) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.cause = Some(late.cause.name());
        }
        if late.cause == WaitCause::Producing {
            // Producers may be waiting for nothing but this.
            self.progress_at_once(id);
        }
        let Late {
            step,
            cause,
            detail,
        } = late.clone();
        self.send(
            id,
            DaemonMessage::Waiting(Waiting {
                step,
                cause,
                detail,
            }),
        );
    }

    /// A step can't be had: those who stand there are told.
    pub(crate) fn fail_step(&mut self, step: Step, fault: &Fault) {
        let at = |s: &Session| s.next.step == step;
        let ids: Vec<SessionId> = self
            .ids()
            .filter(|id| self.engine.active_at(*id, at))
            .collect();
        for id in ids {
            self.fail_session(id, fault.clone());
        }
    }

    fn ids(&self) -> impl Iterator<Item = SessionId> {
        self.lines.keys().copied()
    }

    /// Lets the engine go on; messages go to the lines, the rest to the caller.
    pub(super) fn advance(&mut self) -> Started {
        self.fail_if_log_broken();
        let mut started = Started::default();
        for action in self.engine.advance() {
            match action {
                Action::Fetch(list) => {
                    for fetch in list {
                        let segment = self.segments[fetch.to.segment as usize].clone();
                        let offset = fetch.to.offset;
                        started.fetches.push(Target {
                            id: fetch.id,
                            from: fetch.from,
                            segment,
                            offset,
                        });
                    }
                }
                Action::Grow => started.grow = true,
                Action::End(session, step) => {
                    self.send(session, DaemonMessage::EndOfStream(step));
                }
                Action::Fail(session, fault) => {
                    self.fail_session(session, Arc::unwrap_or_clone(fault));
                }
                Action::Push {
                    session,
                    id,
                    place,
                    ready,
                    first,
                } => {
                    if first {
                        let payload = ready.shape.header_bytes() + ready.shape.wire.length;
                        self.metrics.bytes_needed.inc_by(payload);
                    }
                    self.metrics.frames_delivered.inc();
                    self.deliver(session, id, place, &ready);
                }
            }
        }
        started
    }

    fn deliver(
        &mut self,
        session: SessionId,
        id: FrameId,
        place: crate::engine::allocator::Place,
        ready: &Loaded,
    ) {
        let shape = &ready.shape;
        debug_assert!(place.bytes >= HEADER_BYTES + shape.header_bytes() + shape.wire.length);
        let Some(line) = self.lines.get_mut(&session) else {
            return;
        };
        self.next_delivery += 1;
        line.push(id, place, shape, self.next_delivery, &self.segments);
        if let Some(member) = &line.member {
            self.ranks.sent(session, member, id.step, ready.crc);
        }
        // Not the session's own next step: the engine has taken all that was ready, this is the first.
        let next = self.engine.session(session);
        let next = next.map(|s| (s.slices.end, s.skips().pass(id.step + 1)));
        if let Some((_, next)) = next.filter(|(end, _)| *end == id.slice + 1) {
            let labels = [line.dp_rank.as_str()];
            let delivered = self.metrics.steps_delivered.with_label_values(&labels);
            delivered.inc();
            // Whole, and what comes next is beyond a quarantined range.
            if next != id.step + 1 {
                line.pass_to(next, self.head.end);
            }
        }
    }

    fn fail_if_log_broken(&mut self) {
        let Some(fault) = self.log_fault.clone() else {
            return;
        };
        let stuck = |id: &SessionId| self.engine.cause(*id) == Some(Cause::Unknown);
        let ids: Vec<SessionId> = self.ids().filter(stuck).collect();
        for id in ids {
            self.fail_session(id, fault.clone());
        }
    }

    pub(super) fn needs(&mut self) -> Needs {
        let head = self.head.next_step;
        let lead = self
            .engine
            .active()
            .map(|s| head.saturating_sub(s.next.step))
            .min();
        let coordinates: BTreeSet<u32> = self.engine.active().map(|s| s.slices.start).collect();
        Needs {
            steps: self.engine.unknown_steps(),
            lead,
            coordinates: coordinates.len() as u32,
            hurry: self.in_a_hurry > 0,
        }
    }
}
