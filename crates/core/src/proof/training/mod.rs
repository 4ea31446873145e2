//! The proof that ranks trained what they received: every step of a leg has a state of every data coordinate.
//!
//! States are what ranks reported: the trainer's word, stored before each mark. Of ranks that share a coordinate
//! one is enough; two that differ on a step are named.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use super::contradiction::Contradiction;
use super::lineage::AttemptRecord;
use super::states::ReportedStates;
use super::steps::StepRanges;
use crate::ids::Step;

/// Steps of one data coordinate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinateSteps {
    pub dp_rank: u32,
    pub steps: Range<Step>,
}

/// Steps that a coordinate left out on purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub dp_rank: u32,
    pub steps: Range<Step>,
    pub reason: String,
}

/// The states of one leg's steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LegStates {
    /// The steps that need a state: `from` to `below`, without skipped ones.
    pub from: Step,
    pub below: Step,
    /// Those that every coordinate trained.
    pub trained: u64,
    /// Steps without a state, by coordinate.
    pub missing: Vec<CoordinateSteps>,
    /// Steps left out on purpose, by coordinate.
    pub left_out: Vec<LeftOut>,
    /// Steps that one rank of a coordinate trained and another one left out.
    pub differing: Vec<CoordinateSteps>,
    /// All coordinates have a state of all steps below this one.
    pub reported: Step,
}

/// The reports of one coordinate's ranks.
#[derive(Debug, Default)]
struct Coordinate {
    trained: StepRanges,
    left_out: StepRanges,
    reasons: Vec<(Range<Step>, String)>,
}

/// The states of one attempt while its ledgers are read.
pub struct LegTraining<'a> {
    attempt: &'a AttemptRecord,
    coordinates: BTreeMap<u32, Coordinate>,
}

impl<'a> LegTraining<'a> {
    /// Begins with no state.
    pub fn new(attempt: &'a AttemptRecord) -> Self {
        Self {
            attempt,
            coordinates: BTreeMap::new(),
        }
    }

    /// Adds the states of a ledger of this attempt, in any order.
    pub fn add(&mut self, key: &str, states: &[ReportedStates]) -> Result<(), Contradiction> {
        for reported in states {
            let dp_size = self.attempt.state.dp_size;
            if reported.dp_rank >= dp_size {
                return Err(Contradiction::StrangeStates {
                    key: key.to_owned(),
                    attempt: self.attempt.state.number,
                    dp_size,
                    dp_rank: reported.dp_rank,
                });
            }
            let own = self.coordinates.entry(reported.dp_rank).or_default();
            for &(from, to) in &reported.trained {
                own.trained.insert(from..to);
            }
            for (from, to, reason) in &reported.left_out {
                // A daemon that follows another one stores repeated states again.
                for part in own.left_out.missing(*from..*to) {
                    own.reasons.push((part, reason.clone()));
                }
                own.left_out.insert(*from..*to);
            }
        }
        Ok(())
    }

    /// Returns the states of the steps `from` to `below`.
    pub fn finish(&self, from: Step, below: Step) -> LegStates {
        let below = below.max(from);
        let kept = self.kept(from..below);
        let mut states = LegStates {
            from,
            below,
            reported: Step::MAX,
            ..LegStates::default()
        };
        let mut untrained = StepRanges::default();
        for dp_rank in 0..self.attempt.state.dp_size {
            let none = Coordinate::default();
            let own = self.coordinates.get(&dp_rank).unwrap_or(&none);
            own.note(dp_rank, &kept, &mut states, &mut untrained);
            states.reported = states.reported.min(self.reported(own, below));
        }
        let all: u64 = kept.iter().map(|steps| steps.end - steps.start).sum();
        states.trained = all - untrained.steps();
        states
    }

    /// Returns the first step from `from` on of which a coordinate has no state.
    fn reported(&self, own: &Coordinate, from: Step) -> Step {
        let mut at = self.attempt.next_kept(from);
        loop {
            let ends = [&own.trained, &own.left_out].map(|set| set.shared(at..at + 1).is_empty());
            if ends == [true, true] {
                return at;
            }
            let set = if ends[0] { &own.left_out } else { &own.trained };
            let gap = set.missing(at..Step::MAX);
            at = self
                .attempt
                .next_kept(gap.first().map_or(Step::MAX, |gap| gap.start));
        }
    }

    /// Returns the parts of `steps` that the attempt does not pass over.
    fn kept(&self, steps: Range<Step>) -> Vec<Range<Step>> {
        let mut skipped = StepRanges::default();
        for (first, end) in self.attempt.skipped(steps.clone()) {
            skipped.insert(first..end);
        }
        skipped.missing(steps)
    }
}

impl Coordinate {
    /// Notes the states of the steps in `kept`, and which of them were not trained.
    fn note(
        &self,
        dp_rank: u32,
        kept: &[Range<Step>],
        to: &mut LegStates,
        untrained: &mut StepRanges,
    ) {
        let at = |steps| CoordinateSteps { dp_rank, steps };
        for range in kept {
            for gap in self.trained.missing(range.clone()) {
                untrained.insert(gap.clone());
                to.missing
                    .extend(self.left_out.missing(gap).into_iter().map(at));
            }
            for left in self.left_out.shared(range.clone()) {
                untrained.insert(left.clone());
                to.differing
                    .extend(self.trained.shared(left).into_iter().map(at));
            }
        }
        let mut reasons = self.reasons.clone();
        reasons.sort_by_key(|(steps, _)| steps.start);
        for (steps, reason) in reasons {
            for range in kept {
                let steps = steps.start.max(range.start)..steps.end.min(range.end);
                if !steps.is_empty() {
                    let reason = reason.clone();
                    to.left_out.push(LeftOut {
                        dp_rank,
                        steps,
                        reason,
                    });
                }
            }
        }
    }
}
