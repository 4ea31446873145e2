//! The view: a running hash over all effects of the log in a fold.
//!
//! Invariant: two folds of the same records have the same view exactly when every record had the same
//! effects in both. Each record carries its writer's view of the records before it, so a wrong fold
//! (memory, a missed repair, a program with other rules) shows at the next record.

use super::folded::Folded;
use super::rules::Validity;
use super::state::Manifest;
use super::void::RecordVoid;
use crate::ids::Hash;

/// The kinds of effect of a record as a whole.
const TAKEN: u8 = 0;
const OTHER_STREAM: u8 = 1;
const REPAIRED: u8 = 2;

/// Returns the view after the record with hash `record`: `m` is the state after it, with the view before
/// it.
pub(super) fn after(m: &Manifest, record: Hash, folded: &Folded) -> Hash {
    let mut bytes = Vec::with_capacity(256);
    bytes.extend_from_slice(&m.view.0);
    bytes.extend_from_slice(&record.0);
    bytes.push(match folded.void {
        None => TAKEN,
        Some(RecordVoid::OtherStream(_)) => OTHER_STREAM,
        Some(RecordVoid::Repaired) => REPAIRED,
    });
    // The reason why an entry is void is for people; the fact is the same in every fold.
    bytes.extend(folded.entries.iter().map(|verdict| match verdict {
        Err(_) => 0,
        Ok(Validity::Applies) => 1,
        Ok(Validity::Repeat) => 2,
    }));
    for placed in &folded.placed {
        for number in [placed.step, placed.epoch, placed.seq] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(placed.producer.as_str().as_bytes());
    }
    let waiting = m.waiting() as u64;
    for number in [m.next_step, m.watermark, waiting, u64::from(m.sealed)] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    Hash::sha256(&bytes)
}
