//! Records and objects of a faulty program that no correct writer makes, and when it writes them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::draw::Draw;

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mischief {
    /// TGBs of an epoch that is over.
    OldEpoch,
    /// TGBs after a gap.
    WrongSeq,
    /// TGBs from another cursor.
    WrongCursor,
    /// Some TGBs of an object.
    HalfObject,
    /// A finish before the end.
    WrongFinish,
    /// A record of another stream.
    ForeignStream,
    /// A record that continues another object.
    WrongPrev,
    /// A record by one who understood the log otherwise.
    WrongView,
    /// The first half of a record.
    HalfRecord,
    /// Half an intent, half a snapshot of a version to come, half a segment.
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
    /// Whether everybody stops at it.
    pub(crate) fn stops(self) -> bool {
        matches!(self, Self::WrongPrev | Self::WrongView | Self::HalfRecord)
    }
}

/// The mischief of a world, in order.
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
