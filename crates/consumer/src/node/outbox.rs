//! Messages that wait to be sent to one rank, and the last report of the rank.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use batchweave_arena::Segment;
use batchweave_core::ids::{AttemptId, JobName, Step};
use batchweave_core::tgb::HEADER_BYTES;
use batchweave_wire::{
    BatchMessage, DaemonMessage, FRAMES_MAX, Hello, LayoutMessage, SegmentMessage, SliceRef,
    StreamInfo, Welcome,
};
use tokio::sync::Notify;

use super::stages::RankStages;
use crate::engine::SessionId;
use crate::engine::allocator::FrameRegion;
use crate::engine::layouts::{LayoutNumbers, Shape};
use crate::engine::location::FrameId;
use crate::job::membership::Member;
use crate::job::states::Counted;
use crate::mistakes::{self, Mistake};

/// A message to send.
pub(crate) enum Outgoing {
    Message(DaemonMessage),
    /// A message with the segment's descriptor.
    Segment(SegmentMessage, Arc<Segment>),
    /// A description of the stream, with the descriptor of the tokenizer's file.
    StreamInfo(StreamInfo, Option<Arc<Segment>>),
}

impl Outgoing {
    /// Encodes the message; returns also the segment whose descriptor is sent with it.
    pub(crate) fn encode(&self) -> io::Result<(Vec<u8>, Option<&Arc<Segment>>)> {
        let (bytes, segment) = match self {
            Self::Message(message) => (message.encode(), None),
            Self::Segment(message, segment) => {
                (DaemonMessage::Segment(*message).encode(), Some(segment))
            }
            Self::StreamInfo(message, file) => {
                let message = DaemonMessage::StreamInfo(message.clone());
                (message.encode(), file.as_ref())
            }
        };
        Ok((bytes.map_err(io::Error::other)?, segment))
    }

    /// Whether it answers a mark.
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

/// The last report of a rank.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LastReport {
    /// The rank has received every step below.
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
    /// Distinguishes ranks that share a coordinate.
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

/// The messages and reports of one session. Queued frames are bounded by the rank's credits.
pub(super) struct Outbox {
    pub(super) owner: Owner,
    pub(super) queue: VecDeque<Outgoing>,
    /// The time since which a frame is in the queue.
    pub(super) ready: Option<Instant>,
    pub(super) wake: Arc<Notify>,
    /// Frames that the rank was sent and has not released, by the numbers under which it knows them.
    pub(super) deliveries: BTreeMap<u64, FrameId>,
    pub(super) reported: LastReport,
    /// The cause of its late step that was observed last.
    pub(super) cause: Option<&'static str>,
    /// It replaced an earlier session and has not reported yet: its first report includes the time without a
    /// session.
    pub(super) follows_another: bool,
    pub(super) member: Option<Arc<Member>>,
    pub(super) dp_rank: String,
    /// The process of the rank, for messages to people.
    pub(super) pid: Option<u32>,
    /// The rank has segments of an earlier daemon mapped.
    pub(super) old_arena_mapped: bool,
    /// A report with refused states was logged; the metrics count all.
    warned: bool,
    /// The daemon or the rank has ended the session.
    pub(super) over: bool,
    /// The last step of which the rank was sent a frame, or that it claimed to have received.
    pub(super) reached: Option<Step>,
    /// The welcome that was sent last.
    welcome: Welcome,
    /// The stages that the rank can take, and the one of the last batch that it was sent.
    pub(super) stages: RankStages,
    segments_sent: u32,
    numbers: LayoutNumbers,
}

impl Outbox {
    pub(super) fn new(
        hello: &Hello,
        owner: Owner,
        welcome: Welcome,
        member: Option<Arc<Member>>,
    ) -> Self {
        Self {
            owner,
            queue: VecDeque::new(),
            ready: None,
            wake: Arc::new(Notify::new()),
            deliveries: BTreeMap::new(),
            reported: LastReport {
                next_step: welcome.next_step,
                ..LastReport::default()
            },
            cause: None,
            follows_another: hello.replaces.is_some(),
            member,
            dp_rank: hello.dp_rank.to_string(),
            pid: None,
            old_arena_mapped: hello.mapped_bytes > 0,
            warned: false,
            over: false,
            reached: None,
            welcome,
            stages: RankStages::of(hello),
            segments_sent: 0,
            numbers: LayoutNumbers::default(),
        }
    }

    pub(super) fn send(&mut self, message: DaemonMessage) {
        self.queue.push_back(Outgoing::Message(message));
        self.wake.notify_one();
    }

    /// Logs the first report of the session that has refused states.
    pub(super) fn warn_of_refused(&mut self, id: SessionId, counted: &Counted) {
        if counted.refused() == 0 || std::mem::replace(&mut self.warned, true) {
            return;
        }
        tracing::warn!(
            session = id,
            dp_rank = self.dp_rank,
            reported_twice = counted.twice,
            not_received = counted.not_received,
            scattered = counted.scattered,
            "a rank reports steps twice, or steps that it did not receive, or too many ranges: these states do not \
             count; batchweave_consumer_reported_steps_total counts further ones"
        );
    }

    /// Sends the welcome once more, so that the rank passes over quarantined steps.
    pub(super) fn pass_to(&mut self, next_step: Step, end_step: Option<Step>) {
        (self.welcome.next_step, self.welcome.end_step) = (next_step, end_step);
        self.send(DaemonMessage::Welcome(self.welcome.clone()));
    }

    /// Queues a frame under the number `delivery`, after the segment and layout that it needs. Neighbouring
    /// slices of a step share a message if they wait in the queue together.
    pub(super) fn push(
        &mut self,
        id: FrameId,
        region: FrameRegion,
        shape: &Arc<Shape>,
        delivery: u64,
        segments: &[Arc<Segment>],
    ) {
        self.announce_segments(region.segment, segments);
        let (layout, new) = self.numbers.number_for(shape);
        if new {
            let message = LayoutMessage {
                id: layout,
                layout: shape.wire.clone(),
            };
            self.queue
                .push_back(Outgoing::Message(DaemonMessage::Layout(message)));
        }
        // The awaited frame is on its way, so the wait keeps the cause observed so far.
        self.reported.waiting = false;
        self.deliveries.insert(delivery, id);
        self.reached = self.reached.max(Some(id.step));
        let slice = SliceRef {
            slice: id.slice,
            segment: region.segment,
            layout,
            frame: delivery,
            offset: region.offset + HEADER_BYTES + shape.header_bytes(),
            length: shape.wire.length,
        };
        self.append(id.step, id.slice - self.welcome.first_slice, slice);
        self.ready.get_or_insert_with(Instant::now);
        self.wake.notify_one();
    }

    /// Queues the segments up to number `last` that the rank does not have yet.
    fn announce_segments(&mut self, last: u32, segments: &[Arc<Segment>]) {
        while self.segments_sent <= last {
            let Some(segment) = segments.get(self.segments_sent as usize) else {
                break;
            };
            let message = SegmentMessage {
                id: self.segments_sent,
                bytes: segment.bytes(),
            };
            self.queue
                .push_back(Outgoing::Segment(message, segment.clone()));
            self.segments_sent += 1;
        }
    }

    fn append(&mut self, step: Step, position: u32, slice: SliceRef) {
        if let Some(Outgoing::Message(DaemonMessage::Batch(last))) = self.queue.back_mut()
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
        self.queue
            .push_back(Outgoing::Message(DaemonMessage::Batch(batch)));
    }
}

#[cfg(test)]
mod tests;
