//! Holes on their way into ledgers: those of this daemon's ranks, and those that earlier attempts left.

use std::sync::Arc;

use batchweave_core::guards;

use super::book::Hole;
use super::recall::{Done, Filled, Window, Work};
use super::{Keeper, key, lineage, precedes};
use crate::job::membership::Member;

/// A hole of more steps is not read from indexes: something else is wrong.
const HOLE_MAX: u64 = 1 << 16;

impl Keeper {
    /// Requests the check of the earlier attempts' ledgers, once per coordinate of an attempt that has a parent.
    pub(super) async fn inherit(&mut self, member: &Arc<Member>) {
        let key = key(member);
        if member.parent.is_none()
            || guards::leaves_earlier_holes()
            || !self.inherited.insert((key.clone(), member.dp_rank))
        {
            return;
        }
        // What this daemon delivered itself is stored first.
        let earlier = self.attempts.keys().filter(|other| precedes(other, &key));
        for other in earlier.cloned().collect::<Vec<_>>() {
            self.flush(&other).await;
        }
        self.lineages.push(Arc::clone(member));
    }

    /// Notes a hole, which will be read from the store's indexes.
    pub(super) fn add_hole(&mut self, hole: Option<Hole>) {
        let Some(hole) = hole else { return };
        if hole.steps.end - hole.steps.start > HOLE_MAX {
            let why = format!("more than {HOLE_MAX} steps");
            return self.report_hole(&hole, &why);
        }
        let member = Arc::clone(&hole.member);
        self.attempt(&member).add_hole(hole);
    }

    /// Starts recalling the next steps of some attempt, or else looks for holes of earlier attempts, unless such work is
    /// in progress.
    pub(super) fn recall_next(&mut self) {
        if self.recall.busy {
            return;
        }
        let lacking = self.attempts.iter().find(|(_, a)| !a.holes.is_empty());
        if let Some((key, attempt)) = lacking {
            let (key, holes) = (key.clone(), attempt.holes.window());
            self.recall.begin(Work::Window(Window { key, holes }));
        } else if let Some(first) = self.lineages.first().filter(|_| self.unsaved.is_empty()) {
            let same = |member: &&Arc<Member>| key(member) == key(first);
            let members = self.lineages.iter().filter(same).cloned();
            self.recall.begin(Work::Lineage(members.collect()));
        }
    }

    pub(super) async fn note_done(&mut self, done: Done) {
        match done {
            Done::Window(filled) => self.note_filled(filled).await,
            Done::Lineage(members, holes) => self.note_lineage(&members, holes),
        }
    }

    fn note_lineage(&mut self, members: &[Arc<Member>], holes: Vec<Hole>) {
        let done = |member: &Arc<Member>| members.iter().any(|other| Arc::ptr_eq(other, member));
        self.lineages.retain(|member| !done(member));
        if let (Some(member), false) = (members.first(), holes.is_empty()) {
            tracing::warn!(
                job = %member.job, attempt = member.attempt, holes = holes.len(),
                steps = lineage::steps_of(&holes),
                "earlier attempts left holes in their ledgers: recording them from the store's indexes"
            );
        }
        for mut hole in holes {
            // Recorded by this daemon meanwhile.
            let known = self.attempt(&hole.member).known(&hole.member);
            hole.steps.start = hole.steps.start.max(known);
            self.add_hole(Some(hole).filter(|hole| !hole.steps.is_empty()));
        }
        self.recall_next();
        self.answer();
    }

    async fn note_filled(&mut self, filled: Filled) {
        let Filled {
            window: Window { key, holes },
            entries,
            left,
        } = filled;
        if let Some(attempt) = self.attempts.get_mut(&key) {
            attempt.holes.done(&holes);
            for entry in entries {
                self.resources
                    .metrics
                    .ledger_recalled
                    .inc_by(entry.received());
                attempt.book.recalled(entry);
            }
        }
        for (hole, why) in left {
            self.report_hole(&hole, &why);
        }
        self.recall_next();
        self.flush(&key).await;
        self.answer();
    }

    /// Answers the waiting marks of ranks without a hole, here and in earlier attempts.
    pub(super) fn answer(&mut self) {
        let stored = self.unsaved.is_empty() || guards::confirms_mark_without_ledger();
        let (attempts, lineages) = (&self.attempts, &self.lineages);
        self.waiting.retain(|mark| {
            let attempt = attempts.get(&mark.key);
            let mut earlier = attempts.iter().filter(|(k, _)| precedes(k, &mark.key));
            let inherits = lineages.iter().any(|member| key(member) == mark.key)
                || earlier.any(|(_, a)| !a.holes.is_empty());
            let waits = attempt.is_some_and(|a| a.holes.first(mark.reader).is_some())
                || (inherits && stored);
            if !waits {
                mark.receipt.send(stored);
            }
            waits
        });
    }

    /// Reports a hole that can't be filled. A proof of the run will find it.
    fn report_hole(&self, hole: &Hole, why: &str) {
        self.resources.metrics.ledger_holes.inc();
        let Hole { member, steps } = hole;
        tracing::warn!(
            job = %member.job, attempt = member.attempt, dp_rank = member.dp_rank,
            from = steps.start, to = steps.end, why,
            "the ledger has a hole: the run can't be proved over these steps"
        );
    }
}
