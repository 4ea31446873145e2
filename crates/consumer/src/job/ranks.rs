//! Ranks of attempts on this node: the steps that they were sent and have received, reported to the ledger
//! and summarized as progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_wire::{Hello, Mode, StepStates};
use tokio::sync::Notify;

use super::deliveries::{Deliveries, Delivery, Unreported};
use super::membership::Member;
use super::states::{Counted, KnownStates};
use crate::engine::SessionId;

/// Job, incarnation, attempt, data coordinate, and the global rank where several share the coordinate.
type RankKey = (JobName, Version, AttemptNo, u32, Option<u32>);

/// One reader of a data coordinate of an attempt. It outlives its sessions.
#[derive(Debug)]
struct Rank {
    member: Arc<Member>,
    /// The newest session of the rank; reports of earlier ones are ignored.
    session: SessionId,
    unreported: Unreported,
    /// The rank has received every step below.
    received: Step,
    /// The value of `received` that was stored last.
    stored: Step,
    states: KnownStates,
}

/// Ranks that are or were connected, of attempts that are not over.
#[derive(Debug)]
pub(crate) struct Ranks {
    all: BTreeMap<RankKey, Rank>,
    pub(crate) deliveries: Deliveries,
    progress_steps: u64,
    progress_due: Arc<Notify>,
}

/// Neighbouring coordinates of an attempt, all of which have received every step below `step`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankRange {
    pub(crate) member: Arc<Member>,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) step: Step,
}

/// Returns the steps after which progress is stored, `lead` steps after the progress that producers know: a
/// quarter of it, since a producer at its bound is as far ahead as it may be, and at most as many as configured.
fn progress_steps(lead: u64, most: u64) -> u64 {
    (lead / 4).clamp(1, most.max(1))
}

fn key(member: &Member) -> RankKey {
    let job = member.job.clone();
    let rank = member.rank.filter(|_| member.shared);
    (job, member.opened, member.attempt, member.dp_rank, rank)
}

impl Ranks {
    /// No ranks. Steps that ranks receive are reported to `deliveries`.
    pub(crate) fn new(deliveries: Deliveries) -> Self {
        Self {
            all: BTreeMap::new(),
            deliveries,
            progress_steps: u64::MAX,
            progress_due: Arc::default(),
        }
    }

    /// Notifies `due` when a rank has received this many steps that are not stored as progress.
    pub(crate) fn notify_progress(&mut self, every: u64, due: Arc<Notify>) {
        (self.progress_steps, self.progress_due) = (every, due);
    }

    /// Begins a session of a rank. Steps that an earlier session was sent count as received below the step
    /// where the rank resumes; the others are sent again.
    pub(crate) fn begin(&mut self, session: SessionId, member: &Arc<Member>, hello: &Hello) {
        let resumed = hello.mode == Mode::Resume;
        let rank = self.all.entry(key(member)).or_insert_with(|| Rank {
            member: Arc::clone(member),
            session,
            unreported: Unreported::default(),
            received: member.start,
            stored: member.start,
            states: KnownStates::default(),
        });
        rank.states.begin();
        (rank.session, rank.member) = (session, Arc::clone(member));
        let next_step = member.quarantine.next_read(hello.next_step);
        let began = |next_step| {
            self.deliveries.report(Delivery::Began {
                session,
                member: Arc::clone(member),
                next_step,
            });
        };
        // The beginning is reported first: a step without one would read as a rank that is new here.
        let first = rank
            .unreported
            .first_below(hello.next_step)
            .filter(|_| resumed)
            .unwrap_or(next_step);
        began(first);
        if resumed {
            let reported = rank.receive(hello.next_step, &self.deliveries, true);
            if first < next_step && reported != Some(next_step) {
                began(next_step);
            }
        }
        rank.unreported.clear();
    }

    /// Ends a session, unless a newer one of the same rank has begun.
    pub(crate) fn end(&mut self, session: SessionId, member: &Arc<Member>) {
        if self.current(session, member).is_some() {
            let member = Arc::clone(member);
            self.deliveries.report(Delivery::Ended { session, member });
        }
    }

    /// Notes that the rank was sent a frame with this checksum.
    pub(crate) fn sent(&mut self, session: SessionId, member: &Member, step: Step, crc: u32) {
        if let Some(rank) = self.current(session, member) {
            rank.unreported.push(step, crc);
        }
    }

    /// The step below which a rank has received every step, in all its sessions here.
    pub(crate) fn received(&self, member: &Member) -> Option<Step> {
        self.all.get(&key(member)).map(|rank| rank.received)
    }

    /// Notes that the rank has received every step below `next_step`. `head` is the first step that is not
    /// committed, where producers may wait for this rank.
    pub(crate) fn receive(
        &mut self,
        session: SessionId,
        member: &Member,
        next_step: Step,
        head: Option<Step>,
    ) {
        let found = self.all.get_mut(&key(member));
        let Some(rank) = found.filter(|rank| rank.session == session) else {
            return;
        };
        rank.receive(next_step, &self.deliveries, false);
        let every = head.map_or(self.progress_steps, |head| {
            progress_steps(head.saturating_sub(rank.stored), self.progress_steps)
        });
        if rank.received - rank.stored >= every {
            self.progress_due.notify_one();
        }
    }

