//! Ranks of attempts: what they were sent and have received, what that means for ledger and
//! progress, and the end of sessions whose attempt or job is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::guards;
use batchweave_core::ids::{AttemptNo, JobName, Step, StreamId, Version};
use batchweave_core::retention::Mark;
use batchweave_wire::{Checkpoint, ErrorName, Fault, Hello, Mode};
use tokio::sync::{Notify, oneshot};

use super::{Head, State};
use crate::config::Checkpoints;
use crate::engine::SessionId;
use crate::job::deliveries::{Deliveries, Delivery, Kept, Unreported};
use crate::job::marks;
use crate::job::membership::{Member, closed, superseded};
use crate::mistakes::{self, Mistake};

/// Whether all that was received before a mark is stored.
type Receipt = oneshot::Receiver<bool>;
/// Job, incarnation, attempt, data coordinate, and the global rank where several share it.
type RankKey = (JobName, Version, AttemptNo, u32, Option<u32>);

/// One reader of a data coordinate of an attempt on this node. It outlives its sessions.
#[derive(Debug)]
struct Rank {
    member: Arc<Member>,
    /// The one that counts.
    session: SessionId,
    unreported: Unreported,
    /// It has received every step below.
    received: Step,
    /// As it was stored last.
    stored: Step,
}

/// The coordinates that ranks of this node read or have read, in attempts that are not over.
#[derive(Debug)]
pub(super) struct Ranks {
    all: BTreeMap<RankKey, Rank>,
    deliveries: Deliveries,
    progress_steps: u64,
    progress_due: Arc<Notify>,
}

/// Neighbouring coordinates of an attempt on this node, all of which have received every step
/// below `step`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) member: Arc<Member>,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) step: Step,
}

fn key(member: &Member) -> RankKey {
    let job = member.job.clone();
    let rank = member.rank.filter(|_| member.shared);
    (job, member.opened, member.attempt, member.dp_rank, rank)
}

impl Ranks {
    pub(super) fn new(deliveries: Deliveries) -> Self {
        Self {
            all: BTreeMap::new(),
            deliveries,
            progress_steps: u64::MAX,
            progress_due: Arc::default(),
        }
    }

    /// A session of a rank begins. Steps that an earlier session was sent count as received below the
    /// step where the rank resumes; the others are sent again.
    pub(super) fn begin(&mut self, session: SessionId, member: &Arc<Member>, hello: &Hello) {
        let resumed = hello.mode == Mode::Resume;
        let rank = self.all.entry(key(member)).or_insert_with(|| Rank {
            member: Arc::clone(member),
            session,
            unreported: Unreported::default(),
            received: member.start,
            stored: member.start,
        });
        (rank.session, rank.member) = (session, Arc::clone(member));
        let next_step = member.skips.pass(hello.next_step);
        let began = |next_step| {
            self.deliveries.tell(Delivery::Began {
                session,
                member: Arc::clone(member),
                next_step,
            });
        };
        // The beginning is reported first: a step without one would read as a rank that is new here.
        let first = rank.unreported.first_below(hello.next_step);
        let first = first.filter(|_| resumed).unwrap_or(next_step);
        began(first);
        if resumed {
            let reported = rank.receive(hello.next_step, &self.deliveries, true);
            if first < next_step && reported != Some(next_step) {
                began(next_step);
            }
        }
        rank.unreported.forget();
    }

    pub(super) fn end(&mut self, session: SessionId, member: &Arc<Member>) {
        if self.current(session, member).is_some() {
            let member = Arc::clone(member);
            self.deliveries.tell(Delivery::Ended { session, member });
        }
    }

    pub(super) fn sent(&mut self, session: SessionId, member: &Member, step: Step, crc: u32) {
        if let Some(rank) = self.current(session, member) {
            rank.unreported.sent(step, crc);
        }
    }

    /// How far a rank has come, in all its sessions here: it has received every step below.
    pub(super) fn received(&self, member: &Member) -> Option<Step> {
        self.all.get(&key(member)).map(|rank| rank.received)
    }

