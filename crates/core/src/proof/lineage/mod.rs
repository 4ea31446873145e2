//! Jobs as the log's records show them, closed ones included, and the lineage of a job: the newest attempt,
//! the one whose checkpoint it loaded, and so on up to the first.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ids::{AttemptId, AttemptNo, JobName, RequestId, Step, Version};
use crate::manifest::entry::{Inherited, Parent};
use crate::manifest::rules::Validity;
use crate::manifest::state::AttemptState;
use crate::manifest::{Entry, Folded};

/// An attempt and the steps that it passes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// The attempt as in its open record.
    pub state: AttemptState,
    /// The checkpoint of the parent stream that it started from.
    pub inherited: Option<Inherited>,
    /// The ranges quarantined at its open record: sorted, joined, half open.
    pub skips: Vec<Range<Step>>,
}

/// One incarnation of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    pub name: JobName,
    /// The version of its open record.
    pub opened: Version,
    /// First step that the job reads.
    pub start: Step,
    /// The version that closed it.
    pub closed: Option<Version>,
    /// Its attempts in order.
    pub attempts: Vec<AttemptRecord>,
}

impl JobRecord {
    /// An open job without attempts.
    fn new(name: JobName, opened: Version, start: Step) -> Self {
        Self {
            name,
            opened,
            start,
            closed: None,
            attempts: Vec::new(),
        }
    }
}

/// All jobs of a log, from its records folded one by one from the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    jobs: BTreeMap<(JobName, Version), JobRecord>,
    /// Quarantined steps, and the version that added each range.
    in_force: BTreeMap<RequestId, (Range<Step>, Version)>,
}

/// The part of a lineage that one attempt trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leg {
    pub attempt: AttemptNo,
    pub from: Step,
    /// The step at which the next attempt continued from a checkpoint; `None` for the newest.
    pub to: Option<Step>,
}

/// An attempt whose record does not match the attempt that it names as its parent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    /// Only a log that violates the rules can hold it.
    #[error(
        "lineage: attempt {attempt} names attempt {parent} as its parent, which the log does not \
         have before it"
    )]
    NoParent {
        attempt: AttemptNo,
        parent: AttemptNo,
    },
    /// It does not start at the checkpoint that it names.
    #[error(
        "lineage: attempt {attempt} starts at step {start}, but the checkpoint of attempt {parent} that \
         it names stands at step {step}: the steps between were trained twice or not at all"
    )]
    OtherStart {
        attempt: AttemptNo,
        start: Step,
        parent: AttemptNo,
        step: Step,
    },
    /// The parent can't have a checkpoint there: it began later.
    #[error(
        "lineage: attempt {attempt} starts from step {step} of attempt {parent}, which began at step \
         {began} only: it can't have a checkpoint there"
    )]
    BeforeParent {
        attempt: AttemptNo,
        parent: AttemptNo,
        step: Step,
        /// The first step of the parent.
        began: Step,
    },
    /// It has no parent and does not begin at the job's start.
    #[error(
        "lineage: attempt {attempt} starts at step {start} and names no checkpoint that it loaded, but \
         the job starts at step {job_start}: nothing says who trained the steps before"
    )]
    Rootless {
        attempt: AttemptNo,
        start: Step,
        job_start: Step,
    },
}

impl AttemptRecord {
    /// Returns the record of an attempt without a checkpoint of a parent stream.
    pub fn new(state: AttemptState, skips: Vec<Range<Step>>) -> Self {
        Self {
            state,
            inherited: None,
            skips,
        }
    }

    /// Returns whether the attempt passes over `step`.
    pub fn skips(&self, step: Step) -> bool {
        self.skips.iter().any(|range| range.contains(&step))
    }

    /// Returns the first step from `step` on that the attempt does not pass over.
    pub fn next_kept(&self, step: Step) -> Step {
        let over = self.skips.iter().find(|range| range.contains(&step));
        over.map_or(step, |range| range.end)
    }

    /// Returns the ranges of `steps` that the attempt passes over.
    pub fn skipped(&self, steps: Range<Step>) -> Vec<(Step, Step)> {
        let cut = |range: &Range<Step>| (range.start.max(steps.start), range.end.min(steps.end));
        let all = self.skips.iter().map(cut);
        all.filter(|(first, end)| first < end).collect()
    }
}

impl JobRecord {
    /// Returns the attempt of that number.
    pub fn attempt(&self, number: AttemptNo) -> Option<&AttemptRecord> {
        self.attempts.get(usize::try_from(number).ok()?)
    }

    /// Returns the legs of the newest attempt's lineage, the oldest first; none without attempts.
    pub fn lineage(&self) -> Result<Vec<Leg>, LineageError> {
        self.lineage_of(self.attempts.last())
    }

