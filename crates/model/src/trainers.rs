//! Trainers: each opens one attempt of its job, from any checkpoint, receives steps and makes marks,
//! also when a newer attempt has superseded it. And what must hold for them, by the order of events.

use batchweave_core::manifest::rules::Validity;

use crate::facts::Job;
use crate::guard::Guard;
use crate::property::Property;
use crate::signs::Signs;
use crate::spec::Spec;
use crate::state::{Role, State, Trainer, mark};
use crate::tables::Node;
use crate::turn::Turn;

impl Turn<'_> {
    /// Whether all coordinates of a trainer's attempt have marked a step.
    fn is_complete(&self, state: &State, trainer: u8, step: u8) -> bool {
        let signs = Signs::of(state);
        let marking = if self.config.rank0 {
            1
        } else {
            self.config.coordinates
        };
        (0..marking).all(|coordinate| signs.marked(trainer, coordinate, step))
    }

    /// A trainer restarts from a checkpoint: any complete mark, the start of an attempt, or where the
    /// data begins. The first one of a job starts where it likes; where nobody writes, all do.
    pub fn attempt(&mut self, who: u8, start: u8) -> Option<()> {
        if self.look(who) {
            return Some(());
        }
        let process = self.copy(who);
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
        // Below the watermark: the trainer is told so and takes another checkpoint.
        let valid = self.tables.judge(process.view, &[entry]) == [Ok(Validity::Applies)];
        if !valid && (!below || self.keeps(Guard::FoldStarts)) {
            return None;
        }
        self.want(who, vec![entry]);
        Some(())
    }

    /// What a trainer learns from the log.
    pub fn observe_trainer(&mut self, who: u8, mut trainer: Trainer) {
        let facts = self.tables.facts(self.copy(who).view);
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
            self.process(who).role = Role::Trainer(trainer);
        }
    }

    /// The slower coordinate has received all steps below this one, and says so.
    pub fn receive(&mut self, who: u8, step: u8) -> Option<()> {
        let Role::Trainer(mut trainer) = self.copy(who).role else {
            return None;
        };
        trainer.at[1] = step;
        self.process(who).role = Role::Trainer(trainer);
        Some(())
    }

    /// A data coordinate makes a mark. The trainer need not know that a newer attempt exists.
    pub fn mark(&mut self, who: u8, coordinate: u8, step: u8) -> Option<()> {
        let Role::Trainer(mut trainer) = self.copy(who).role else {
            return None;
        };
        let at = usize::from(coordinate);
        if trainer.marks[at] == 0 {
            return None;
        }
        trainer.marks[at] -= 1;
        trainer.at[at] = step;
        self.process(who).role = Role::Trainer(trainer);
        self.state.marks |= mark(trainer.index, coordinate, step);
        if self.is_complete(&self.state, trainer.index, step) {
            self.checkpoint(trainer, step);
        }
        Some(())
    }

    /// A checkpoint is complete. It counts if the history that it belongs to is not given up.
    fn checkpoint(&mut self, trainer: Trainer, step: u8) {
        let head = self.tables.facts(self.state.head);
        let attempts = &head.jobs[usize::from(trainer.job)].attempts;
        let Some(at) = attempts.iter().position(|&(by, _)| by == trainer.index) else {
            // Of an incarnation that is over.
            return;
        };
        let superseded_at = attempts[at + 1..].iter().map(|&(_, start)| start).min();
        if superseded_at.is_none_or(|start| step <= start) {
            self.state.points[usize::from(trainer.job)].insert(step);
        }
    }

    /// What a new record means for the jobs.
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

    /// Restart points, one event after another.
    fn follow_job(&mut self, index: u8, old: &Job, new: &Job, watermark: u8) {
        if old.changes != new.changes {
            self.state.points[usize::from(index)].retain(|_| false);
            return;
        }
        for &(_, start) in &new.attempts[old.attempts.len()..] {
            // What lies above was done by an attempt that is given up.
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
        let points = self.state.points[usize::from(index)];
        let points = points.as_slice();
        let keep = usize::from(self.config.keep[usize::from(index)]);
        let needed = points.len().checked_sub(keep).map(|at| points[at]);
        if needed.is_none_or(|needed| is > needed) {
            let detail = format!("watermark {is}, restart points {points:?} of job {index}");
            self.breaks(Property::Watermark, detail);
        }
        // The newest attempt's slowest rank still has to read these.
        let position = job.attempts.last().map(|&newest| self.position(newest));
        if let Some(position) = position.filter(|&position| is > position) {
            let detail = format!("watermark {is}, a rank of job {index} has received {position}");
            self.breaks(Property::Watermark, detail);
        }
    }

    /// What all coordinates of an attempt have received.
    fn position(&self, (trainer, start): (u8, u8)) -> u8 {
        let at = Signs::of(&self.state).at[usize::from(trainer)];
        let at = &at[..usize::from(self.config.coordinates)];
        at.iter().copied().min().unwrap_or_default().max(start)
    }
}
