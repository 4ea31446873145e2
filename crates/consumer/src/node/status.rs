//! Explanations of late steps, gauges, and the status line of /readyz.

use std::collections::BTreeSet;

use batchweave_core::ids::Step;
use batchweave_wire::WaitCause;

use super::State;
use crate::engine::{Cause, ReadCursor, SessionId};
use crate::job::membership::Member;
use crate::store_health::ReadKind;
use crate::stream_head::Head;

const MIB: f64 = 1_048_576.0;

/// A rank whose next step is late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LateStep {
    pub(crate) step: Step,
    pub(crate) cause: WaitCause,
    pub(crate) detail: String,
}

impl State {
    /// Explains why a rank's next step is not there, once the rank has used all that it was sent; `None` if it
    /// has not, or if nothing is missing.
    pub(crate) fn late(&self, id: SessionId) -> Option<LateStep> {
        let outbox = self.outboxes.get(&id)?;
        let cursor = self.engine.session(id)?;
        let step = cursor.next.step;
        let idle = outbox.reported.waiting || cursor.held().next().is_none();
        let cause = self
            .engine
            .cause(id)
            .filter(|_| idle && outbox.queue.is_empty())?;
        let (cause, detail) = match self.explain(cause, cursor) {
            // Committed: its location in the store is being looked up.
            (WaitCause::Producing, _) if step < self.head.next_step => {
                (WaitCause::Fetching, String::new())
            }
            explained => explained,
        };
        Some(LateStep {
            step,
            cause,
            detail,
        })
    }

    /// Returns the cause as the protocol names it, with details for people.
    fn explain(&self, cause: Cause, cursor: &ReadCursor) -> (WaitCause, String) {
        let failure = match cause {
            Cause::Unknown => {
                let committed = cursor.next.step < self.head.next_step;
                let data = || self.store_health.failure(ReadKind::Data);
                let log = self.store_health.failure(ReadKind::Log);
                log.or_else(|| committed.then(data).flatten())
            }
            Cause::Fetching | Cause::Backpressure => self.store_health.failure(ReadKind::Data),
            Cause::ArenaFull | Cause::Held | Cause::Share => None,
        };
        if let Some(why) = failure {
            return (WaitCause::StoreUnavailable, why);
        }
        match cause {
            Cause::Unknown => (WaitCause::Producing, self.awaiting()),
            Cause::Fetching => (WaitCause::Fetching, String::new()),
            Cause::Backpressure => (WaitCause::Backpressure, self.held_of_arena()),
            Cause::ArenaFull => (WaitCause::ArenaFull, self.held_of_arena()),
            Cause::Share => {
                let (steps, held) = (cursor.held_steps(), self.held_of_arena());
                let detail =
                    format!("the rank holds {steps} steps, its share of the arena; {held}");
                (WaitCause::ArenaFull, detail)
            }
            Cause::Held => {
                let detail = format!("the rank holds {} frames", cursor.held().count());
                (WaitCause::HeldFrames, detail)
            }
        }
    }

    fn held_of_arena(&self) -> String {
        let (held, _, total) = self.engine.bytes();
        format!("ranks hold {held} of the arena's {total} bytes")
    }

    /// Describes the head of the stream, and under `lanes` the producer that comes next.
    fn awaiting(&self) -> String {
        let head = format!("the stream's head is at step {}", self.head.next_step);
        match &self.head.awaited {
            Some((lane, since)) => {
                format!("{head}; producer {lane} has the turn since version {since}")
            }
            None => head,
        }
    }

    /// Updates the gauges of arena and ranks.
    pub(crate) fn gauges(&self) {
        let (held, used, total) = self.engine.bytes();
        for (part, bytes) in [("held", held), ("used", used), ("total", total)] {
            self.metrics
                .arena_bytes
                .with_label_values(&[part])
                .set(bytes.cast_signed());
        }
        let ahead = used.saturating_sub(held);
        self.metrics.ahead_bytes.set(ahead.cast_signed());
        for (id, outbox) in &self.outboxes {
            let Some(cursor) = self.engine.session(*id) else {
                continue;
            };
            let rank = [outbox.dp_rank.as_str()];
            self.metrics
                .frames_held
                .with_label_values(&rank)
                .set(cursor.held().count().cast_signed() as i64);
            self.metrics
                .rank_step
                .with_label_values(&rank)
                .set(cursor.next.step.cast_signed());
            self.metrics
                .ahead_steps
                .with_label_values(&rank)
                .set(self.engine.ready_steps(*id).cast_signed());
        }
    }

    /// Returns the status line of /readyz.
    pub(crate) fn status(&self) -> String {
        let (held, used, total) = self.engine.bytes();
        let Head {
            watermark,
            next_step,
            end,
            ..
        } = &self.head;
        let steps = match (next_step.checked_sub(1), end) {
            (_, Some(0)) => "the stream ended without a step".to_owned(),
            (None, _) => "no step is committed yet".to_owned(),
            (Some(last), _) if *watermark > last => {
                format!("all steps below {watermark} are reclaimed")
            }
            (Some(last), Some(end)) if *end == last + 1 => {
                format!("steps {watermark} to {last} are stored, where the stream ends")
            }
            (Some(last), _) => format!("steps {watermark} to {last} are stored"),
        };
        let jobs = self.attempts();
        let [held, used, total] = [held, used, total].map(|bytes| bytes as f64 / MIB);
        format!(
            "{} rank{}{jobs}; {steps}; arena {used:.1} of {total:.1} MiB, {held:.1} held by ranks",
            self.outboxes.len(),
            if self.outboxes.len() == 1 { "" } else { "s" },
        )
    }

    /// Lists the attempts that connected ranks read in.
    fn attempts(&self) -> String {
        let of = |member: &Member| format!("{} attempt {}", member.job, member.attempt);
        let running = self.outboxes.values().filter(|outbox| !outbox.over);
        let all: BTreeSet<String> = running
            .filter_map(|outbox| outbox.member.as_deref().map(of))
            .collect();
        if all.is_empty() {
            return String::new();
        }
        format!(" ({})", all.into_iter().collect::<Vec<_>>().join(", "))
    }
}