    /// Returns the legs of the lineage of one of its attempts, the oldest first.
    pub fn lineage_of(&self, last: Option<&AttemptRecord>) -> Result<Vec<Leg>, LineageError> {
        let mut legs = Vec::new();
        let mut at = last;
        let mut to = None;
        while let Some(record) = at {
            let AttemptState { number, start, .. } = record.state;
            legs.push(Leg {
                attempt: number,
                from: start,
                to,
            });
            let Some(parent) = record.state.parent else {
                if start != self.start && record.inherited.is_none() {
                    return Err(LineageError::Rootless {
                        attempt: number,
                        start,
                        job_start: self.start,
                    });
                }
                break;
            };
            at = Some(self.parent_of(&record.state, parent)?);
            to = Some(start);
        }
        legs.reverse();
        Ok(legs)
    }

    fn parent_of(&self, of: &AttemptState, named: Parent) -> Result<&AttemptRecord, LineageError> {
        let (attempt, start) = (of.number, of.start);
        let Parent {
            attempt: parent,
            step,
        } = named;
        let found = self
            .attempt(parent)
            .filter(|_| parent < attempt)
            .ok_or(LineageError::NoParent { attempt, parent })?;
        if step != start {
            return Err(LineageError::OtherStart {
                attempt,
                start,
                parent,
                step,
            });
        }
        let began = found.state.start;
        if step < began {
            return Err(LineageError::BeforeParent {
                attempt,
                parent,
                step,
                began,
            });
        }
        Ok(found)
    }
}

impl History {
    /// Applies the effects of the record of `version`.
    pub fn note(&mut self, version: Version, folded: &Folded) {
        let Some(record) = &folded.record else { return };
        for (entry, verdict) in record.entries.iter().zip(&folded.entries) {
            if matches!(verdict, Ok(Validity::Applies)) {
                self.apply(version, entry);
            }
        }
        let opens = |entry: &Entry| matches!(entry, Entry::AttemptOpened(_));
        if record.entries.iter().any(opens) {
            self.set_skips(version);
        }
    }

    /// Sets the ranges of the attempts that the record of `version` opened: those in force before it and
    /// still in force after it. Daemons do the same, since they know versions and no order within a record.
    fn set_skips(&mut self, version: Version) {
        let before = self.in_force.values().filter(|(_, added)| *added < version);
        let skips = joined(before.map(|(range, _)| range));
        let attempts = self.jobs.values_mut().flat_map(|job| &mut job.attempts);
        for attempt in attempts.filter(|attempt| attempt.state.opened == version) {
            attempt.skips.clone_from(&skips);
        }
    }

    fn apply(&mut self, version: Version, entry: &Entry) {
        match entry {
            Entry::JobOpened(e) => {
                let record = JobRecord::new(e.job.clone(), version, e.start);
                self.jobs.insert((e.job.clone(), version), record);
            }
            Entry::JobClosed(e) => {
                if let Some(job) = self.jobs.get_mut(&(e.job.clone(), e.opened)) {
                    job.closed = Some(version);
                }
            }
            Entry::AttemptOpened(e) => {
                if let Some(job) = self.jobs.get_mut(&(e.job.clone(), e.opened)) {
                    let number = job.attempts.len() as u64;
                    let state = AttemptState::opened_by(e, version, number);
                    job.attempts.push(AttemptRecord {
                        inherited: e.inherited,
                        ..AttemptRecord::new(state, Vec::new())
                    });
                }
            }
            Entry::Quarantined(e) => {
                let range = e.first..e.last.saturating_add(1);
                self.in_force.insert(e.request, (range, version));
            }
            Entry::QuarantineLifted(e) => _ = self.in_force.remove(&e.quarantine),
            _ => {}
        }
    }

    /// Returns all incarnations of all jobs, by name and opening.
    pub fn jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.values()
    }

    /// Returns the attempt of that id and number, with its job.
    pub fn attempt(
        &self,
        id: AttemptId,
        number: AttemptNo,
    ) -> Option<(&JobRecord, &AttemptRecord)> {
        let found = |job: &'_ JobRecord| job.attempt(number).is_some_and(|a| a.state.id == id);
        let job = self.jobs().find(|job| found(job))?;
        Some((job, job.attempt(number)?))
    }

    /// Returns the incarnation of a job that was opened at `opened`, or its newest.
    pub fn job(&self, name: &JobName, opened: Option<Version>) -> Option<&JobRecord> {
        let any = (name.clone(), 0)..=(name.clone(), Version::MAX);
        match opened {
            Some(opened) => self.jobs.get(&(name.clone(), opened)),
            None => self.jobs.range(any).next_back().map(|(_, job)| job),
        }
    }
}

/// Sorts ranges and joins neighbours and overlaps.
fn joined<'r>(ranges: impl Iterator<Item = &'r Range<Step>>) -> Vec<Range<Step>> {
    let mut sorted: Vec<_> = ranges.cloned().collect();
    sorted.sort_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<Step>> = Vec::new();
    for range in sorted {
        match joined.last_mut().filter(|last| last.end >= range.start) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests;
