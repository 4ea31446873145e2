//! The checkpoints that a trainer knows and restarts from: the rule of docs/protocol.md on restart
//! points, for a trainer that sees its whole run.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::ids::{AttemptId, AttemptNo, Step};

/// The attempts and marks of one incarnation.
#[derive(Debug, Default)]
pub(super) struct RestartPoints {
    /// The first step of the incarnation.
    from: Step,
    starts: BTreeMap<AttemptNo, (Step, u32, AttemptId)>,
    marks: BTreeMap<(AttemptNo, Step), BTreeSet<u32>>,
}

impl RestartPoints {
    /// Creates the state of an incarnation that begins at `from`.
    pub(super) fn at(from: Step) -> Self {
        Self {
            from,
            ..Self::default()
        }
    }

    /// Adds an open attempt.
    pub(super) fn opened(&mut self, attempt: AttemptNo, made: (Step, u32, AttemptId)) {
        self.starts.insert(attempt, made);
    }

    /// Adds a stored mark; `None` counts for all coordinates.
    pub(super) fn marked(&mut self, attempt: AttemptNo, step: Step, coordinate: Option<u32>) {
        let made = self.marks.entry((attempt, step)).or_default();
        match (coordinate, self.starts.get(&attempt)) {
            (Some(coordinate), _) => drop(made.insert(coordinate)),
            (None, Some((_, dp_size, _))) => made.extend(0..*dp_size),
            (None, None) => {}
        }
    }

    /// Returns the restart points in order.
    pub(super) fn points(&self) -> BTreeSet<Step> {
        let mut points = BTreeSet::new();
        for (&attempt, &(start, dp_size, _)) in &self.starts {
            let later = self
                .starts
                .range(attempt + 1..)
                .map(|(_, (start, ..))| *start);
            let top = later.min().unwrap_or(Step::MAX);
            let marks = self.marks.range((attempt, 0)..(attempt + 1, 0));
            let whole = marks.filter(|(_, made)| made.len() == dp_size as usize);
            let all = whole.map(|((_, step), _)| *step).chain([start]);
            points.extend(all.filter(|step| *step <= top));
        }
        if points.is_empty() {
            points.insert(self.from);
        }
        points
    }

    /// Returns the attempt whose checkpoint at `step` is loaded.
    pub(super) fn attempt_of(&self, step: Step) -> Option<(AttemptNo, AttemptId)> {
        let marked = self.marks.keys().rev().find(|(_, at)| *at == step);
        let started = self
            .starts
            .iter()
            .rev()
            .find(|(_, (start, ..))| *start == step);
        let attempt = marked
            .map(|(attempt, _)| *attempt)
            .or(started.map(|(attempt, _)| *attempt))?;
        let (.., id) = self.starts.get(&attempt)?;
        Some((attempt, *id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_attempt_went_back_behind_does_not_count() {
        let mut memory = RestartPoints::default();
        memory.opened(0, (0, 2, AttemptId([1; 16])));
        memory.marked(0, 10, Some(0));
        memory.marked(0, 10, Some(1));
        memory.marked(0, 20, Some(0));
        assert_eq!(
            memory.points(),
            BTreeSet::from([0, 10]),
            "20 is not complete"
        );
        memory.marked(0, 20, Some(1));
        memory.opened(1, (10, 1, AttemptId([2; 16])));
        assert_eq!(memory.points(), BTreeSet::from([0, 10]));
        memory.marked(1, 30, None);
        assert_eq!(memory.points(), BTreeSet::from([0, 10, 30]));
        assert_eq!(memory.attempt_of(30), Some((1, AttemptId([2; 16]))));
    }
}
