//! The explanation of a wrong digest, from checksums alone.

use super::Lookup;
use crate::ids::Step;
use crate::proof::contradiction::Mismatch;
use crate::tgb::Digest;

/// Slices among which exchanges of two are tried.
const SWAPS_TRIED: usize = 256;
/// Steps around a wrong one that are compared with the received batch.
const STEPS_TRIED: u64 = 1024;

/// Returns another step's batch, two exchanged slices, or neither.
pub(super) fn explain(
    crcs: &mut [u32],
    expected: Digest,
    found: Digest,
    step: Step,
    log: Lookup<'_>,
) -> Mismatch {
    let around = step.saturating_sub(STEPS_TRIED)..step.saturating_add(STEPS_TRIED);
    let is = |other: &Step| log(*other).is_some_and(|named| named.digest == found);
    if let Some(other) = around.into_iter().find(is) {
        return Mismatch::OtherStep(other);
    }
    let tried = crcs.len().min(SWAPS_TRIED);
    for a in 0..tried {
        for b in a + 1..tried {
            crcs.swap(a, b);
            if Digest::from_crcs(crcs.iter().copied()) == expected {
                return Mismatch::Swapped(a as u32, b as u32);
            }
            crcs.swap(a, b);
        }
    }
    Mismatch::OtherBytes
}
