//! Reclaimers: the watermark from restart points, its publication, and passes that delete.
//!
//! With all guards a reclaimer uses the product's own rules. Without one of them it uses the model's
//! copy of the rules without that one.

use std::collections::BTreeSet;

use crate::facts::{Facts, Job};
use crate::guard::Guard;
use crate::numbers::{EntryNo, Node};
use crate::property::Property;
use crate::spec::{HeldJob, Object, Spec};
use crate::state::MarksAndProgress;
use crate::state::{Reclaimer, Role, Stage};
use crate::turn::Turn;

impl Turn<'_> {
    /// Returns the watermark that is due by a fold, if it may grow.
    fn due(&mut self, view: Node) -> Option<u8> {
        let stored = MarksAndProgress::from_state(&self.state);
        if !self.without.is_some_and(Guard::is_of_floor) {
            return self.tables.due(view, stored);
        }
        let facts = self.tables.facts(view);
        let open = facts.jobs.iter().filter(|job| job.open);
        let heeded = if self.keeps(Guard::AllJobs) { 2 } else { 1 };
        let keeps = self.config.keep;
        let floors = open
            .zip(keeps)
            .take(heeded)
            .map(|(job, keep)| self.floor(job, keep, &stored));
        // Having no floor counts as the lowest one.
        let step = floors.min()??.min(facts.next_step);
        (step > facts.watermark).then_some(step)
    }

    /// Returns a job's floor by the rules of protocol.md without the removed one.
    fn floor(&self, job: &Job, keep: u8, stored: &MarksAndProgress) -> Option<u8> {
        let &(newest, start) = job.attempts.last()?;
        let mut points = BTreeSet::new();
        for (at, &(trainer, start)) in job.attempts.iter().enumerate() {
            if trainer != newest && !self.keeps(Guard::EarlierAttempts) {
                continue;
            }
            let later = job.attempts[at + 1..].iter().map(|&(_, start)| start);
            let top = later.min().filter(|_| self.keeps(Guard::DropAbandoned));
            let marks = self.complete(trainer, stored).chain([start]);
            points.extend(marks.filter(|&step| step <= top.unwrap_or(u8::MAX)));
        }
        if !self.keeps(Guard::OwnIncarnation) {
            let past = job.past.iter();
            points.extend(past.flat_map(|&(trainer, _)| self.complete(trainer, stored)));
        }
        let lax = !self.keeps(Guard::FewerHold) || !self.keeps(Guard::EarlierAttempts);
        let kept = match points.len().checked_sub(usize::from(keep)) {
            None if lax => points.first().copied()?,
            enough => points.into_iter().nth(enough?)?,
        };
        let at = &stored.at[usize::from(newest)][..usize::from(self.config.coordinates)];
        let position = at.iter().copied().min().unwrap_or_default().max(start);
        if self.keeps(Guard::HeedProgress) {
            Some(kept.min(position))
        } else {
            Some(kept)
        }
    }

    /// Returns the complete marks of a trainer's attempt.
    fn complete(&self, trainer: u8, stored: &MarksAndProgress) -> impl Iterator<Item = u8> + use<> {
        let marking = if self.config.rank0 {
            1
        } else {
            self.config.coordinates
        };
        let (stored, all) = (*stored, self.keeps(Guard::CompleteMarks));
        (0..4).filter(move |&step| {
            let mut made = (0..marking).map(|at| stored.marked(trainer, at, step));
            if all {
                made.all(|made| made)
            } else {
                made.any(|made| made)
            }
        })
    }

    /// Folds, reads the marks and asks for a watermark.
    pub fn compute(&mut self, pid: u8) -> Option<()> {
        self.refresh(pid);
        let view = self.copy(pid).view;
        let step = self.due(view)?;
        if self.keeps(Guard::PublishFirst) {
            let jobs = held(self.tables.facts(view));
            self.publish(pid, step, jobs, None);
        } else {
            self.process(pid).role = Role::Reclaimer(Reclaimer {
                deletes: true,
                step,
                second: view,
            });
        }
        Some(())
    }

    /// Commits a person's watermark at a step.
    pub fn request_watermark(&mut self, pid: u8, step: u8) -> Option<()> {
        self.refresh(pid);
        let process = self.copy(pid);
        let Role::Person { left } = process.role else {
            return None;
        };
        let stored = MarksAndProgress::from_state(&self.state);
        let facts = self.tables.facts(process.view);
        let (jobs, higher) = (held(facts), step > facts.watermark);
        let heeds = self.keeps(Guard::HeedAsked);
        let allowed = if heeds {
            self.tables.asked(process.view, stored, step)
        } else {
            higher
        };
        if left == 0 || !allowed {
            return None;
        }
        self.process(pid).role = Role::Person { left: left - 1 };
        self.publish(pid, step, jobs, Some(left));
        Some(())
    }

    fn publish(&mut self, pid: u8, step: u8, jobs: Jobs, asked: Option<u8>) {
        let view = self.copy(pid).view;
        let entry = self.tables.entry(Spec::Watermark { step, jobs, asked });
        let validity = self.tables.validate(view, &[entry]).first().cloned();
        let lax = self.without.is_some_and(Guard::is_of_fold);
        if let Some(Err(void)) = validity.filter(|_| !lax) {
            self.breaks(Property::NoSurprise, format!("watermark {step}: {void}"));
        }
        self.want(pid, vec![entry]);
    }

    /// Returns true if a reclaimer that lost a version continues with its older computation.
    pub fn insists(&self) -> bool {
        [Guard::RereadMarks, Guard::FoldGrows, Guard::FoldLists]
            .iter()
            .any(|&guard| !self.keeps(guard))
    }

    /// Without a guard: publishes the step computed before a version was lost.
    pub fn insist(&mut self, pid: u8, entries: &[EntryNo]) {
        let facts = self.tables.facts(self.copy(pid).view);
        let (watermark, current) = (facts.watermark, held(facts));
        for &entry in entries {
            if let Spec::Watermark { step, jobs, asked } = self.tables.spec(entry) {
                let listed = jobs;
                let jobs = if self.keeps(Guard::FoldLists) {
                    current
                } else {
                    listed
                };
                let again = if self.keeps(Guard::FoldGrows) {
                    step > watermark
                } else {
                    step < watermark && listed == current
                };
                if again {
                    self.publish(pid, step, jobs, asked);
                }
            }
        }
    }

    /// Begins a pass by the reclaimer's fold.
    pub fn pass(&mut self, pid: u8) -> Option<()> {
        if self.keeps(Guard::OneFold) {
            self.refresh(pid);
        }
        let view = self.copy(pid).view;
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
        let known = self.tables.objects().len() as u8;
        let there = self.state.objects;
        let objects = (0..known)
            .filter(|bit| there >> bit & 1 == 1)
            .any(|bit| self.may_delete(view, reclaimer, bit));
        if !objects && self.dead_marks(view) == 0 {
            return None;
        }
        self.process(pid).role = Role::Reclaimer(reclaimer);
        Some(())
    }

    /// An unreferenced object may go when its epoch is over or its sequence number has passed.
    /// Another may go when no record names it at or above the watermark or for a turn to come.
    fn may_delete(&mut self, view: Node, reclaimer: Reclaimer, bit: u8) -> bool {
        if !self.without.is_some_and(Guard::is_of_deletion) {
            return self.tables.is_dead(view, bit);
        }
        let object = self.tables.objects()[usize::from(bit)];
        let (names, lives) = (self.tables.facts(view), self.tables.facts(reclaimer.second));
        let name = lives.names[usize::from(object.producer)];
        let over = object.epoch < name.epoch || name.finished || object.last < name.next;
        let watermark = names.watermark.max(reclaimer.step);
        let spare_waiting = self.keeps(Guard::SpareWaiting);
        let mut named = names.tgbs.iter().filter(|tgb| tgb.object == object);
        let needed = |tgb: &crate::facts::Placed| {
            let at = tgb.step;
            at.map_or(spare_waiting, |step| step >= watermark)
        };
        let kept = if self.keeps(Guard::SpareShared) {
            named.any(needed)
        } else {
            named.clone().count() > 0 && named.all(needed)
        };
        (over || !self.keeps(Guard::SpareUncommitted)) && !kept
    }

    /// Deletes an object, if the rules allow it.
    pub fn delete(&mut self, pid: u8, bit: u8) -> Option<()> {
        let process = self.copy(pid);
        let Role::Reclaimer(reclaimer) = process.role else {
            return None;
        };
        if !self.may_delete(process.view, reclaimer, bit) {
            return None;
        }
        let object = self.tables.objects()[usize::from(bit)];
        self.state.objects &= !(1 << bit);
        let name = self.tables.facts(self.state.head).names[usize::from(object.producer)];
        self.check_data();
        if object.epoch == name.epoch && object.first >= name.next && self.lives(object) {
            let detail = format!("{} is deleted before its commit", label(object));
            self.breaks(Property::FutureData, detail);
        }
        Some(())
    }

    /// Returns the marks that the product deletes by this fold.
    fn dead_marks(&mut self, view: Node) -> u32 {
        if self.config.drops_marks {
            self.tables
                .dead_marks(view, MarksAndProgress::from_state(&self.state))
        } else {
            0
        }
    }

    /// Deletes all marks that the pass deletes.
    pub fn drop_marks(&mut self, pid: u8) -> Option<()> {
        let dead = self.dead_marks(self.copy(pid).view);
        self.state.marks &= !dead;
        (dead != 0).then_some(())
    }

    /// Checks that the data of all TGBs at or above the watermark, or waiting for a turn, exists.
    pub fn check_data(&mut self) {
        let head = self.tables.facts(self.state.head);
        let watermark = head.watermark;
        let needed = |step: Option<u8>| step.is_none_or(|step| step >= watermark);
        let tgbs = head.tgbs.iter().filter(|tgb| needed(tgb.step));
        let objects: BTreeSet<_> = tgbs.map(|tgb| tgb.object).collect();
        for object in objects {
            let bit = self.tables.object(object);
            if self.state.objects >> bit & 1 == 0 {
                let detail = format!("{} is gone, the watermark is {watermark}", label(object));
                self.breaks(Property::LiveData, detail);
            }
        }
    }

    /// Returns true if the instance that made an object is alive.
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

    /// Ends the pass, or interrupts it.
    pub fn end_pass(&mut self, pid: u8) {
        self.process(pid).role = Role::Reclaimer(Reclaimer::default());
    }
}

type Jobs = [Option<HeldJob>; crate::spec::JOBS_MAX];

/// Returns the list of jobs in a watermark.
fn held(facts: &Facts) -> Jobs {
    [0, 1].map(|at| {
        let job = &facts.jobs[at];
        let attempt = (job.attempts.len() as u8).checked_sub(1);
        let opened = job.opened;
        job.open.then_some(HeldJob { opened, attempt })
    })
}

/// Returns an object in words.
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
