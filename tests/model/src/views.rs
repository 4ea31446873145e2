//! A separate small model: the behaviour of readers when two folds of one log differ.
//!
//! A record carries its writer's view: a hash over the writer's results for every earlier record. Here
//! a view is the list of those results itself. A process can be poisoned (its memory gives wrong
//! results until it opens again) or skewed (another program version always folds one record
//! differently). The rules under test:
//! - a record with another view is never void by itself: its reader opens again from older snapshots,
//!   at last from version 0, and stops when the record still does not fit;
//! - a repair voids a record only for a fold that cannot apply it;
//! - every reader polls for repairs below its head and opens again;
//! - a snapshot is published only when a fold by fresh reads gives the same state.

use crate::checker::{Rest, System};
use crate::property::{Broken, Property};

/// Versions of a run.
const VERSIONS: u8 = 3;
/// Processes of a run.
const PROCESSES: usize = 3;
/// The record that a skewed process folds differently.
const SKEWED_AT: u8 = 1;

/// A rule that can be removed, to show that the model needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A record with another view is void instead of stopping its reader.
    VoidOtherViews,
    /// A reader that meets another view stops without folding again.
    NoDoubt,
    /// A reader that folds again tries only the newest snapshot.
    NewestOnly,
    /// Readers do not poll for repairs below their heads.
    NoLook,
    /// Snapshots are published without a second fold.
    NoConfirm,
    /// A repair voids its record also for folds that can apply it.
    RepairAnything,
}

/// The processes of a run, and the removed rule.
#[derive(Debug, Clone, Copy)]
pub struct Views {
    /// How many times a process may be poisoned.
    pub poisonings: u8,
    pub skewed: bool,
    pub mistake: Option<Mistake>,
}

/// The results by version, two bits each.
type View = u16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Taken = 1,
    Void = 2,
    Wrong = 3,
}

fn with(view: View, version: u8, verdict: Verdict) -> View {
    view | (verdict as View) << (2 * version)
}

