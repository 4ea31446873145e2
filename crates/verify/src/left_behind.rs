//! Attempts that gave checkpoints up: they state no checkpoint and start below a restart point of the job. The log
//! does not tell whether that was meant, so it is a warning and changes no verdict. Pure.

use std::collections::BTreeMap;

use batchweave_core::ids::{AttemptNo, Step};
use batchweave_core::proof::{AttemptRecord, JobRecord};
use serde::Serialize;

use crate::listing::JobListing;

/// An attempt that left checkpoints behind, and the newest of them.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LeftBehind {
    pub(crate) attempt: AttemptNo,
    pub(crate) start: Step,
    /// The newest restart point before it.
    pub(crate) checkpoint: Step,
    /// The attempt that made it.
    pub(crate) of: AttemptNo,
}

impl LeftBehind {
    /// Returns all such attempts of a job, by the marks that are still stored.
    pub(crate) fn all(record: &JobRecord, listed: &JobListing) -> Vec<Self> {
        let marks = |attempt: &AttemptRecord| listed.complete_marks(attempt);
        Self::of_attempts(&record.attempts, marks)
    }

    fn of_attempts(
        attempts: &[AttemptRecord],
        marks: impl Fn(&AttemptRecord) -> Vec<Step>,
    ) -> Vec<Self> {
        let mut left = Vec::new();
        // The complete marks from which the job can restart, and their attempts.
        let mut points: BTreeMap<Step, AttemptNo> = BTreeMap::new();
        for attempt in attempts {
            let state = &attempt.state;
            let unstated = state.parent.is_none() && attempt.inherited.is_none();
            let newest = points.last_key_value().filter(|_| unstated);
            if let Some((checkpoint, of)) = newest.filter(|(step, _)| **step > state.start) {
                left.push(Self {
                    attempt: state.number,
                    start: state.start,
                    checkpoint: *checkpoint,
                    of: *of,
                });
            }
            points.retain(|step, _| *step <= state.start);
            let own = marks(attempt).into_iter();
            points.extend(
                own.filter(|step| *step >= state.start)
                    .map(|step| (step, state.number)),
            );
        }
        left
    }

    pub(crate) fn text(&self) -> String {
        let Self {
            attempt,
            start,
            checkpoint,
            of,
        } = self;
        format!(
            "warning: attempt {attempt} began at step {start} without a checkpoint, although attempt {of} had one \
             at step {checkpoint}: the model lacks the steps before that checkpoint; if that was not meant, pass \
             the saved state to connect()\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::ids::AttemptId;
    use batchweave_core::manifest::entry::Parent;
    use batchweave_core::manifest::state::AttemptState;

    use super::*;

    type Attempt<'a> = (Step, Option<(AttemptNo, Step)>, &'a [Step]);

    /// Returns attempt, start and checkpoint of each attempt that left one behind.
    fn left(history: &[Attempt<'_>]) -> Vec<(AttemptNo, Step, Step)> {
        let attempts: Vec<_> = (0_u64..)
            .zip(history)
            .map(|(number, (start, parent, _))| AttemptRecord {
                state: AttemptState {
                    number,
                    id: AttemptId([1; 16]),
                    opened: number,
                    parent: parent.map(|(attempt, step)| Parent { attempt, step }),
                    start: *start,
                    dp_size: 1,
                    mesh: Vec::new(),
                    head: None,
                },
                inherited: None,
                skips: Vec::new(),
            })
            .collect();
        let marks = |a: &AttemptRecord| history[a.state.number as usize].2.to_vec();
        let left = LeftBehind::of_attempts(&attempts, marks);
        left.iter()
            .map(|l| (l.attempt, l.start, l.checkpoint))
            .collect()
    }

    #[test]
    fn only_an_attempt_without_a_checkpoint_below_one_is_found() {
        let first: Attempt<'_> = (0, None, &[10, 20]);
        assert_eq!(left(&[first]), []);
        assert_eq!(left(&[first, (0, None, &[])]), [(1, 0, 20)]);
        // A return to an older checkpoint is stated.
        assert_eq!(left(&[first, (10, Some((0, 10)), &[])]), []);
        assert_eq!(
            left(&[first, (20, Some((0, 20)), &[30]), (0, None, &[])]),
            [(2, 0, 30)]
        );
        // What was left behind once is not left behind again.
        assert_eq!(left(&[first, (0, None, &[]), (0, None, &[])]), [(1, 0, 20)]);
        assert_eq!(left(&[(0, None, &[]), (0, None, &[])]), []);
    }
}