    /// Returns the states of a report that count: the first of each step that the rank received. `None` for a
    /// session that a newer one of the rank follows.
    pub(crate) fn report(
        &mut self,
        session: SessionId,
        member: &Member,
        states: &[StepStates],
    ) -> Option<(Vec<StepStates>, Counted)> {
        let rank = self.current(session, member)?;
        let received = rank.member.start..rank.received;
        Some(rank.states.accept(states, &received))
    }

    /// Has the position of a rank stored now, if it is not.
    pub(crate) fn store_at_once(&mut self, session: SessionId, member: &Member) {
        let rank = self.current(session, member);
        if rank.is_some_and(|rank| rank.received > rank.stored) {
            self.progress_due.notify_one();
        }
    }

    /// Merges the positions of neighbouring ranks, each at most `head`, which a range that is quarantined
    /// ahead of time may lie beyond. A disconnected rank may read on another node by now, so it is not
    /// merged with connected ones.
    pub(crate) fn ranges(
        &self,
        head: Step,
        connected: impl Fn(SessionId) -> bool,
    ) -> Vec<RankRange> {
        let mut ranges: Vec<(RankRange, bool)> = Vec::new();
        for rank in self.all.values() {
            let (at, step) = (rank.member.dp_rank, rank.received.min(head));
            let here = connected(rank.session);
            // Of ranks that share a coordinate the last one counts.
            let same = |(range, all_here): &&mut (RankRange, bool)| {
                let beside = range.last + 1 == at && *all_here == here;
                (range.last == at || beside) && range.member.id == rank.member.id
            };
            if let Some((range, all_here)) = ranges.last_mut().filter(same) {
                (range.last, range.step) = (at, range.step.min(step));
                *all_here &= here;
                continue;
            }
            let range = RankRange {
                member: Arc::clone(&rank.member),
                first: at,
                last: at,
                step,
            };
            ranges.push((range, here));
        }
        ranges.into_iter().map(|(range, _)| range).collect()
    }

    /// Notes that the progress of a range is stored.
    pub(crate) fn stored(&mut self, range: &RankRange) {
        let inside = |rank: &&mut Rank| {
            let member = &rank.member;
            (range.first..=range.last).contains(&member.dp_rank)
                && member.id == range.member.id
                && member.job == range.member.job
                && member.opened == range.member.opened
        };
        for rank in self.all.values_mut().filter(inside) {
            rank.stored = rank.stored.max(range.step);
        }
    }

    /// Forgets the ranks for which `keep` is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(SessionId, &Member) -> bool) {
        self.all.retain(|_, rank| keep(rank.session, &rank.member));
    }

    fn current(&mut self, session: SessionId, member: &Member) -> Option<&mut Rank> {
        let rank = self.all.get_mut(&key(member))?;
        (rank.session == session).then_some(rank)
    }
}

impl Rank {
    /// Reports the steps below `next_step` that the rank was sent; returns the step after the last of them.
    fn receive(
        &mut self,
        next_step: Step,
        deliveries: &Deliveries,
        concluded: bool,
    ) -> Option<Step> {
        let mut after = None;
        for (step, crcs) in self.unreported.take_below(next_step) {
            // The session ended in the middle of this step: the rank received it from another daemon.
            if crcs.len() != self.member.slices.len() {
                break;
            }
            after = Some(self.member.quarantine.next_read(step + 1));
            deliveries.report(Delivery::Step {
                session: self.session,
                member: Arc::clone(&self.member),
                step,
                crcs,
                concluded,
            });
        }
        self.received = self.received.max(next_step);
        after
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::ids::AttemptId;
    use futures::FutureExt;
    use prometheus::Registry;

    use super::*;
    use crate::metrics::Metrics;

    fn member() -> Member {
        Member {
            job: "llm".parse().unwrap(),
            opened: 3,
            attempt: 0,
            id: AttemptId([1; 16]),
            parent: None,
            start: 0,
            dp_rank: 0,
            dp_size: 1,
            rank: None,
            shared: false,
            slices: 0..1,
            quarantine: Arc::default(),
        }
    }

    #[test]
    fn progress_is_due_after_a_quarter_of_the_lead_where_producers_may_wait() {
        let metrics = Arc::new(Metrics::new(&Registry::new()).unwrap());
        let (deliveries, _reports) = Deliveries::channel(metrics);
        let (mut ranks, due) = (Ranks::new(deliveries), Arc::new(Notify::new()));
        ranks.notify_progress(64, due.clone());
        let member = Arc::new(member());
        let rank = Rank {
            member: member.clone(),
            session: 1,
            unreported: Unreported::default(),
            received: 0,
            stored: 0,
            states: KnownStates::default(),
        };
        ranks.all.insert(key(&member), rank);
        let mut is_due = |next_step, head| {
            ranks.receive(1, &member, next_step, head);
            due.notified().now_or_never().is_some()
        };
        assert!(!is_due(3, Some(16)));
        assert!(is_due(4, Some(16)));
        assert!(!is_due(63, None), "as configured");
        assert!(is_due(64, None));
    }

    #[test]
    fn progress_is_stored_in_quarters_of_a_small_lead() {
        let steps = |lead| progress_steps(lead, 64);
        assert_eq!([0, 3, 4, 16, 100].map(steps), [1, 1, 1, 4, 25]);
        assert_eq!([256, 257, 100_000].map(steps), [64, 64, 64]);
        assert_eq!(progress_steps(1000, 1), 1, "as configured");
    }
}