fn below(view: View, version: u8) -> View {
    view & ((1 << (2 * version)) - 1)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Fold {
    next: u8,
    view: View,
    poisoned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Process {
    fold: Fold,
    /// The snapshot from which the fold began; 0 is the beginning.
    base: u8,
    stopped: bool,
    /// The repairs that existed when it stopped, by version.
    seen: u8,
    /// The repairs for which it has folded again.
    heeded: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Record {
    writer: u8,
    view: View,
}

/// A state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Moment {
    log: [Option<Record>; VERSIONS as usize],
    snapshots: [Option<Fold>; VERSIONS as usize + 1],
    repairs: u8,
    processes: [Process; PROCESSES],
    poisonings: u8,
    /// A person repaired, for a skewed process, a record that sound folds apply.
    misled: bool,
}

/// A possible event. The flag says whether a poisoned fold gives the wrong result this time.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// A process commits at its next version.
    Put(usize, bool),
    /// A process reads its next version.
    Read(usize, bool),
    /// A process polls for repairs below its head.
    Look(usize),
    /// A process is poisoned.
    Poison(usize),
    /// A process stores a snapshot at its head.
    Publish(usize),
    /// A person repairs the record at which a process stopped, right or wrong.
    Repair(usize),
}

impl Views {
    fn without(self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn is_skewed(self, process: usize) -> bool {
        self.skewed && process == PROCESSES - 1
    }

    /// Returns the result for the next record, or none when the fold cannot apply it.
    fn take(self, fold: Fold, m: &Moment, skewed: bool, wrong: bool) -> Option<Verdict> {
        let record = m.log[usize::from(fold.next)]?;
        let repaired = m.repairs >> fold.next & 1 == 1;
        if repaired && self.without(Mistake::RepairAnything) {
            return Some(Verdict::Void);
        }
        if record.view == fold.view {
            let errs = (fold.poisoned && wrong) || (skewed && fold.next == SKEWED_AT);
            return Some(if errs { Verdict::Wrong } else { Verdict::Taken });
        }
        let void = repaired || self.without(Mistake::VoidOtherViews);
        void.then_some(Verdict::Void)
    }

    fn fold(self, fold: Fold, m: &Moment, skewed: bool, wrong: bool) -> Option<Fold> {
        let verdict = self.take(fold, m, skewed, wrong)?;
        let view = with(fold.view, fold.next, verdict);
        let next = fold.next + 1;
        Some(Fold { next, view, ..fold })
    }

    /// Folds by fresh reads from the snapshot at `base` up to `to`, or to the record that stops it.
    fn fresh(self, m: &Moment, base: u8, to: u8, skewed: bool) -> Option<Fold> {
        let mut fold = match base {
            0 => Fold::default(),
            base => m.snapshots[usize::from(base)]?,
        };
        while fold.next < to {
            match self.fold(fold, m, skewed, true) {
                Some(further) => fold = further,
                None => break,
            }
        }
        Some(fold)
    }

    /// Opens again from snapshots older than `base`, one after another, until the fold reaches
    /// `to`.
    fn reopen(self, m: &Moment, process: usize, base: u8, to: u8) -> Option<(Fold, u8)> {
        if self.without(Mistake::NoDoubt) {
            return None;
        }
        let skewed = self.is_skewed(process);
        let mut starts = (0..base.max(1)).rev();
        if self.without(Mistake::NewestOnly) {
            let newest = (0..=VERSIONS)
                .rev()
                .find(|v| *v == 0 || m.snapshots[usize::from(*v)].is_some());
            return newest
                .and_then(|base| Some((self.fresh(m, base, to, skewed)?, base)))
                .filter(|(fold, _)| fold.next >= to);
        }
        starts.find_map(|base| {
            let fold = self.fresh(m, base, to, skewed)?;
            (fold.next >= to).then_some((fold, base))
        })
    }

    /// Returns a sound fold of the log from the beginning, as far as it gets.
    fn truth(self, m: &Moment) -> Fold {
        self.fresh(m, 0, VERSIONS, false).unwrap_or_default()
    }

    fn read(self, m: &mut Moment, p: usize, wrong: bool) -> Option<()> {
        let process = m.processes[p];
        if process.stopped && process.seen == m.repairs {
            return None;
        }
        m.log.get(usize::from(process.fold.next))?.as_ref()?;
        let further = self.fold(process.fold, m, self.is_skewed(p), wrong);
        let (fold, base, stopped) = match further {
            Some(fold) => (fold, process.base, false),
            None => match self.reopen(m, p, process.base, process.fold.next + 1) {
                Some((fold, base)) => (fold, base, false),
                None => (process.fold, process.base, true),
            },
        };
        m.processes[p] = Process {
            fold,
            base,
            stopped,
            seen: if stopped { m.repairs } else { 0 },
            heeded: process.heeded,
        };
        Some(())
    }

    fn put(self, m: &mut Moment, p: usize, wrong: bool) -> Option<()> {
        let Process { fold, stopped, .. } = m.processes[p];
        let place = m.log.get_mut(usize::from(fold.next))?;
        if stopped || place.is_some() {
            return None;
        }
        let (writer, view) = (p as u8, fold.view);
        *place = Some(Record { writer, view });
        m.processes[p].fold = self.fold(fold, m, self.is_skewed(p), wrong)?;
        Some(())
    }

    fn look(self, m: &mut Moment, p: usize) -> Option<()> {
        let process = m.processes[p];
        let knows = |at: u8| process.fold.view >> (2 * at) & 3 == Verdict::Void as View;
        let new = (0..process.fold.next)
            .filter(|&at| m.repairs >> at & 1 == 1 && !knows(at))
            .fold(0, |new, at| new | 1 << at)
            & !process.heeded;
        if new == 0 || self.without(Mistake::NoLook) {
            return None;
        }
        let first = new.trailing_zeros() as u8;
        let skewed = self.is_skewed(p);
        // The newest start before the repair whose fold applies it, else the one that gets
        // furthest, at last 0.
        let heeds = |fold: &Fold| {
            fold.next >= process.fold.next && fold.view >> (2 * first) & 3 == Verdict::Void as View
        };
        let folds: Vec<_> = (0..=first)
            .rev()
            .filter_map(|base| Some((self.fresh(m, base, process.fold.next, skewed)?, base)))
            .collect();
        let heeding = folds.iter().find(|(fold, _)| heeds(fold));
        let &(fold, base) = heeding.or(folds.iter().max_by_key(|(fold, _)| fold.next))?;
        m.processes[p] = Process {
            fold,
            base,
            heeded: m.repairs,
            ..Process::default()
        };
        Some(())
    }

    fn publish(self, m: &mut Moment, p: usize) -> Option<()> {
        let Process {
            fold,
            base,
            stopped,
            ..
        } = m.processes[p];
        let place = usize::from(fold.next);
        if stopped || fold.next == 0 || m.snapshots[place].is_some() {
            return None;
        }
        if !self.without(Mistake::NoConfirm) {
            let skewed = self.is_skewed(p);
            let older = (0..base.max(1))
                .rev()
                .find(|v| *v == 0 || m.snapshots[usize::from(*v)].is_some());
            let other = self.fresh(m, older?, fold.next, skewed)?;
            if other != fold {
                // It cannot continue with its own fold.
                return Self::restart(m, p);
            }
        }
        m.snapshots[place] = Some(fold);
        Some(())
    }

    fn restart(m: &mut Moment, p: usize) -> Option<()> {
        let newest = (1..=VERSIONS)
            .rev()
            .find(|v| m.snapshots[usize::from(*v)].is_some());
        let base = newest.unwrap_or(0);
        let fold = m.snapshots[usize::from(base)].unwrap_or_default();
        let after = Process {
            fold,
            base,
            ..Process::default()
        };
        (after != m.processes[p]).then(|| m.processes[p] = after)
    }

    fn repair(self, m: &mut Moment, p: usize) -> Option<()> {
        let Process { fold, stopped, .. } = m.processes[p];
        let new = m.repairs | 1 << fold.next;
        if !stopped || new == m.repairs {
            return None;
        }
        m.misled |= self.is_skewed(p) && self.truth(m).next > fold.next;
        m.repairs = new;
        Some(())
    }

    fn check(self, before: &Moment, m: &Moment) -> Option<Broken> {
        let truth = self.truth(m);
        let kept = below(truth.view, self.truth(before).next) == self.truth(before).view;
        if !kept {
            let detail = "what sound folds have taken has another meaning now".to_owned();
            return Some(Broken::new(Property::Acknowledged, detail));
        }
        let wrong = |v: &Fold| v.poisoned || (0..v.next).any(|at| v.view >> (2 * at) & 3 == 3);
        let bad = m.snapshots.iter().flatten().find(|fold| wrong(fold));
        (bad.is_some() && !self.skewed)
            .then(|| Broken::new(Property::Fold, "a poisoned state was published".to_owned()))
    }

    /// Returns true if every sound process has the whole log and agrees on all but the last record,
    /// which no later record confirms yet; nor a snapshot behind it. A repair of a record that
    /// sound folds apply can mislead a reader that began with a skewed snapshot up to the next
    /// record, so a run with such a repair need not settle.
    fn is_settled(self, m: &Moment) -> bool {
        let truth = self.truth(m);
        if m.misled {
            return true;
        }
        let mut sound = (0..PROCESSES)
            .filter(|p| !self.is_skewed(*p))
            .map(|p| m.processes[p]);
        truth.next == VERSIONS
            && sound.all(|p| {
                let behind_all = p.base == VERSIONS;
                let same = below(p.fold.view, VERSIONS - 1) == below(truth.view, VERSIONS - 1);
                p.fold.next == VERSIONS && !p.stopped && (same || behind_all)
            })
    }
}

impl System for Views {
    type State = Moment;
    type Action = Step;

    fn first(&mut self) -> Moment {
        Moment {
            poisonings: self.poisonings,
            ..Moment::default()
        }
    }

    fn actions(&self, m: &Moment, into: &mut Vec<Step>) {
        for p in 0..PROCESSES {
            into.extend([Step::Read(p, false), Step::Put(p, false), Step::Look(p)]);
            if m.processes[p].fold.poisoned {
                into.extend([Step::Read(p, true), Step::Put(p, true)]);
            }
            into.extend([Step::Publish(p), Step::Poison(p), Step::Repair(p)]);
        }
    }

    fn next(&mut self, before: &Moment, step: Step) -> Option<(Moment, Option<Broken>)> {
        let mut m = *before;
        match step {
            Step::Put(p, wrong) => self.put(&mut m, p, wrong)?,
            Step::Read(p, wrong) => self.read(&mut m, p, wrong)?,
            Step::Look(p) => self.look(&mut m, p)?,
            Step::Poison(p) => {
                m.poisonings = m.poisonings.checked_sub(1)?;
                m.processes[p].fold.poisoned = true;
            }
            Step::Publish(p) => self.publish(&mut m, p)?,
            Step::Repair(p) => self.repair(&mut m, p)?,
        }
        let broken = self.check(before, &m);
        Some((m, broken))
    }

    fn at_rest(&self, m: &Moment) -> Rest {
        if self.is_settled(m) {
            Rest::Complete
        } else {
            Rest::Wanting
        }
    }

    fn describe(&self, _: &Moment, step: Step) -> String {
        format!("{step:?}")
    }
}

#[cfg(test)]
mod tests;
