//! Trainers, the reclaimer and whoever seals.

use std::collections::BTreeSet;

use batchweave_core::manifest::judge::Verdict;

use crate::facts::Facts;
use crate::guard::Guard;
use crate::property::Property;
use crate::spec::{Object, Spec};
use crate::state::{Reclaimer, Role, Stage, Trainer, mark};
use crate::tables::{EntryNo, Node};
use crate::turn::Turn;

impl Turn<'_> {
    /// A trainer restarts from a checkpoint: any complete mark, the start of an attempt, or 0.
    pub fn attempt(&mut self, who: u8, start: u8) -> Option<()> {
        if self.look(who) {
            return Some(());
        }
        let process = self.copy(who);
        let Role::Trainer(trainer) = process.role else {
            return None;
        };
        let facts = self.tables.facts(process.view);
        let marked = (0..4).any(|attempt| self.state.marks & mark(attempt, start) != 0);
        let started = facts.attempts.iter().any(|&(_, other)| other == start);
        if start != 0 && !marked && !started {
            return None;
        }
        let predecessor = facts.attempts.last().map(|&(trainer, _)| trainer);
        let entry = self.tables.entry(Spec::Attempt {
            trainer: trainer.index,
            predecessor,
            start,
        });
        // Below the watermark: the trainer is told so and takes another checkpoint.
        if self.tables.judge(process.view, &[entry]) != [Ok(Verdict::Applies)] {
            return None;
        }
        self.want(who, vec![entry]);
        Some(())
    }

    /// What a trainer learns from the log.
    pub fn observe_trainer(&mut self, who: u8, mut trainer: Trainer) {
        let facts = self.tables.facts(self.copy(who).view);
        let mine = |&(_, &(index, _)): &(u8, &(u8, u8))| index == trainer.index;
        let found = (0..).zip(&facts.attempts).find(mine);
        if let Some((number, &(_, start))) = found.filter(|_| !trainer.open) {
            trainer.open = true;
            (trainer.attempt, trainer.at) = (number, start);
            trainer.marks = self.config.marks;
            self.process(who).role = Role::Trainer(trainer);
        }
    }

    /// A checkpoint is complete. The trainer need not know that a newer attempt exists.
    pub fn mark(&mut self, who: u8, step: u8) -> Option<()> {
        let Role::Trainer(mut trainer) = self.copy(who).role else {
            return None;
        };
        if trainer.marks == 0 {
            return None;
        }
        trainer.marks -= 1;
        trainer.at = step;
        self.process(who).role = Role::Trainer(trainer);
        self.state.marks |= mark(trainer.attempt, step);
        let newest = self.tables.facts(self.state.head).attempts.len();
        let superseded = usize::from(trainer.attempt) + 1 < newest;
        let top = self.state.points.as_slice().last().copied().unwrap_or(0);
        if !superseded || step <= top {
            self.state.points.insert(step);
        }
        Some(())
    }

    /// What a new record means for the job.
    pub fn check_job(&mut self, before: Node, head: Node) {
        let (old, new) = (self.tables.facts(before), self.tables.facts(head));
        let opened: Vec<_> = new.attempts[old.attempts.len()..].to_vec();
        let (was, is) = (old.watermark, new.watermark);
        for (_, start) in opened {
            // What lies above was done by an attempt that is given up.
            self.state.points.retain(|&point| point <= start);
            self.state.points.insert(start);
            if start < is {
                let detail = format!("an attempt starts at {start}, the watermark is {is}");
                self.breaks(Property::Watermark, detail);
            }
        }
        let points = self.state.points.as_slice();
        let needed = points
            .len()
            .checked_sub(usize::from(self.config.keep))
            .map_or(was, |at| points[at]);
        if is > was && is > needed {
            let detail = format!("watermark {is}, restart points {points:?}");
            self.breaks(Property::Watermark, detail);
        }
    }

    /// The watermark that the job's restart points allow; none when there are too few.
    fn floor(&self, facts: &Facts) -> Option<u8> {
        let mut points = BTreeSet::new();
        let newest = facts.attempts.len().checked_sub(1)?;
        for (at, &(_, start)) in facts.attempts.iter().enumerate() {
            let later = facts.attempts[at + 1..].iter().map(|&(_, start)| start);
            let mut top = later.min().unwrap_or(u8::MAX);
            if !self.keeps(Guard::DropAbandoned) {
                top = u8::MAX;
            }
            if at < newest && !self.keeps(Guard::EarlierAttempts) {
                continue;
            }
            let marked = |&step: &u8| self.state.marks & mark(at as u8, step) != 0;
            points.extend((0..8).filter(marked).chain([start]).filter(|&s| s <= top));
        }
        let enough = points.len().checked_sub(usize::from(self.config.keep));
        match enough {
            None if !self.keeps(Guard::EarlierAttempts) => points.first().copied(),
            enough => points.into_iter().nth(enough?),
        }
    }

    /// The reclaimer reads the marks, after it has folded, and wants a watermark.
    pub fn compute(&mut self, who: u8) -> Option<()> {
        self.look(who);
        let process = self.copy(who);
        let facts = self.tables.facts(process.view);
        let step = self.floor(facts)?;
        if step <= facts.watermark || step > facts.next_step {
            return None;
        }
        if self.keeps(Guard::PublishFirst) {
            self.publish(who, step);
        } else {
            self.process(who).role = Role::Reclaimer(Reclaimer {
                deletes: true,
                step,
                second: process.view,
            });
        }
        Some(())
    }

    fn publish(&mut self, who: u8, step: u8) {
        let view = self.copy(who).view;
        let attempts = self.tables.facts(view).attempts.len() as u8;
        let attempt = attempts.checked_sub(1);
        let entry = self.tables.entry(Spec::Watermark { step, attempt });
        let verdict = self.tables.judge(view, &[entry]).first().cloned();
        if let Some(Err(void)) = verdict {
            self.breaks(Property::NoSurprise, format!("watermark {step}: {void}"));
        }
        self.want(who, vec![entry]);
    }

    /// Without a guard: the reclaimer that lost a version publishes the step that it had computed.
    pub fn insist(&mut self, who: u8, entries: &[EntryNo]) {
        let watermark = self.tables.facts(self.copy(who).view).watermark;
        for &entry in entries {
            if let Spec::Watermark { step, .. } = self.tables.spec(entry)
                && step > watermark
            {
                self.publish(who, step);
            }
        }
    }

    /// A pass begins, by what the reclaimer has folded.
    pub fn pass(&mut self, who: u8) -> Option<()> {
        if self.keeps(Guard::OneFold) {
            self.look(who);
        }
        let view = self.copy(who).view;
        let second = if self.keeps(Guard::OneFold) {
            view
        } else {
            self.state.head
        };
        let reclaimer = Reclaimer {
            deletes: true,
            step: 0,
            second,
        };
        let there = (0..).zip(self.tables.objects());
        let any = there
            .filter(|(bit, _)| self.state.objects >> bit & 1 == 1)
            .any(|(_, object)| self.may_delete(view, reclaimer, *object));
        if !any {
            return None;
        }
        self.process(who).role = Role::Reclaimer(reclaimer);
        Some(())
    }

    /// The rule: its epoch is over or its sequence has passed, and nothing names it at or above the
    /// watermark or for a turn to come.
    fn may_delete(&self, view: Node, reclaimer: Reclaimer, object: Object) -> bool {
        let (names, lives) = (self.tables.facts(view), self.tables.facts(reclaimer.second));
        let name = lives.names[usize::from(object.producer)];
        let over = object.epoch < name.epoch || name.finished || object.last < name.next;
        let watermark = names.watermark.max(reclaimer.step);
        let spare_waiting = self.keeps(Guard::SpareWaiting);
        let kept = names
            .tgbs
            .iter()
            .filter(|tgb| tgb.object == object)
            .any(|tgb| tgb.step.map_or(spare_waiting, |step| step >= watermark));
        (over || !self.keeps(Guard::SpareUncommitted)) && !kept
    }

    /// One object goes.
    pub fn delete(&mut self, who: u8, bit: u8) -> Option<()> {
        let process = self.copy(who);
        let Role::Reclaimer(reclaimer) = process.role else {
            return None;
        };
        let object = self.tables.objects()[usize::from(bit)];
        if !self.may_delete(process.view, reclaimer, object) {
            return None;
        }
        self.state.objects &= !(1 << bit);
        let head = self.tables.facts(self.state.head);
        let watermark = head.watermark;
        let live = head
            .tgbs
            .iter()
            .filter(|tgb| tgb.object == object)
            .any(|tgb| tgb.step.is_none_or(|step| step >= watermark));
        let name = head.names[usize::from(object.producer)];
        if live {
            let detail = format!("{} is deleted, the watermark is {watermark}", label(object));
            self.breaks(Property::LiveData, detail);
        } else if object.epoch == name.epoch && object.first >= name.next && self.lives(object) {
            let detail = format!("{} is deleted before its commit", label(object));
            self.breaks(Property::FutureData, detail);
        }
        Some(())
    }

    /// Whether the instance that made an object is alive.
    fn lives(&self, object: Object) -> bool {
        self.state
            .processes
            .as_slice()
            .iter()
            .filter_map(|process| process.producer())
            .any(|producer| {
                producer.stage == Stage::Live
                    && producer.name == object.producer
                    && producer.instance == object.instance
            })
    }

    /// The pass is over, or was interrupted.
    pub fn end_pass(&mut self, who: u8) {
        self.process(who).role = Role::Reclaimer(Reclaimer::default());
    }

    /// The next seal or unseal.
    pub fn seal(&mut self, who: u8) -> Option<()> {
        if self.look(who) {
            return Some(());
        }
        let process = self.copy(who);
        let Role::Sealer { done } = process.role else {
            return None;
        };
        if done >= self.config.seals {
            return None;
        }
        let spec = [Spec::Sealed, Spec::Unsealed][usize::from(done == 1)];
        let entry = self.tables.entry(spec);
        self.want(who, vec![entry]);
        Some(())
    }

    /// What whoever seals learns from the log.
    pub fn observe_seal(&mut self, who: u8, done: u8) {
        let sealed = self.tables.facts(self.copy(who).view).sealed;
        let done = done + u8::from(sealed == (done == 0));
        self.process(who).role = Role::Sealer {
            done: done.min(self.config.seals),
        };
    }
}

/// An object in words.
pub fn label(object: Object) -> String {
    let Object {
        producer,
        epoch,
        first,
        last,
        ..
    } = object;
    format!("p{producer}'s object {epoch}/{first}-{last}")
}
