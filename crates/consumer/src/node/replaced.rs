//! What ranks were given, compared with a log that took the place of the one from which it came.

use std::collections::BTreeSet;

use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::tgb::Digest;
use batchweave_wire::{Fault, Hello};

use super::{Head, State};
use crate::engine::SessionId;
use crate::job::membership::Member;
use crate::node::rewind::{Witness, claimed, contradicted};
use crate::quarantine::Skips;

/// An attempt: job, incarnation, number.
pub(crate) type AttemptKey = (JobName, Version, AttemptNo);

fn key(member: &Member) -> AttemptKey {
    (member.job.clone(), member.opened, member.attempt)
}

/// What differs between the log that was followed and the one that is now.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    /// Steps that were found before and are not there now, or are other batches.
    pub(crate) changed: BTreeSet<Step>,
    /// By attempt, the furthest step that marks and progress in the store speak of.
    pub(crate) stored: Vec<(AttemptKey, Step)>,
}

impl State {
    /// The log says that `step` is this batch.
    pub(crate) fn note_step(&mut self, step: Step, digest: Digest) {
        self.history.note(step, digest);
    }

    /// The steps that the log was asked for, and what they were.
    pub(crate) fn known_steps(&self) -> Vec<(Step, Digest)> {
        self.history.all()
    }

    /// The attempts that ranks of this node read in.
    pub(crate) fn live_attempts(&self) -> BTreeSet<AttemptKey> {
        let lines = self.lines.values().filter(|line| !line.over);
        lines
            .filter_map(|line| line.member.as_deref().map(key))
            .collect()
    }

    /// Whether a rank that says hello has what the log does not hold.
    pub(super) fn contradicts(&self, hello: &Hello, member: Option<&Member>) -> Option<Fault> {
        let passes = Skips::ever(&self.head.quarantine);
        let received = member.and_then(|member| self.ranks.received(member));
        let received = received.and_then(|next| passes.before(next));
        let told = received.map(|step| (step, Witness::Ledger));
        contradicted(claimed(hello, &self.head).max(told)?, &self.head, None)
    }

    /// Another log took the place of the one that was followed: what is known and not delivered is
    /// forgotten, and ranks stop that were given what the log does not hold.
    pub(crate) fn replace_log(&mut self, head: Head, replaced: &Replaced) {
        self.engine.forget_steps(&replaced.changed);
        self.history.forget(&replaced.changed);
        let wrong: Vec<(SessionId, Fault)> = self
            .lines
            .iter()
            .filter(|(_, line)| !line.over)
            .filter_map(|(id, line)| {
                let member = line.member.as_deref();
                let last = self.furthest(line.reached, member, &head, replaced)?;
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

    /// The furthest step that a rank, its ledger or its attempt has.
    fn furthest(
        &self,
        reached: Option<Step>,
        member: Option<&Member>,
        head: &Head,
        replaced: &Replaced,
    ) -> Option<(Step, Witness)> {
        let passes = Skips::ever(&head.quarantine);
        let received = member.and_then(|member| self.ranks.received(member));
        let received = received.and_then(|next| passes.before(next));
        let stored = member.and_then(|member| {
            let of = |(attempt, _): &&(AttemptKey, Step)| *attempt == key(member);
            let (_, next) = replaced.stored.iter().find(of)?;
            passes.before(*next)
        });
        [
            reached.map(|step| (step, Witness::Position)),
            received.map(|step| (step, Witness::Ledger)),
            stored.map(|step| (step, Witness::Stored)),
        ]
        .into_iter()
        .flatten()
        .max()
    }
}

#[cfg(test)]
mod tests;
