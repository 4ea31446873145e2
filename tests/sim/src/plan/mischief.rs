//! Records and objects of a faulty program that no correct writer makes, and when it writes them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::draw::Draw;

/// A kind of invalid record or object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mischief {
    /// TGBs of an epoch that is over.
    OldEpoch,
    /// TGBs after a gap.
    WrongSeq,
    /// TGBs from another cursor.
    WrongCursor,
    /// Only some TGBs of an object.
    HalfObject,
    /// A finish before the end.
    WrongFinish,
    /// A record of another stream.
    ForeignStream,
    /// A record with a wrong previous hash.
    WrongPrev,
    /// A record by a writer with another view of the log.
    WrongView,
    HalfRecord,
    /// Half an intent, half a snapshot of a future version, half a segment.
    Debris,
}

const ALL: [Mischief; 10] = [
    Mischief::OldEpoch,
    Mischief::WrongSeq,
    Mischief::WrongCursor,
    Mischief::HalfObject,
    Mischief::WrongFinish,
    Mischief::ForeignStream,
    Mischief::WrongPrev,
    Mischief::WrongView,
    Mischief::HalfRecord,
    Mischief::Debris,
];

impl Mischief {
    /// Returns true if every reader of the log stops at it.
    pub(crate) fn stops(self) -> bool {
        matches!(self, Self::WrongPrev | Self::WrongView | Self::HalfRecord)
    }
}

/// Draws the mischief of a world, in order.
pub(super) fn draw(draw: &mut Draw) -> Vec<(Duration, Mischief)> {
    if draw.chance(800) {
        return Vec::new();
    }
    let mut at = Duration::ZERO;
    let count = draw.range(1..5);
    let one = |_| {
        at += draw.duration(Duration::ZERO, Duration::from_secs(12));
        (at, ALL[draw.range(0..ALL.len() as u64) as usize])
    };
    (0..count).map(one).collect()
}
