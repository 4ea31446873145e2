//! A set of steps as ranges. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ids::Step;

/// A set of steps: disjoint ranges, neighbours joined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepRanges(BTreeMap<Step, Step>);

impl StepRanges {
    /// Returns the number of ranges, by which the memory of the set grows.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set has no step.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> u64 {
        self.iter().map(|steps| steps.end - steps.start).sum()
    }

    /// Returns the ranges, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = Range<Step>> {
        self.0.iter().map(|(&from, &to)| from..to)
    }

    /// Adds a range of steps and joins it with its neighbours.
    pub fn insert(&mut self, steps: Range<Step>) {
        let Range { mut start, mut end } = steps;
        if start >= end {
            return;
        }
        // The range before may reach into the new one or end where it begins.
        while let Some((&from, &to)) = self.0.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// Returns the parts of `steps` that are not in the set, the lowest first.
    pub fn missing(&self, steps: Range<Step>) -> Vec<Range<Step>> {
        let before = self.0.range(..=steps.start).next_back();
        let mut at = before.map_or(steps.start, |(_, &to)| to.max(steps.start));
        let mut parts = Vec::new();
        for (&from, &to) in self.0.range(steps.start..) {
            if from >= steps.end {
                break;
            }
            if at < from {
                parts.push(at..from);
            }
            at = at.max(to);
        }
        if at < steps.end {
            parts.push(at..steps.end);
        }
        parts
    }

    /// Returns the parts of `steps` that are in the set, the lowest first.
    pub fn shared(&self, steps: Range<Step>) -> Vec<Range<Step>> {
        let mut at = steps.start;
        let mut parts = Vec::new();
        for gap in self.missing(steps.clone()) {
            if at < gap.start {
                parts.push(at..gap.start);
            }
            at = gap.end;
        }
        if at < steps.end {
            parts.push(at..steps.end);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(ranges: &[Range<Step>]) -> StepRanges {
        let mut set = StepRanges::default();
        for range in ranges {
            set.insert(range.clone());
        }
        set
    }

    #[test]
    fn neighbours_are_joined_and_gaps_are_found() {
        let some = set(&[5..7, 0..2, 9..9, 7..8, 20..30]);
        assert_eq!(some.iter().collect::<Vec<_>>(), [0..2, 5..8, 20..30]);
        assert_eq!((some.len(), some.steps()), (3, 15));
        assert_eq!(some.missing(1..25), [2..5, 8..20]);
        assert_eq!(some.missing(6..8), []);
        assert_eq!(some.shared(1..25), [1..2, 5..8, 20..25]);
        assert_eq!(some.shared(8..20), []);
        assert!(set(&[]).is_empty() && !some.is_empty());
    }

    proptest! {
        #[test]
        fn it_is_the_set_of_its_steps(ranges in prop::collection::vec((0..40_u64, 0..9_u64), 0..12), from in 0..40_u64, long in 0..40_u64) {
            let ranges: Vec<_> = ranges.into_iter().map(|(from, long)| from..from + long).collect();
            let (some, all) = (set(&ranges), ranges.into_iter().flatten().collect::<BTreeSet<_>>());
            prop_assert_eq!(some.iter().flatten().collect::<BTreeSet<_>>(), all.clone());
            prop_assert_eq!(some.steps(), all.len() as u64);
            let asked = from..from + long;
            let missing: Vec<_> = some.missing(asked.clone()).into_iter().flatten().collect();
            let expected: Vec<_> = asked.clone().filter(|step| !all.contains(step)).collect();
            prop_assert_eq!(missing, expected);
            let shared: Vec<_> = some.shared(asked.clone()).into_iter().flatten().collect();
            let expected: Vec<_> = asked.filter(|step| all.contains(step)).collect();
            prop_assert_eq!(shared, expected);
            let ends: Vec<_> = some.iter().collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
