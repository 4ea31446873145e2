//! Trainers: each opens one attempt of its job from any checkpoint, receives steps and writes marks,
//! also after a newer attempt has superseded it. The checks of jobs follow the order of events.

use batchweave_core::manifest::rules::Validity;

use crate::facts::Job;
use crate::guard::Guard;
use crate::numbers::Node;
use crate::property::Property;
use crate::spec::Spec;
use crate::state::MarksAndProgress;
use crate::state::{Role, State, Trainer, mark};
use crate::turn::Turn;

impl Turn<'_> {
    /// Returns true if all coordinates of a trainer's attempt have marked a step.
    fn is_complete(&self, state: &State, trainer: u8, step: u8) -> bool {
        let stored = MarksAndProgress::from_state(state);
        let marking = if self.config.rank0 {
            1
        } else {
            self.config.coordinates
        };
        (0..marking).all(|coordinate| stored.marked(trainer, coordinate, step))
    }

    /// Restarts a trainer from a checkpoint: a complete mark, the start of an attempt, or the
    /// watermark. The first one of a job, and each one where no producer runs, starts at any step.
    pub fn attempt(&mut self, pid: u8, start: u8) -> Option<()> {
        if self.refresh(pid) {
            return Some(());
        }
        let process = self.copy(pid);
        let Role::Trainer(trainer) = process.role else {
            return None;
        };
        let facts = self.tables.facts(process.view);
        let job = facts.jobs[usize::from(trainer.job)].clone();
        let of_job = |&(by, _): &(u8, u8)| self.is_complete(&self.state, by, start);
        let known = job.attempts.iter().chain(&job.past);
        let possible = self.config.filled
            || job.attempts.is_empty()
            || start == facts.watermark
            || known.clone().any(of_job)
            || known.clone().any(|&(_, other)| other == start);
        if !job.open || !possible {
            return None;
        }
        let below = start < facts.watermark;
        let entry = self.tables.entry(Spec::Attempt {
            job: trainer.job,
            opened: job.opened,
            trainer: trainer.index,
            predecessor: job.attempts.last().map(|&(by, _)| by),
            start,
            coordinates: self.config.coordinates,
        });
        // Below the watermark the trainer gets an error and takes another checkpoint.
        let valid = self.tables.validate(process.view, &[entry]) == [Ok(Validity::Applies)];
        if !valid && (!below || self.keeps(Guard::FoldStarts)) {
            return None;
        }
        self.want(pid, vec![entry]);
        Some(())
    }

    /// Updates a trainer from the folded log.
    pub fn observe_trainer(&mut self, pid: u8, mut trainer: Trainer) {
        let facts = self.tables.facts(self.copy(pid).view);
        let mine = |&&(by, _): &&(u8, u8)| by == trainer.index;
        let job = &facts.jobs[usize::from(trainer.job)];
        let found = job.attempts.iter().chain(&job.past).find(mine);
        if let Some(&(_, start)) = found.filter(|_| !trainer.open) {
            trainer.open = true;
            for coordinate in 0..usize::from(self.config.coordinates) {
                trainer.at[coordinate] = start;
                trainer.marks[coordinate] = self.config.marks;
            }
            if self.config.rank0 {
                trainer.marks[1] = 0;
            }
            self.process(pid).role = Role::Trainer(trainer);
        }
    }

    /// Publishes that the slower coordinate has received all steps below this one.
    pub fn receive(&mut self, pid: u8, step: u8) -> Option<()> {
        let Role::Trainer(mut trainer) = self.copy(pid).role else {
            return None;
        };
        trainer.at[1] = step;
        self.process(pid).role = Role::Trainer(trainer);
        Some(())
    }

    /// Writes a data coordinate's mark. The trainer may not know that a newer attempt exists.
    pub fn mark(&mut self, pid: u8, coordinate: u8, step: u8) -> Option<()> {
        let Role::Trainer(mut trainer) = self.copy(pid).role else {
            return None;
        };
        let at = usize::from(coordinate);
        if trainer.marks[at] == 0 {
            return None;
        }
        trainer.marks[at] -= 1;
        trainer.at[at] = step;
        self.process(pid).role = Role::Trainer(trainer);
        self.state.marks |= mark(trainer.index, coordinate, step);
        if self.is_complete(&self.state, trainer.index, step) {
            self.checkpoint(trainer, step);
        }
        Some(())
    }

    /// Adds a complete checkpoint, which counts unless a later attempt went back behind it.
    fn checkpoint(&mut self, trainer: Trainer, step: u8) {
        let head = self.tables.facts(self.state.head);
        let attempts = &head.jobs[usize::from(trainer.job)].attempts;
        let Some(at) = attempts.iter().position(|&(by, _)| by == trainer.index) else {
            // The attempt is of an earlier incarnation.
            return;
        };
        let superseded_at = attempts[at + 1..].iter().map(|&(_, start)| start).min();
        if superseded_at.is_none_or(|start| step <= start) {
            self.state.points[usize::from(trainer.job)].insert(step);
        }
    }

    /// Checks the jobs against a new record.
    pub fn check_jobs(&mut self, before: Node, head: Node) {
        let (old, new) = (self.tables.facts(before), self.tables.facts(head));
        if old.jobs == new.jobs && old.watermark == new.watermark {
            return;
        }
        let (was, is) = (old.watermark, new.watermark);
        let jobs = [0, 1].map(|at| (old.jobs[at].clone(), new.jobs[at].clone()));
        for (index, (old, new)) in (0..).zip(&jobs) {
            self.follow_job(index, old, new, is);
        }
        for (index, (_, job)) in (0..).zip(&jobs).filter(|(_, (_, new))| new.open) {
            if is > was {
                self.check_watermark(index, job, is);
            }
        }
        if is < was {
            self.check_data();
        }
    }

    /// Updates the restart points from one change of a job.
    fn follow_job(&mut self, index: u8, old: &Job, new: &Job, watermark: u8) {
        if old.changes != new.changes {
            self.state.points[usize::from(index)].retain(|_| false);
            return;
        }
        for &(_, start) in &new.attempts[old.attempts.len()..] {
            // Points above the start belong to an abandoned attempt.
            let points = &mut self.state.points[usize::from(index)];
            points.retain(|&point| point <= start);
            points.insert(start);
            if start < watermark {
                let detail = format!("an attempt starts at {start}, the watermark is {watermark}");
                self.breaks(Property::Watermark, detail);
            }
        }
    }

    fn check_watermark(&mut self, index: u8, job: &Job, is: u8) {
        let stored = self.state.points[usize::from(index)];
        let points = stored.as_slice();
        let keep = usize::from(self.config.keep[usize::from(index)]);
        let needed = points.len().checked_sub(keep).map(|at| points[at]);
        if needed.is_none_or(|needed| is > needed) {
            let detail = format!("watermark {is}, restart points {points:?} of job {index}");
            self.breaks(Property::Watermark, detail);
        }
        // The slowest rank of the newest attempt still has to read these steps.
        let position = job.attempts.last().map(|&newest| self.position(newest));
        if let Some(position) = position.filter(|&position| is > position) {
            let detail = format!("watermark {is}, a rank of job {index} has received {position}");
            self.breaks(Property::Watermark, detail);
        }
    }

    /// Returns the step that all coordinates of an attempt have received.
    fn position(&self, (trainer, start): (u8, u8)) -> u8 {
        let at = MarksAndProgress::from_state(&self.state).at[usize::from(trainer)];
        let at = &at[..usize::from(self.config.coordinates)];
        at.iter().copied().min().unwrap_or_default().max(start)
    }
}
