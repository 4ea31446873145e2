//! Steps that ranks received and that no ledger covers.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ids::Step;

/// Steps that a coordinate received and that no ledger covers. Its later entries, those of other coordinates, or the
/// start of the next attempt show that it received them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerHole {
    pub dp_rank: u32,
    pub steps: Range<Step>,
}

/// The holes of all coordinates while ledgers are read.
#[derive(Debug, Default)]
pub(super) struct Holes(BTreeMap<u32, Vec<Range<Step>>>);

impl Holes {
    /// Adds steps; neighbours are joined, also those that come one by one.
    pub(super) fn add(&mut self, dp_rank: u32, steps: Range<Step>) {
        let own = self.0.entry(dp_rank).or_default();
        match own.last_mut() {
            Some(last) if (last.start..=last.end).contains(&steps.start) => {
                last.end = last.end.max(steps.end);
            }
            _ => own.push(steps),
        }
    }

    /// Returns the holes, the lowest step first, without overlap.
    pub(super) fn joined(self) -> Vec<LedgerHole> {
        let mut joined = Vec::new();
        for (dp_rank, mut own) in self.0 {
            own.sort_by_key(|steps| (steps.start, steps.end));
            let mut of_rank: Vec<Range<Step>> = Vec::new();
            for steps in own {
                match of_rank.last_mut().filter(|last| last.end >= steps.start) {
                    Some(last) => last.end = last.end.max(steps.end),
                    None => of_rank.push(steps),
                }
            }
            joined.extend(
                of_rank
                    .into_iter()
                    .map(|steps| LedgerHole { dp_rank, steps }),
            );
        }
        joined.sort_by_key(|hole| (hole.steps.start, hole.dp_rank));
        joined
    }
}
