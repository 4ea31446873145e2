//! Ranks stop when the log is replaced by another one that contradicts what they received.

use std::collections::BTreeSet;

use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::tgb::Digest;
use batchweave_wire::{Fault, Hello};

use super::State;
use super::rewind::{LastStep, Witness, claimed, contradicted};
use crate::engine::SessionId;
use crate::job::membership::Member;
use crate::quarantine::QuarantineRanges;
use crate::stream_head::Head;

/// An attempt: job, incarnation, number.
pub(crate) type AttemptKey = (JobName, Version, AttemptNo);

fn key(member: &Member) -> AttemptKey {
    (member.job.clone(), member.opened, member.attempt)
}

/// The differences between the log that was followed and the one that replaced it.
#[derive(Debug, Default)]
pub(crate) struct LogReplacement {
    /// Steps that were located before, and now are missing or other batches.
    pub(crate) changed: BTreeSet<Step>,
    /// By attempt, the furthest step of marks and progress in the store.
    pub(crate) stored: Vec<(AttemptKey, Step)>,
}

impl State {
    /// Remembers the batch that the log has at `step`, and its stage.
    pub(crate) fn note_step(&mut self, step: Step, digest: Digest, stage: u64) {
        self.history.note(step, digest);
        self.steps.note(step, stage);
    }

    /// The remembered steps and their batches.
    pub(crate) fn known_steps(&self) -> Vec<(Step, Digest)> {
        self.history.all()
    }

    /// The attempts that connected ranks read in.
    pub(crate) fn live_attempts(&self) -> BTreeSet<AttemptKey> {
        let running = self.outboxes.values().filter(|outbox| !outbox.over);
        running
            .filter_map(|outbox| outbox.member.as_deref().map(key))
            .collect()
    }

    /// Returns a fault if a new rank has received steps that the log does not contain.
    pub(super) fn contradicts(&self, hello: &Hello, member: Option<&Member>) -> Option<Fault> {
        let passed = QuarantineRanges::including_lifted(&self.head.quarantine);
        let received = member
            .and_then(|member| self.ranks.received(member))
            .and_then(|next| passed.last_read_before(next))
            .map(|step| Witness::Ledger.of(step));
        contradicted(claimed(hello, &self.head).max(received)?, &self.head, None)
    }

    /// Continues with the log that replaced the followed one: forgets what is not delivered yet, and ends the
    /// sessions of ranks that received steps which the log does not contain.
    pub(crate) fn replace_log(&mut self, head: Head, replaced: &LogReplacement) {
        self.engine.forget_steps(&replaced.changed);
        self.history.forget(&replaced.changed);
        let wrong: Vec<(SessionId, Fault)> = self
            .outboxes
            .iter()
            .filter(|(_, outbox)| !outbox.over)
            .filter_map(|(id, outbox)| {
                let member = outbox.member.as_deref();
                let last = self.furthest(outbox.reached, member, &head, replaced)?;
                let changed = replaced.changed.first().copied();
                Some((*id, contradicted(last, &head, changed)?))
            })
            .collect();
        for (id, fault) in wrong {
            tracing::error!(session = id, %fault, "the log was replaced: a rank is stopped");
            self.fail_session(id, fault);
        }
        self.set_head(head);
    }

    /// The furthest step of a rank according to itself, its ledger and its attempt's objects.
    fn furthest(
        &self,
        reached: Option<Step>,
        member: Option<&Member>,
        head: &Head,
        replaced: &LogReplacement,
    ) -> Option<LastStep> {
        let passed = QuarantineRanges::including_lifted(&head.quarantine);
        let received = member
            .and_then(|member| self.ranks.received(member))
            .and_then(|next| passed.last_read_before(next));
        let stored = member.and_then(|member| {
            let of = |(attempt, _): &&(AttemptKey, Step)| *attempt == key(member);
            let (_, next) = replaced.stored.iter().find(of)?;
            passed.last_read_before(*next)
        });
        [
            reached.map(|step| Witness::Position.of(step)),
            received.map(|step| Witness::Ledger.of(step)),
            stored.map(|step| Witness::Stored.of(step)),
        ]
        .into_iter()
        .flatten()
        .max()
    }
}

#[cfg(test)]
mod tests;
