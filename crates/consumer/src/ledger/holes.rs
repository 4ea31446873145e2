//! Steps that no ledger records and that are to be read from the store's indexes. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::Step;
use batchweave_core::proof::LEDGER_STEPS;

use super::book::{Hole, reader};
use crate::job::membership::Member;

/// The coordinate, and the rank if known.
pub(super) type Reader = (u32, Option<u32>);

/// The holes of one reader, in order, without overlap.
#[derive(Debug)]
struct ReaderHoles {
    member: Arc<Member>,
    steps: VecDeque<Range<Step>>,
}

/// The holes of one attempt that are not filled yet.
#[derive(Debug, Default)]
pub(super) struct Holes(BTreeMap<Reader, ReaderHoles>);

impl Holes {
    pub(super) fn add(&mut self, hole: Hole) {
        let Hole { member, mut steps } = hole;
        let own = self
            .0
            .entry(reader(&member))
            .or_insert_with(|| ReaderHoles {
                member: Arc::clone(&member),
                steps: VecDeque::new(),
            });
        own.member = member;
        // Without the steps that are pending already.
        if let Some(last) = own.steps.back() {
            steps.start = steps.start.max(last.end);
        }
        if steps.start < steps.end {
            own.steps.push_back(steps);
        }
    }

    /// The first step of a reader's holes.
    pub(super) fn first(&self, reader: Reader) -> Option<Step> {
        Some(self.0.get(&reader)?.steps.front()?.start)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lowest steps of all holes, as many as fit into a ledger.
    pub(super) fn window(&self) -> Vec<Hole> {
        let firsts = self.0.values().filter_map(|own| own.steps.front());
        let Some(from) = firsts.map(|steps| steps.start).min() else {
            return Vec::new();
        };
        let end = from + LEDGER_STEPS;
        let of = |own: &ReaderHoles| {
            let steps = own.steps.front().filter(|steps| steps.start < end)?;
            Some(Hole {
                member: Arc::clone(&own.member),
                steps: steps.start..steps.end.min(end),
            })
        };
        self.0.values().filter_map(of).collect()
    }

    /// Removes the steps of a window, which are recorded or given up.
    pub(super) fn done(&mut self, window: &[Hole]) {
        for Hole { member, steps } in window {
            let Some(own) = self.0.get_mut(&reader(member)) else {
                continue;
            };
            if let Some(first) = own.steps.front_mut() {
                first.start = steps.end;
                if first.start >= first.end {
                    own.steps.pop_front();
                }
            }
        }
        self.0.retain(|_, own| !own.steps.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::book::tests::member;

    fn hole(dp_rank: u32, steps: Range<Step>) -> Hole {
        let member = member(dp_rank, &[]);
        Hole { member, steps }
    }

    fn short(holes: &[Hole]) -> Vec<(u32, Range<Step>)> {
        let one = |h: &Hole| (h.member.dp_rank, h.steps.clone());
        holes.iter().map(one).collect()
    }

    #[test]
    fn windows_take_all_ranks_of_the_lowest_steps() {
        let mut holes = Holes::default();
        assert!(holes.is_empty() && holes.window().is_empty());
        holes.add(hole(0, 100..500));
        holes.add(hole(1, 120..300));
        holes.add(hole(2, 400..410));
        holes.add(hole(1, 200..310));
        let window = holes.window();
        assert_eq!(short(&window), [(0, 100..356), (1, 120..300)]);
        assert_eq!(holes.first((1, None)), Some(120));
        holes.done(&window);
        assert_eq!(
            holes.first((1, None)),
            Some(300),
            "the second hole of rank 1"
        );
        let window = holes.window();
        assert_eq!(
            short(&window),
            [(0, 356..500), (1, 300..310), (2, 400..410)]
        );
        holes.done(&window);
        assert!(holes.is_empty());
    }
}
