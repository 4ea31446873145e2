//! Detection of ranks that have received steps which the log does not contain, since the log was replaced
//! while they read. Pure.

use std::collections::{BTreeSet, VecDeque};

use batchweave_core::ids::{AttemptId, JobName, Step};
use batchweave_core::tgb::Digest;
use batchweave_wire::{ErrorName, Fault, Hello, Mode};

use crate::quarantine::QuarantineRanges;
use crate::stream_head::Head;

/// Most digests in the history.
const HISTORY_MAX: usize = 4096;

/// The digests of the batches that were located last.
#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<(Step, Digest)>);

impl History {
    /// Remembers the batch that the log has at `step`.
    pub(crate) fn note(&mut self, step: Step, digest: Digest) {
        if self.0.back() == Some(&(step, digest)) {
            return;
        }
        if self.0.len() == HISTORY_MAX {
            self.0.pop_front();
        }
        self.0.push_back((step, digest));
    }

    /// Returns all remembered steps and digests.
    pub(crate) fn all(&self) -> Vec<(Step, Digest)> {
        self.0.iter().copied().collect()
    }

    /// Forgets the digests of steps.
    pub(crate) fn forget(&mut self, steps: &BTreeSet<Step>) {
        self.0.retain(|(step, _)| !steps.contains(step));
    }
}

/// The evidence for a rank's position. Of equal positions the one with the last variant is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Witness {
    /// A mark or progress object of its attempt.
    Stored,
    /// The checkpoint from which it starts.
    Checkpoint,
    /// The deliveries that this daemon reported to the ledger.
    Ledger,
    /// The steps that it was sent, or claims to have received.
    Position,
}

impl Witness {
    pub(crate) fn of(self, step: Step) -> LastStep {
        LastStep {
            step,
            witness: self,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Position => "this rank has been given step",
            Self::Ledger => "the ledger says that this rank received step",
            Self::Checkpoint => "this rank starts from a checkpoint behind step",
            Self::Stored => "marks or progress in the store say that the attempt received step",
        }
    }
}

/// The last step that a rank has received. Of two the later one is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LastStep {
    pub(crate) step: Step,
    pub(crate) witness: Witness,
}

/// Returns the last step that the hello of a rank claims to have received. A position where an attempt starts
/// claims nothing: that step may be committed later.
pub(crate) fn claimed(hello: &Hello, head: &Head) -> Option<LastStep> {
    // A position may lie behind steps that were never read.
    let passed = QuarantineRanges::including_lifted(&head.quarantine);
    let job = head
        .jobs
        .get(&hello.job.as_ref()?.parse::<JobName>().ok()?)?;
    let last = |attempt: &str, next: Step| {
        let id: AttemptId = attempt.parse().ok()?;
        let start = job.attempts.iter().find(|at| at.id == id)?.start;
        passed.last_read_before(next).filter(|last| *last >= start)
    };
    let attempt = hello
        .attempt
        .as_ref()
        .filter(|_| hello.mode == Mode::Resume);
    let resumed = attempt
        .and_then(|id| last(id, hello.next_step))
        .map(|step| Witness::Position.of(step));
    let parent = hello
        .parent
        .as_ref()
        .and_then(|parent| last(&parent.id, parent.step))
        .map(|step| Witness::Checkpoint.of(step));
    resumed.max(parent)
}

/// Returns the fault of a rank that has received `last`, if the log has no such step, or has another batch at
/// the step `changed` before it.
pub(crate) fn contradicted(last: LastStep, head: &Head, changed: Option<Step>) -> Option<Fault> {
    let (text, last) = (last.witness.text(), last.step);
    let message = match changed.filter(|step| *step <= last) {
        _ if last >= head.next_step => format!(
            "{text} {last}, and the log ends before step {}: it is not the one from which that step came",
            head.next_step
        ),
        Some(step) => format!(
            "{text} {last}, and step {step} is another batch in the log now: it was replaced"
        ),
        None => return None,
    };
    Some(Fault::new(ErrorName::StreamRewound, message).at_step(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(next_step: Step) -> Head {
        Head {
            next_step,
            ..Head::default()
        }
    }

    #[test]
    fn a_rank_that_has_more_than_the_log_is_contradicted() {
        let at = |last| Witness::Position.of(last);
        assert_eq!(contradicted(at(9), &head(10), None), None);
        let fault = contradicted(at(10), &head(10), None).unwrap();
        assert_eq!(fault.known_name(), Some(ErrorName::StreamRewound));
        let text = "this rank has been given step 10, and the log ends before step 10";
        assert!(fault.message.contains(text), "{fault}");
        assert_eq!(contradicted(at(7), &head(10), Some(8)), None);
        let fault = contradicted(at(8), &head(10), Some(8)).unwrap();
        assert!(fault.message.contains("step 8 is another batch"), "{fault}");
    }

    #[test]
    fn history_is_bounded_and_forgets_what_changed() {
        let mut history = History::default();
        for step in 0..HISTORY_MAX as u64 + 10 {
            history.note(step, Digest([step as u8; 32]));
            history.note(step, Digest([step as u8; 32]));
        }
        let all = history.all();
        assert_eq!((all.len(), all[0].0), (HISTORY_MAX, 10));
        history.forget(&BTreeSet::from([10, 12]));
        assert_eq!(history.all()[0].0, 11);
    }
}
