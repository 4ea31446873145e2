//! The state behind the node's lock, and the execution of the engine's actions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchweave_arena::Segment;
use batchweave_core::manifest::stages::Stages;
use batchweave_core::stream::StreamConfig;
use batchweave_core::tgb::HEADER_BYTES;
use batchweave_wire::{DaemonMessage, ErrorName, Fault};

use super::Needs;
use super::outbox::Outbox;
use super::rewind::History;
use super::stages::{StepStages, described, too_large};
use crate::engine::allocator::FrameRegion;
use crate::engine::location::FrameId;
use crate::engine::{Action, Cause, Engine, Fetch, Limits, Room, SessionId, TooLarge};
use crate::fetch::{Loaded, Target};
use crate::job::admission::Admission;
use crate::job::deliveries::Deliveries;
use crate::job::ranks::Ranks;
use crate::job::states::States;
use crate::job::values::Values;
use crate::metrics::Metrics;
use crate::store_health::StoreHealth;
use crate::stream_head::Head;

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

/// Work that the engine asked for, to be started after the lock is released.
#[derive(Default)]
pub(super) struct Work {
    pub(super) fetches: Vec<Target>,
    /// Whether to add a segment.
    pub(super) grow: bool,
}

/// Everything behind the lock.
pub(crate) struct State {
    pub(crate) engine: Engine<Arc<Loaded>, Arc<Fault>>,
    pub(super) admission: Admission,
    pub(crate) head: Head,
    /// Set while the log can't be followed.
    pub(crate) log_fault: Option<Fault>,
    pub(super) store_health: Arc<StoreHealth>,
    segments: Vec<Arc<Segment>>,
    pub(super) outboxes: BTreeMap<SessionId, Outbox>,
    pub(super) next_session: SessionId,
    next_delivery: u64,
    pub(super) metrics: Arc<Metrics>,
    pub(super) ranks: Ranks,
    pub(super) states: Arc<States>,
    pub(super) values: Arc<Values>,
    /// The number of ranks that wait for their job or attempt.
    pub(crate) waiting_for_attempt: usize,
    pub(super) history: History,
    pub(super) steps: StepStages,
    /// The stream, whose shape is stage 0; set before the first session.
    pub(super) stream: Option<Arc<StreamConfig>>,
}

impl State {
    pub(super) fn new(
        limits: Limits,
        first: Arc<Segment>,
        metrics: Arc<Metrics>,
        store_health: Arc<StoreHealth>,
        deliveries: Deliveries,
        states: Arc<States>,
        values: Arc<Values>,
    ) -> Self {
        let mut state = Self {
            engine: Engine::new(limits),
            admission: Admission::default(),
            head: Head::default(),
            log_fault: None,
            store_health,
            segments: Vec::new(),
            outboxes: BTreeMap::new(),
            next_session: 0,
            next_delivery: 0,
            metrics,
            ranks: Ranks::new(deliveries),
            states,
            values,
            waiting_for_attempt: 0,
            history: History::default(),
            steps: StepStages::default(),
            stream: None,
        };
        state.add_segment(first);
        state
    }

    pub(super) fn add_segment(&mut self, segment: Arc<Segment>) {
        self.engine.add_segment(segment.bytes());
        self.segments.push(segment);
    }

    /// Whether a connected rank has segments of an earlier daemon mapped, or some of the expected `ranks`
    /// are not connected yet.
    pub(super) fn old_arena_may_be_mapped(&self, ranks: u32) -> bool {
        let mut outboxes = self.outboxes.values();
        let connected = outboxes.clone().filter(|outbox| !outbox.over).count();
        connected < ranks as usize || outboxes.any(|outbox| outbox.old_arena_mapped)
    }

    pub(crate) fn set_head(&mut self, head: Head) {
        self.engine.set_head(head.next_step, head.end);
        self.metrics.head_step.set(head.next_step.cast_signed());
        self.metrics.watermark.set(head.watermark.cast_signed());
        self.show_awaited(&head);
        self.warn_of_stages(&head.stages);
        self.head = head;
        self.end_outdated();
    }

