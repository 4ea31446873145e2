//! The states that count: of steps that the rank has received in the session's attempt, and the first of each. Pure.

use std::ops::Range;

use batchweave_core::guards;
use batchweave_core::ids::Step;
use batchweave_core::proof::StepRanges;
use batchweave_wire::StepStates;

/// Ranges that say which steps of a rank have a state. Only a rank that reports scattered steps comes here.
pub(super) const KNOWN_RANGES_MAX: usize = 1 << 16;

/// The number of ranges and steps of a report, by what became of them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Steps whose first state this is.
    pub(crate) trained: u64,
    pub(crate) left_out: u64,
    /// Steps that have a state of the same session.
    pub(crate) twice: u64,
    /// Ranges with steps that the rank did not receive in this attempt.
    pub(crate) not_received: u64,
    /// Ranges beyond the limit of ranges.
    pub(crate) scattered: u64,
}

impl Counted {
    /// Returns the counts with the names of their outcomes.
    pub(crate) fn by_outcome(&self) -> [(&'static str, u64); 5] {
        [
            ("trained", self.trained),
            ("left_out", self.left_out),
            ("reported_twice", self.twice),
            ("not_received", self.not_received),
            ("scattered", self.scattered),
        ]
    }

    /// Returns the number of steps and ranges that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.twice + self.not_received + self.scattered
    }
}

/// The steps of one rank that have a state.
#[derive(Debug, Default)]
pub(crate) struct KnownStates {
    all: StepRanges,
    /// Those reported in the present session: another session repeats what was not confirmed.
    in_session: StepRanges,
}

impl KnownStates {
    /// Begins a session, in which states may be repeated.
    pub(crate) fn begin(&mut self) {
        self.in_session = StepRanges::default();
        if guards::counts_repeated_states() {
            self.all = StepRanges::default();
        }
    }

    /// Returns the states that count, of steps in `received`.
    pub(crate) fn accept(
        &mut self,
        states: &[StepStates],
        received: &Range<Step>,
    ) -> (Vec<StepStates>, Counted) {
        let (mut new, mut counted) = (Vec::new(), Counted::default());
        for state in states {
            let steps = state.from.max(received.start)..state.to.min(received.end);
            counted.not_received += u64::from(steps != (state.from..state.to));
            if steps.is_empty() {
                continue;
            }
            let twice = self.in_session.shared(steps.clone());
            counted.twice += twice.iter().map(|part| part.end - part.start).sum::<u64>();
            for part in self.all.missing(steps.clone()) {
                if !has_room(&self.all, &part) {
                    counted.scattered += 1;
                    continue;
                }
                let long = part.end - part.start;
                let count = match state.left_out {
                    None => &mut counted.trained,
                    Some(_) => &mut counted.left_out,
                };
                *count += long;
                self.all.insert(part.clone());
                new.push(StepStates {
                    from: part.start,
                    to: part.end,
                    left_out: state.left_out.clone(),
                });
            }
            if has_room(&self.in_session, &steps) {
                self.in_session.insert(steps);
            }
        }
        (new, counted)
    }
}

/// Whether adding `steps` leaves a set within its limit: one that touches a range adds none.
fn has_room(set: &StepRanges, steps: &Range<Step>) -> bool {
    let around = steps.start.saturating_sub(1)..steps.end + 1;
    set.len() < KNOWN_RANGES_MAX || !set.shared(around).is_empty()
}
