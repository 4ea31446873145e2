//! What goes to one rank, and what it said last.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use batchweave_arena::Segment;
use batchweave_core::ids::{AttemptId, JobName, Step};
use batchweave_core::tgb::HEADER_BYTES;
use batchweave_wire::{
    BatchMessage, DaemonMessage, FRAMES_MAX, Hello, LayoutMessage, SegmentMessage, SliceRef,
    Welcome,
};
use tokio::sync::Notify;

use crate::engine::allocator::Place;
use crate::engine::layouts::{Numbers, Shape};
use crate::engine::location::FrameId;
use crate::job::membership::Member;
use crate::mistakes::{self, Mistake};

/// Something to send.
pub(crate) enum Outgoing {
    /// A message.
    Message(DaemonMessage),
    /// A message with the segment's descriptor.
    Segment(SegmentMessage, Arc<Segment>),
}

impl Outgoing {
    /// Whether it says what became of a mark.
    pub(crate) fn answers_mark(&self) -> bool {
        let Self::Message(message) = self else {
            return false;
        };
        matches!(
            message,
            DaemonMessage::Marked(_) | DaemonMessage::MarkRefused(_)
        )
    }
}

/// What a rank said of itself last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Said {
    /// First step that it was not handed.
    pub(crate) next_step: Step,
    pub(crate) waited_us: u64,
    pub(crate) waiting: bool,
}

/// The user and rank that a session belongs to. A new session may replace an old one of an equal owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    uid: u32,
    attempt: Option<(JobName, AttemptId)>,
    dp_rank: u32,
    dp_size: u32,
    /// Ranks that share a coordinate are told apart by it.
    global_rank: Option<u32>,
}

impl Owner {
    pub(super) fn new(uid: u32, hello: &Hello, member: Option<&Member>) -> Self {
        Self {
            uid,
            attempt: member.map(|m| (m.job.clone(), m.id)),
            dp_rank: hello.dp_rank,
            dp_size: hello.dp_size,
            global_rank: hello.global_rank,
        }
    }
}

/// One rank's line. The outbox is bounded by the rank's credits.
pub(super) struct Line {
    pub(super) owner: Owner,
    pub(super) outbox: VecDeque<Outgoing>,
    /// Since when a frame is in the outbox.
    pub(super) ready: Option<Instant>,
    pub(super) wake: Arc<Notify>,
    /// Frames by the numbers under which the rank was sent them.
    pub(super) deliveries: BTreeMap<u64, FrameId>,
    pub(super) said: Said,
    /// Why its next step was late when that was looked at last.
    pub(super) cause: Option<&'static str>,
    /// An earlier session came before and nothing was told of its progress yet: what is told first
    /// is how long there was no session.
    pub(super) follows_another: bool,
    pub(super) member: Option<Arc<Member>>,
    pub(super) dp_rank: String,
    /// It has segments of an earlier daemon mapped.
    pub(super) old_arena_mapped: bool,
    /// It was told that it is over, or said so.
    pub(super) over: bool,
    /// The last step of which it was sent a frame, or that it said it has.
    pub(super) reached: Option<Step>,
    /// As it was sent last.
    welcome: Welcome,
    segments_sent: u32,
    numbers: Numbers,
}

impl Line {
    pub(super) fn new(
        (hello, owner): (&Hello, Owner),
        welcome: Welcome,
        member: Option<Arc<Member>>,
    ) -> Self {
        Self {
            owner,
            outbox: VecDeque::new(),
            ready: None,
            wake: Arc::new(Notify::new()),
            deliveries: BTreeMap::new(),
            said: Said {
                next_step: welcome.next_step,
                ..Said::default()
            },
            cause: None,
            follows_another: hello.replaces.is_some(),
            member,
            dp_rank: hello.dp_rank.to_string(),
            old_arena_mapped: hello.mapped_bytes > 0,
            over: false,
            reached: None,
            welcome,
            segments_sent: 0,
            numbers: Numbers::default(),
        }
    }

    pub(super) fn send(&mut self, message: DaemonMessage) {
        self.outbox.push_back(Outgoing::Message(message));
        self.wake.notify_one();
    }

    /// Tells the rank that quarantined steps are passed over.
    pub(super) fn pass_to(&mut self, next_step: Step, end_step: Option<Step>) {
        (self.welcome.next_step, self.welcome.end_step) = (next_step, end_step);
        self.send(DaemonMessage::Welcome(self.welcome.clone()));
    }

    /// Sends a frame under the number `delivery`, after the segment and layout that it needs.
    /// Neighbouring slices of a step that were not sent yet share a message.
    pub(super) fn push(
        &mut self,
        id: FrameId,
        place: Place,
        shape: &Arc<Shape>,
        delivery: u64,
        segments: &[Arc<Segment>],
    ) {
        while self.segments_sent <= place.segment {
            let Some(segment) = segments.get(self.segments_sent as usize) else {
                break;
            };
            let message = SegmentMessage {
                id: self.segments_sent,
                bytes: segment.bytes(),
            };
            self.outbox
                .push_back(Outgoing::Segment(message, segment.clone()));
            self.segments_sent += 1;
        }
        let (layout, new) = self.numbers.of(shape);
        if new {
            let message = LayoutMessage {
                id: layout,
                layout: shape.wire.clone(),
            };
            self.outbox
                .push_back(Outgoing::Message(DaemonMessage::Layout(message)));
        }
        // What it waited for is on its way: the wait keeps its cause, whatever is looked at next.
        self.said.waiting = false;
        self.deliveries.insert(delivery, id);
        self.reached = self.reached.max(Some(id.step));
        let slice = SliceRef {
            slice: id.slice,
            segment: place.segment,
            layout,
            frame: delivery,
            offset: place.offset + HEADER_BYTES + shape.header_bytes(),
            length: shape.wire.length,
        };
        self.append(id.step, id.slice - self.welcome.first_slice, slice);
        self.ready.get_or_insert_with(Instant::now);
        self.wake.notify_one();
    }

    fn append(&mut self, step: Step, position: u32, slice: SliceRef) {
        if let Some(Outgoing::Message(DaemonMessage::Batch(last))) = self.outbox.back_mut()
            && last.step == step
            && last.first + last.slices.len() as u32 == position
            && (last.slices.len() < FRAMES_MAX || mistakes::is(Mistake::OneMessage))
        {
            last.slices.push(slice);
            return;
        }
        let (of, slices) = (self.welcome.slice_count, vec![slice]);
        let batch = BatchMessage {
            step,
            first: position,
            of,
            slices,
        };
        self.outbox
            .push_back(Outgoing::Message(DaemonMessage::Batch(batch)));
    }
}

#[cfg(test)]
mod tests;