    fn current(&mut self, session: SessionId, member: &Member) -> Option<&mut Rank> {
        let rank = self.all.get_mut(&key(member))?;
        (rank.session == session).then_some(rank)
    }

    fn receive(&mut self, session: SessionId, member: &Member, next_step: Step) {
        let found = self.all.get_mut(&key(member));
        let Some(rank) = found.filter(|rank| rank.session == session) else {
            return;
        };
        rank.receive(next_step, &self.deliveries, false);
        if rank.received - rank.stored >= self.progress_steps {
            self.progress_due.notify_one();
        }
    }
}

impl Rank {
    /// Reports the steps below `next_step` that the rank was sent; the step after the last of them.
    fn receive(
        &mut self,
        next_step: Step,
        deliveries: &Deliveries,
        concluded: bool,
    ) -> Option<Step> {
        let mut after = None;
        for (step, crcs) in self.unreported.take_below(next_step) {
            // Its session ended in the middle of this step: it has it from elsewhere.
            if crcs.len() != self.member.slices.len() {
                break;
            }
            after = Some(self.member.skips.pass(step + 1));
            deliveries.tell(Delivery::Step {
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

impl State {
    pub(super) fn report_progress(&mut self, every: u64, due: Arc<Notify>) {
        (self.ranks.progress_steps, self.ranks.progress_due) = (every, due);
    }

    /// A rank says that it has received every step below `next_step`: at most what it was sent.
    pub(super) fn received(&mut self, id: SessionId, next_step: Step) {
        let Some(sent) = self.engine.session(id).map(|session| session.next.step) else {
            return;
        };
        let Some(line) = self.lines.get_mut(&id) else {
            return;
        };
        if guards::ignores_reported_position() {
            return;
        }
        let most = if mistakes::is(Mistake::BelievedRank) {
            Step::MAX
        } else {
            sent
        };
        line.said.next_step = line.said.next_step.max(next_step.min(most));
        if let Some(member) = &line.member {
            self.ranks.receive(id, member, line.said.next_step);
        }
    }

    /// Has the position of a waiting rank stored, unless it is.
    pub(super) fn progress_at_once(&mut self, id: SessionId) {
        let member = self.lines.get(&id).and_then(|line| line.member.clone());
        let rank = member.and_then(|member| self.ranks.current(id, &member).map(|rank| &*rank));
        if rank.is_some_and(|rank| rank.received > rank.stored) {
            self.ranks.progress_due.notify_one();
        }
    }

    /// The progress of all attempts on this node; at most the head, which a range that is quarantined
    /// ahead of time may lie beyond. A rank that is gone may read on another node by now: it holds up no
    /// neighbour that is here.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<(Run, bool)> = Vec::new();
        for rank in self.ranks.all.values() {
            let (at, step) = (rank.member.dp_rank, rank.received.min(self.head.next_step));
            let here = self.lines.contains_key(&rank.session);
            // Of ranks that share a coordinate the last one counts.
            let of = |(run, all_here): &&mut (Run, bool)| {
                let beside = run.last + 1 == at && *all_here == here;
                (run.last == at || beside) && run.member.id == rank.member.id
            };
            if let Some((run, all_here)) = runs.last_mut().filter(of) {
                (run.last, run.step) = (at, run.step.min(step));
                *all_here &= here;
                continue;
            }
            let run = Run {
                member: Arc::clone(&rank.member),
                first: at,
                last: at,
                step,
            };
            runs.push((run, here));
        }
        runs.into_iter().map(|(run, _)| run).collect()
    }

    /// Of each attempt with connected ranks whose job has a lease: one of them, and the lease.
    pub(crate) fn leased(&self) -> Vec<(Arc<Member>, Duration)> {
        let mut leased: Vec<(Arc<Member>, Duration)> = Vec::new();
        for line in self.lines.values().filter(|line| !line.over) {
            let Some(member) = &line.member else { continue };
            let job = self.head.jobs.get(&member.job);
            let lease = job.filter(|job| job.opened == member.opened);
            let Some(seconds) = lease.and_then(|job| job.lease_seconds) else {
                continue;
            };
            if leased.iter().all(|(known, _)| known.id != member.id) {
                leased.push((Arc::clone(member), Duration::from_secs(seconds)));
            }
        }
        leased
    }

    /// A run's progress is stored.
    pub(crate) fn progress_stored(&mut self, run: &Run) {
        let all = self.ranks.all.values_mut();
        let in_run = |rank: &&mut Rank| {
            let member = &rank.member;
            (run.first..=run.last).contains(&member.dp_rank)
                && member.id == run.member.id
                && member.job == run.member.job
                && member.opened == run.member.opened
        };
        for rank in all.filter(in_run) {
            rank.stored = rank.stored.max(run.step);
        }
    }

    /// Judges a mark; gives what is to be stored, if another rank does not speak for this one, and what
    /// tells when the ledger is. None of a reader without a job.
    pub(crate) fn mark(
        &mut self,
        id: SessionId,
        made: &Checkpoint,
        policy: Checkpoints,
        stream: StreamId,
    ) -> Result<Option<(Option<Mark>, Receipt)>, Fault> {
        let Some(member) = self.lines.get(&id).and_then(|line| line.member.clone()) else {
            return Ok(None);
        };
        let sent = self.engine.session(id).map_or(0, |s| s.next.step);
        marks::judge(&member, sent, &self.head, made, stream)?;
        self.received(id, made.step);
        let step = made.step;
        let (kept, receipt) = Kept::new();
        self.ranks.deliveries.tell(Delivery::Marked {
            session: id,
            member: Arc::clone(&member),
            step,
            kept,
        });
        let mark = marks::of(&member, made, policy, stream);
        Ok(Some((mark, receipt)))
    }

    /// Ends sessions whose attempt or job is over, with the reason; forgets their ranks.
    pub(super) fn end_outdated(&mut self) {
        self.metrics.attempt.reset();
        for (job, state) in &self.head.jobs {
            let newest = state.attempts.last().map_or(-1, |a| a.number.cast_signed());
            let labels = [job.as_str()];
            self.metrics.attempt.with_label_values(&labels).set(newest);
        }
        let outdated: Vec<(SessionId, Fault)> = self
            .lines
            .iter()
            .filter(|(_, line)| !line.over)
            .filter_map(|(id, line)| {
                let fault = outdated(line.member.as_deref()?, &self.head)?;
                Some((*id, fault))
            })
            .collect();
        for (id, fault) in outdated {
            tracing::warn!(session = id, %fault, "a session is over");
            if fault.known_name() == Some(ErrorName::AttemptSuperseded) {
                self.metrics.superseded.inc();
            }
            self.fail_session(id, fault);
        }
        self.forget_outdated();
    }

    /// Forgets ranks whose attempt is over, once their sessions have told all.
    pub(super) fn forget_outdated(&mut self) {
        let Self {
            ranks, lines, head, ..
        } = self;
        ranks.all.retain(|_, rank| {
            lines.contains_key(&rank.session) || outdated(&rank.member, head).is_none()
        });
    }

    /// Shows the lane that is awaited, and no other.
    pub(super) fn show_awaited(&self, head: &Head) {
        let gauge = &self.metrics.awaited_lane;
        if head.awaited == self.head.awaited {
            return;
        }
        gauge.reset();
        if let Some((lane, since)) = &head.awaited {
            gauge
                .with_label_values(&[lane.as_str()])
                .set(since.cast_signed());
        }
    }
}

fn outdated(member: &Member, head: &Head) -> Option<Fault> {
    closed(member, &head.jobs).or_else(|| {
        let state = head.jobs.get(&member.job)?;
        superseded(&member.job, member.attempt, state)
    })
}