    /// Logs new stages that some rank or the arena cannot take, when they are known.
    fn warn_of_stages(&self, stages: &Stages) {
        let Some(stream) = &self.stream else {
            return;
        };
        for id in self.head.stages.newest() + 1..=stages.newest() {
            let stage = described(id, stages, stream);
            tracing::info!(stage = stage.name, id, "the stream has a new stage");
            let mut faults = self
                .outboxes
                .values()
                .filter_map(|o| o.stages.fault(&stage));
            if let Some(why) = faults.next() {
                tracing::warn!("a rank will be refused where it begins: it is {why}");
            }
        }
        let segment = self.segments.iter().map(|segment| segment.bytes()).max();
        let is_new = self.head.stages.newest() < stages.newest();
        if let Some((name, bytes)) =
            too_large(stages, segment.unwrap_or(u64::MAX)).filter(|_| is_new)
        {
            tracing::error!(
                "a slice of stage {name:?} has at least {bytes} bytes, more than a segment of the arena: raise \
                 arena.segment_bytes to more than that, and arena.bytes with it, before the stage begins"
            );
        }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = SessionId> {
        self.outboxes.keys().copied()
    }

    /// Lets the engine advance and puts its messages into outboxes. Returns the rest of its actions.
    pub(super) fn advance(&mut self) -> Work {
        self.fail_if_log_broken();
        let mut work = Work::default();
        for action in self.engine.advance() {
            match action {
                Action::Fetch(list) => {
                    let targets = list.into_iter().map(|fetch| self.target(fetch));
                    work.fetches.extend(targets);
                }
                Action::Grow => work.grow = true,
                Action::End(session, step) => {
                    self.send(session, DaemonMessage::EndOfStream(step));
                }
                Action::Fail(session, fault) => {
                    self.fail_session(session, Arc::unwrap_or_clone(fault));
                }
                Action::Push {
                    session,
                    id,
                    region,
                    ready,
                    first,
                } => {
                    if first {
                        let payload = ready.shape.header_bytes() + ready.shape.wire.length;
                        self.metrics.bytes_needed.inc_by(payload);
                    }
                    self.metrics.frames_delivered.inc();
                    self.deliver(session, id, region, &ready);
                }
            }
        }
        work
    }

    fn target(&self, fetch: Fetch) -> Target {
        Target {
            id: fetch.id,
            from: fetch.from,
            segment: self.segments[fetch.to.segment as usize].clone(),
            offset: fetch.to.offset,
        }
    }

    fn deliver(&mut self, session: SessionId, id: FrameId, region: FrameRegion, ready: &Loaded) {
        let shape = &ready.shape;
        debug_assert!(region.bytes >= HEADER_BYTES + shape.header_bytes() + shape.wire.length);
        let Some(outbox) = self.outboxes.get_mut(&session) else {
            return;
        };
        if let Some(stream) = &self.stream {
            let stage = self.steps.at(id.step);
            let entered = outbox
                .stages
                .enter(id.step, stage, &self.head.stages, stream);
            match entered {
                Ok(None) => {}
                Ok(Some(stage)) => outbox.send(DaemonMessage::Stage(stage)),
                Err(fault) => {
                    self.fail_session(session, *fault);
                    return;
                }
            }
        }
        self.next_delivery += 1;
        outbox.push(id, region, shape, self.next_delivery, &self.segments);
        if let Some(member) = &outbox.member {
            self.ranks.sent(session, member, id.step, ready.crc);
        }
        // The cursor is ahead already: the engine has taken all ready frames, and this is the first of them.
        let cursor = self.engine.session(session);
        let next = cursor.map(|s| (s.slices.end, s.quarantine().next_read(id.step + 1)));
        if let Some((_, next)) = next.filter(|(end, _)| *end == id.slice + 1) {
            let labels = [outbox.dp_rank.as_str()];
            let delivered = self.metrics.steps_delivered.with_label_values(&labels);
            delivered.inc();
            // The step is complete, and a quarantined range follows it.
            if next != id.step + 1 {
                outbox.pass_to(next, self.head.end);
            }
        }
    }

    fn fail_if_log_broken(&mut self) {
        let Some(fault) = self.log_fault.clone() else {
            return;
        };
        // A step below the head is in the part of the log that was read: its location is only not looked up yet.
        let head = self.head.next_step;
        let stuck = |id: &SessionId| {
            self.engine.cause(*id) == Some(Cause::Unknown)
                && self.engine.active_at(*id, |rank| rank.next.step >= head)
        };
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
            hurry: self.waiting_for_attempt > 0,
        }
    }
}
