//! The quarantined steps that a reader passes over. Pure.
//!
//! An attempt's ranges are those in force at its record, so they are the same on every node and after
//! every restart of a daemon.

use batchweave_core::ids::{Step, Version};
use batchweave_core::manifest::state::QuarantineState;

/// Ranges of steps that are not read, as first step and the one after the last; sorted, without overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QuarantineRanges(Vec<(Step, Step)>);

impl QuarantineRanges {
    /// The ranges in force at the record `opened` of an attempt.
    pub(crate) fn in_force_at(all: &[QuarantineState], opened: Version) -> Self {
        let in_force = |q: &&QuarantineState| q.in_force_at(opened);
        Self::merged(all.iter().filter(in_force))
    }

    /// The ranges in force now, for readers without an attempt.
    pub(crate) fn in_force_now(all: &[QuarantineState]) -> Self {
        Self::merged(all.iter().filter(|q| q.lifted.is_none()))
    }

    /// All ranges that ever were in force, lifted ones included.
    pub(crate) fn including_lifted(all: &[QuarantineState]) -> Self {
        Self::merged(all.iter())
    }

    fn merged<'q>(ranges: impl Iterator<Item = &'q QuarantineState>) -> Self {
        let mut sorted: Vec<(Step, Step)> = ranges.map(|q| (q.first, q.last + 1)).collect();
        sorted.sort_unstable();
        let mut apart: Vec<(Step, Step)> = Vec::with_capacity(sorted.len());
        for (first, after) in sorted {
            match apart.last_mut().filter(|last| first <= last.1) {
                Some(last) => last.1 = last.1.max(after),
                None => apart.push((first, after)),
            }
        }
        Self(apart)
    }

    #[cfg(test)]
    pub(crate) fn ranges(&self) -> &[(Step, Step)] {
        &self.0
    }

    fn from(&self, step: Step) -> &[(Step, Step)] {
        &self.0[self.0.partition_point(|(_, after)| *after <= step)..]
    }

    /// The first step at or after `step` that is read.
    pub(crate) fn next_read(&self, step: Step) -> Step {
        match self.from(step).first() {
            Some((first, after)) if *first <= step => *after,
            _ => step,
        }
    }

    /// The last step before `step` that is read; `None` when there is none.
    pub(crate) fn last_read_before(&self, step: Step) -> Option<Step> {
        let mut last = step.checked_sub(1)?;
        for (first, after) in self.0.iter().rev() {
            if (*first..*after).contains(&last) {
                last = first.checked_sub(1)?;
            }
        }
        Some(last)
    }

    /// Whether `step` is passed over.
    pub(crate) fn contains(&self, step: Step) -> bool {
        self.next_read(step) != step
    }

    /// The step that is read `count` steps after `step`, which is read.
    pub(crate) fn advance(&self, mut step: Step, mut count: u64) -> Step {
        for (first, after) in self.from(step) {
            let before = first - step;
            if count < before {
                break;
            }
            (step, count) = (*after, count - before);
        }
        step.saturating_add(count)
    }

    /// How many of the steps `from..to` are read.
    pub(crate) fn count_read(&self, from: Step, to: Step) -> u64 {
        let inside =
            |(first, after): &(Step, Step)| (*after).min(to).saturating_sub((*first).max(from));
        let skipped: u64 = self.from(from).iter().map(inside).sum();
        to.saturating_sub(from).saturating_sub(skipped)
    }
}

#[cfg(test)]
impl QuarantineRanges {
    /// Ranges given by their first and last steps.
    pub(crate) fn from_ranges(ranges: &[(Step, Step)]) -> Self {
        let all: Vec<QuarantineState> = ranges
            .iter()
            .map(|&(first, last)| tests::quarantine(first, last, 0, None))
            .collect();
        Self::in_force_now(&all)
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::ids::RequestId;

    use super::*;

    pub(super) fn quarantine(
        first: Step,
        last: Step,
        added: Version,
        lifted: Option<Version>,
    ) -> QuarantineState {
        QuarantineState {
            id: RequestId([0; 16]),
            first,
            last,
            reason: String::new(),
            added,
            lifted,
        }
    }

    #[test]
    fn an_attempt_passes_over_the_ranges_in_force_at_its_record() {
        let all = [
            quarantine(10, 19, 3, None),
            quarantine(30, 39, 3, Some(8)),
            quarantine(50, 59, 6, None),
        ];
        assert_eq!(QuarantineRanges::in_force_at(&all, 2).ranges(), []);
        assert_eq!(
            QuarantineRanges::in_force_at(&all, 5).ranges(),
            [(10, 20), (30, 40)]
        );
        assert_eq!(
            QuarantineRanges::in_force_at(&all, 7).ranges(),
            [(10, 20), (30, 40), (50, 60)]
        );
        assert_eq!(
            QuarantineRanges::in_force_at(&all, 9).ranges(),
            [(10, 20), (50, 60)]
        );
        assert_eq!(
            QuarantineRanges::in_force_now(&all).ranges(),
            [(10, 20), (50, 60)]
        );
    }

    #[test]
    fn the_step_before_is_one_that_is_read() {
        let quarantine = QuarantineRanges::from_ranges(&[(0, 1), (4, 5), (7, 9)]);
        let before = |step| quarantine.last_read_before(step);
        assert_eq!([before(0), before(1), before(2)], [None; 3]);
        assert_eq!(
            [before(3), before(5), before(6)],
            [Some(2), Some(3), Some(3)]
        );
        assert_eq!(
            [before(8), before(10), before(12)],
            [Some(6), Some(6), Some(11)]
        );
    }

    #[test]
    fn ranges_that_touch_or_overlap_are_one() {
        let quarantine =
            QuarantineRanges::from_ranges(&[(8, 9), (2, 3), (4, 5), (9, 12), (10, 10)]);
        assert_eq!(quarantine.ranges(), [(2, 6), (8, 13)]);
    }

    #[test]
    fn counting_agrees_with_walking() {
        let quarantine = QuarantineRanges::from_ranges(&[(0, 1), (4, 4), (6, 9), (15, 15)]);
        let read: Vec<Step> = (0..40).filter(|step| !quarantine.contains(*step)).collect();
        assert_eq!(read[..6], [2, 3, 5, 10, 11, 12]);
        assert_eq!(
            (
                quarantine.next_read(0),
                quarantine.next_read(6),
                quarantine.next_read(5)
            ),
            (2, 10, 5)
        );
        for (i, &from) in read.iter().enumerate() {
            for (j, &to) in read.iter().enumerate().skip(i) {
                assert_eq!(quarantine.advance(from, (j - i) as u64), to);
                assert_eq!(quarantine.count_read(from, to), (j - i) as u64);
            }
        }
    }
}
