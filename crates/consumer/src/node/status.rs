//! What the state tells others: who waits and why, positions, gauges, the line of /readyz.

use std::collections::BTreeSet;

use batchweave_core::ids::Step;
use batchweave_wire::WaitCause;

use super::{Head, Reads, State};
use crate::engine::{Cause, Session, SessionId};
use crate::job::membership::Member;

/// A rank whose next step is late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) step: Step,
    pub(crate) cause: WaitCause,
    pub(crate) detail: String,
}

impl State {
    /// Whether a rank has had all that was sent and its next step is not there, and why.
    pub(crate) fn late(&self, id: SessionId) -> Option<Late> {
        let line = self.lines.get(&id)?;
        let session = self.engine.session(id)?;
        let step = session.next.step;
        let idle = line.said.waiting || session.held().next().is_none();
        let cause = self
            .engine
            .cause(id)
            .filter(|_| idle && line.outbox.is_empty())?;
        let (cause, detail) = match self.explain(cause, session) {
            // In the log: its place in the store is being looked up.
            (WaitCause::Producing, _) if step < self.head.next_step => {
                (WaitCause::Fetching, String::new())
            }
            explained => explained,
        };
        Some(Late {
            step,
            cause,
            detail,
        })
    }

    /// The cause in the protocol's words, with more for people.
    fn explain(&self, cause: Cause, session: &Session) -> (WaitCause, String) {
        let failure = match cause {
            Cause::Unknown => {
                let committed = session.next.step < self.head.next_step;
                let data = || self.store_failures.get(&Reads::Data);
                let log = self.store_failures.get(&Reads::Log);
                log.or_else(|| committed.then(data).flatten())
            }
            Cause::Fetching | Cause::Backpressure => self.store_failures.get(&Reads::Data),
            Cause::ArenaFull | Cause::Held | Cause::Share => None,
        };
        if let Some(why) = failure {
            return (WaitCause::StoreUnavailable, why.clone());
        }
        match cause {
            Cause::Unknown => (WaitCause::Producing, self.awaiting()),
            Cause::Fetching => (WaitCause::Fetching, String::new()),
            Cause::Backpressure => (WaitCause::Backpressure, self.held_of_arena()),
            Cause::ArenaFull => (WaitCause::ArenaFull, self.held_of_arena()),
            Cause::Share => {
                let (steps, held) = (session.held_steps(), self.held_of_arena());
                let detail =
                    format!("the rank holds {steps} steps, its share of the arena; {held}");
                (WaitCause::ArenaFull, detail)
            }
            Cause::Held => {
                let detail = format!("the rank holds {} frames", session.held().count());
                (WaitCause::HeldFrames, detail)
            }
        }
    }

    fn held_of_arena(&self) -> String {
        let (held, _, total) = self.engine.bytes();
        format!("ranks hold {held} of the arena's {total} bytes")
    }

    /// Where the stream stands, and whose turn it is.
    fn awaiting(&self) -> String {
        let head = format!("the stream's head is at step {}", self.head.next_step);
        match &self.head.awaited {
            Some((lane, since)) => {
                format!("{head}; producer {lane} has the turn since version {since}")
            }
            None => head,
        }
    }

    /// Brings the gauges up to date; called when they are read and now and then.
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
        for (id, line) in &self.lines {
            let Some(session) = self.engine.session(*id) else {
                continue;
            };
            let rank = [line.dp_rank.as_str()];
            self.metrics
                .frames_held
                .with_label_values(&rank)
                .set(session.held().count().cast_signed() as i64);
            self.metrics
                .rank_step
                .with_label_values(&rank)
                .set(session.next.step.cast_signed());
            self.metrics
                .ahead_steps
                .with_label_values(&rank)
                .set(self.engine.ready_steps(*id).cast_signed());
        }
    }

    /// One line for /readyz.
    pub(crate) fn status(&self) -> String {
        let (held, used, total) = self.engine.bytes();
        let Head {
            watermark,
            next_step,
            end,
            ..
        } = &self.head;
        let end = end.map_or("open".to_owned(), |end| format!("ends before step {end}"));
        let jobs = self.attempts();
        format!(
            "{} rank{}{jobs}; head at step {next_step}, watermark {watermark}, {end}; arena {held} held, {used} used of {total} bytes",
            self.lines.len(),
            if self.lines.len() == 1 { "" } else { "s" },
        )
    }

    /// The attempts that ranks of this node read in.
    fn attempts(&self) -> String {
        let of = |member: &Member| format!("{} attempt {}", member.job, member.attempt);
        let members = self.lines.values().filter(|line| !line.over);
        let all: BTreeSet<String> = members
            .filter_map(|line| line.member.as_deref().map(of))
            .collect();
        if all.is_empty() {
            return String::new();
        }
        format!(" ({})", all.into_iter().collect::<Vec<_>>().join(", "))
    }
}
