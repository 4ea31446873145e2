//! Ledger entries for delivered steps that are not recorded, from checksums of the store's indexes. They
//! carry `resumed`: they state what a rank must have received, not what a daemon delivered.

use std::ops::Range;

use super::ledger::LedgerEntry;
use crate::ids::Step;

/// The reader of the rebuilt steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderSlices {
    pub dp_rank: u32,
    /// The rank in the whole job, as in its other entries.
    pub rank: Option<u32>,
    pub slices: Range<u32>,
}

/// Returns entries for those of `steps` that `crcs` has, and the other steps with the reason; neighbours
/// are joined. `next_kept` gives the first step at or after one that is not quarantined.
pub fn rebuild_entries(
    of: &ReaderSlices,
    steps: Range<Step>,
    next_kept: impl Fn(Step) -> Step,
    crcs: impl Fn(Step) -> Result<Vec<u32>, String>,
) -> (Vec<LedgerEntry>, Vec<(Range<Step>, String)>) {
    let (mut entries, mut left): (Vec<LedgerEntry>, Vec<(Range<Step>, String)>) =
        Default::default();
    let mut open: Option<LedgerEntry> = None;
    let mut lost: Option<(Range<Step>, String)> = None;
    let mut step = next_kept(steps.start);
    while step < steps.end {
        match crcs(step) {
            Ok(crcs) => {
                left.extend(lost.take());
                let entry = open.get_or_insert_with(|| begin(of, step));
                if entry.to < step {
                    entry.skipped.push((entry.to, step));
                }
                entry.to = step + 1;
                entry.crcs.extend(crcs);
            }
            Err(why) => {
                entries.extend(open.take());
                lost.get_or_insert((step..step, why)).0.end = step + 1;
            }
        }
        step = next_kept(step + 1);
    }
    entries.extend(open);
    left.extend(lost);
    (entries, left)
}

fn begin(of: &ReaderSlices, from: Step) -> LedgerEntry {
    LedgerEntry {
        dp_rank: of.dp_rank,
        rank: of.rank,
        first_slice: of.slices.start,
        slices: of.slices.end - of.slices.start,
        from,
        to: from,
        resumed: true,
        crcs: Vec::new(),
        skipped: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_steps_are_left_and_quarantined_steps_are_passed_over() {
        let of = ReaderSlices {
            dp_rank: 1,
            rank: Some(3),
            slices: 2..4,
        };
        // 4 to 6 are quarantined; 8 and 9 can't be read.
        let next_kept = |step| if (4..7).contains(&step) { 7 } else { step };
        let crcs = |step: Step| match step {
            8 | 9 => Err("gone".to_owned()),
            step => Ok(vec![step as u32, 0]),
        };
        let (entries, left) = rebuild_entries(&of, 2..12, next_kept, crcs);
        let short: Vec<_> = entries
            .iter()
            .map(|e| (e.from, e.to, &e.skipped[..]))
            .collect();
        assert_eq!(short, [(2, 8, &[(4, 7)][..]), (10, 12, &[])]);
        assert_eq!(left, [(8..10, "gone".to_owned())]);
        assert_eq!(entries[0].crcs, [2, 0, 3, 0, 7, 0]);
        let whose = |e: &LedgerEntry| (e.reader(), e.first_slice, e.slices, e.resumed);
        assert!(
            entries
                .iter()
                .all(|e| whose(e) == ((1, Some(3)), 2, 2, true))
        );
        assert_eq!(
            rebuild_entries(&of, 4..7, next_kept, crcs),
            (Vec::new(), Vec::new())
        );
    }
}
