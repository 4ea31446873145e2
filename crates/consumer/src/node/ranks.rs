//! Ranks of attempts in the state: positions, marks, leases, and the end of sessions whose attempt or job
//! is over.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::guards;
use batchweave_core::ids::{Step, StreamId};
use batchweave_core::retention::Mark;
use batchweave_wire::{Checkpoint, ErrorName, Fault, Report};
use tokio::sync::{Notify, oneshot};

use super::State;
use crate::config::Checkpoints;
use crate::engine::SessionId;
use crate::job::deliveries::{Delivery, ReceiptSender};
use crate::job::mark_rules;
use crate::job::membership::{Member, closed, superseded};
use crate::job::ranks::RankRange;
use crate::mistakes::{self, Mistake};
use crate::stream_head::Head;

/// Resolves to whether all that was received before a mark is stored.
pub(crate) type Receipt = oneshot::Receiver<bool>;

impl State {
    pub(super) fn report_progress(&mut self, every: u64, due: Arc<Notify>) {
        self.ranks.notify_progress(every, due);
    }

    /// Notes a rank's report that it has received every step below `next_step`: at most what it was sent.
    pub(super) fn received(&mut self, id: SessionId, next_step: Step) {
        let Some(sent) = self.engine.session(id).map(|cursor| cursor.next.step) else {
            return;
        };
        let Some(outbox) = self.outboxes.get_mut(&id) else {
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
        let reported = &mut outbox.reported;
        reported.next_step = reported.next_step.max(next_step.min(most));
        if let Some(member) = &outbox.member {
            let job = self.head.jobs.get(&member.job);
            let paces = job.is_some_and(|job| job.paces && job.opened == member.opened);
            let head = (paces && self.head.end.is_none()).then_some(self.head.next_step);
            self.ranks.receive(id, member, reported.next_step, head);
        }
    }

    /// Notes the states of a report that count, for the ledger.
    pub(crate) fn report(&mut self, id: SessionId, report: &Report) {
        self.received(id, report.next_step);
        let outbox = self.outboxes.get(&id);
        let Some(member) = outbox.and_then(|outbox| outbox.member.clone()) else {
            return self.states.note_nothing(id);
        };
        let Some((new, counted)) = self.ranks.report(id, &member, &report.states) else {
            return;
        };
        let steps = &self.metrics.reported_steps;
        for (outcome, count) in counted.by_outcome() {
            steps.with_label_values(&[outcome]).inc_by(count);
        }
        if let Some(outbox) = self.outboxes.get_mut(&id) {
            outbox.warn_of_refused(id, &counted);
        }
        let counts = |step| new.iter().any(|one| (one.from..one.to).contains(&step));
        let values = report.values.iter().filter(|one| counts(one.step));
        let trained = new
            .iter()
            .filter(|one| one.left_out.is_none())
            .map(|one| one.to);
        if let Some(end) = trained.max() {
            self.metrics.losses.trained(end - 1);
        }
        let values_due = self.values.note(&member, values.cloned(), &self.metrics);
        if self.states.note(id, &member, new) || values_due {
            self.ranks.deliveries.report(Delivery::StatesDue);
        }
    }

    /// Has the position of a waiting rank stored now, if it is not.
    pub(super) fn progress_at_once(&mut self, id: SessionId) {
        let outbox = self.outboxes.get(&id);
        if let Some(member) = outbox.and_then(|outbox| outbox.member.as_deref()) {
            self.ranks.store_at_once(id, member);
        }
    }

    /// The progress of all attempts on this node.
    pub(crate) fn rank_ranges(&self) -> Vec<RankRange> {
        let connected = |session| self.outboxes.contains_key(&session);
        self.ranks.ranges(self.head.next_step, connected)
    }

    /// Notes that the progress of a range is stored.
    pub(crate) fn progress_stored(&mut self, range: &RankRange) {
        self.ranks.stored(range);
    }

    /// Returns one connected rank of each attempt whose job has a lease, with the lease.
    pub(crate) fn leased(&self) -> Vec<(Arc<Member>, Duration)> {
        let mut leased: Vec<(Arc<Member>, Duration)> = Vec::new();
        for outbox in self.outboxes.values().filter(|outbox| !outbox.over) {
            let Some(member) = &outbox.member else {
                continue;
            };
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

    /// Validates a mark. Returns the object to store, `None` if another rank marks for this one, and the
    /// receipt of the ledger; nothing at all for a reader without a job.
    pub(crate) fn mark(
        &mut self,
        id: SessionId,
        made: &Checkpoint,
        policy: Checkpoints,
        stream: StreamId,
    ) -> Result<Option<(Option<Mark>, Receipt)>, Fault> {
        let outbox = self.outboxes.get(&id);
        let Some(member) = outbox.and_then(|outbox| outbox.member.clone()) else {
            return Ok(None);
        };
        let sent = self.engine.session(id).map_or(0, |s| s.next.step);
        mark_rules::validate(&member, sent, &self.head, made, stream)?;
        self.received(id, made.step);
        let (receipt_to, receipt) = ReceiptSender::new();
        self.ranks.deliveries.report(Delivery::Marked {
            session: id,
            member: Arc::clone(&member),
            step: made.step,
            receipt: receipt_to,
        });
        let mark = mark_rules::mark_for(&member, made, policy, stream);
        Ok(Some((mark, receipt)))
    }

    /// Ends sessions whose attempt or job is over, with the reason, and forgets their ranks.
    pub(super) fn end_outdated(&mut self) {
        self.metrics.attempt.reset();
        for (job, state) in &self.head.jobs {
            let newest = state.attempts.last().map_or(-1, |a| a.number.cast_signed());
            let labels = [job.as_str()];
            self.metrics.attempt.with_label_values(&labels).set(newest);
        }
        let outdated: Vec<(SessionId, Fault)> = self
            .outboxes
            .iter()
            .filter(|(_, outbox)| !outbox.over)
            .filter_map(|(id, outbox)| {
                let fault = outdated(outbox.member.as_deref()?, &self.head)?;
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

    /// Forgets ranks whose attempt is over, once their sessions are closed.
    pub(super) fn forget_outdated(&mut self) {
        let Self {
            ranks,
            outboxes,
            head,
            ..
        } = self;
        ranks.retain(|session, member| {
            outboxes.contains_key(&session) || outdated(member, head).is_none()
        });
    }

    /// Shows the lane of `head` that is awaited, and no other.
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
