//! The marks and progress of an attempt, from the key names in LISTs alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::guards;
use crate::ids::{AttemptNo, Step};
use crate::keys;
use crate::manifest::state::AttemptState;

/// The marks, progress and heartbeats of an attempt. Foreign, future (above the head) and out-of-mesh names
/// are ignored and counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttemptObjects {
    /// Marks of single coordinates, by step.
    pub marks: BTreeMap<Step, BTreeSet<u32>>,
    /// Steps that one rank has marked for all coordinates.
    pub for_all: BTreeSet<Step>,
    /// The newest progress of each coordinate that has any.
    pub progress: BTreeMap<u32, Step>,
    /// The newest heartbeat of each node that has ranks connected; only of jobs with a lease.
    pub alive: BTreeMap<String, u64>,
    /// Number of ignored names.
    pub ignored: u64,
}

/// The objects of a job's attempts.
pub type JobObjects = BTreeMap<AttemptNo, AttemptObjects>;

impl AttemptObjects {
    /// Adds one key of the attempt's folder.
    pub fn note(&mut self, key: &str, dp_size: u32, head: Step) {
        let known = self.note_mark(key, dp_size, head)
            || self.note_progress(key, dp_size, head)
            || self.note_alive(key);
        self.ignored += u64::from(!known);
    }

    fn note_alive(&mut self, key: &str) -> bool {
        let Some(alive) = keys::parse_alive(key) else {
            return false;
        };
        let newest = self.alive.entry(alive.node).or_default();
        *newest = alive.beat.max(*newest);
        true
    }

    fn note_mark(&mut self, key: &str, dp_size: u32, head: Step) -> bool {
        let Some(mark) = keys::parse_mark(key).filter(|mark| mark.step <= head) else {
            return false;
        };
        match mark.coordinate {
            None => self.for_all.insert(mark.step),
            Some(at) if at < dp_size => self.marks.entry(mark.step).or_default().insert(at),
            Some(_) => return false,
        };
        true
    }

    fn note_progress(&mut self, key: &str, dp_size: u32, head: Step) -> bool {
        let progress = keys::parse_progress(key);
        let Some(progress) = progress.filter(|p| p.step <= head && p.last < dp_size) else {
            return false;
        };
        for at in progress.first..=progress.last {
            let newest = self.progress.entry(at).or_default();
            *newest = progress.step.max(*newest);
        }
        true
    }

    /// Returns the steps that all coordinates, or one rank for all, have marked.
    pub fn complete_marks(&self, dp_size: u32) -> BTreeSet<Step> {
        let enough = if guards::counts_incomplete_marks() {
            1
        } else {
            dp_size as usize
        };
        let by_each = self
            .marks
            .iter()
            .filter(|(_, made)| made.len() >= enough)
            .map(|(step, _)| *step);
        by_each.chain(self.for_all.iter().copied()).collect()
    }

    /// Returns the marks that some coordinates have not made, with these coordinates.
    pub fn incomplete(&self, dp_size: u32) -> Vec<(Step, Vec<u32>)> {
        let complete = self.complete_marks(dp_size);
        let open = self.marks.iter().filter(|(s, _)| !complete.contains(s));
        let missing = |made: &BTreeSet<u32>| (0..dp_size).filter(|at| !made.contains(at)).collect();
        open.map(|(step, made)| (*step, missing(made))).collect()
    }

    /// Returns the first step that some coordinate has not received: the least of their newest progress, or
    /// the attempt's start without any.
    pub fn position(&self, attempt: &AttemptState) -> Step {
        let newest = |at| self.progress.get(&at).copied().unwrap_or_default();
        let least = (0..attempt.dp_size).map(newest).min();
        least.unwrap_or_default().max(attempt.start)
    }
}
