//! Sums and strips of a read, against the frames as they are.

use batchweave_arena::{MemoryLimits, Segment};
use batchweave_core::crc::crc32c;
use batchweave_core::ids::StreamId;
use batchweave_core::tgb::Identity;
use proptest::prelude::*;

use super::*;
use crate::engine::location::{FrameId, Location};

const SEGMENT: u64 = 64 << 10;

/// Frames of these sizes one after another in an object; where the arena has them follows `gaps`.
fn targets(segment: &Arc<Segment>, sizes: &[u64], gaps: &[bool]) -> Vec<Target> {
    let (mut start, mut offset) = (640, 0);
    let target = |(n, (bytes, gap)): (usize, (&u64, &bool))| {
        offset += if *gap { 128 } else { 0 };
        let target = Target {
            id: FrameId {
                step: 3,
                slice: n as u32,
            },
            from: Location {
                key: "data/x".into(),
                range: start..start + bytes,
                identity: Identity {
                    stream: StreamId([0; 16]),
                    producer: 0,
                    epoch: 1,
                },
                seq: 3,
            },
            segment: Arc::clone(segment),
            offset,
        };
        (start, offset) = (start + bytes, offset + bytes);
        target
    };
    sizes.iter().zip(gaps).enumerate().map(target).collect()
}

proptest! {
    /// Every byte is written to its place, and the sums of pieces add up to those of frames, for any pieces
    /// of a read and chunks of its bodies.
    #[test]
    fn every_byte_has_its_place_and_is_summed_once(
        frames in prop::collection::vec((1_u64..20, any::<bool>()), 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        chunks in prop::collection::vec(1_usize..900, 1..6),
    ) {
        let segment = Segment::create("test", SEGMENT, &MemoryLimits::default()).unwrap();
        let sizes: Vec<u64> = frames.iter().map(|(n, _)| n * 64).collect();
        let gaps: Vec<bool> = frames.iter().map(|(_, gap)| *gap).collect();
        let targets = targets(&segment, &sizes, &gaps);
        let whole = targets[0].from.range.start..targets[targets.len() - 1].from.range.end;
        let object: Vec<u8> = (0..whole.end).map(|n| (n * 7 + n / 251) as u8).collect();
        let mut ends: Vec<u64> = cuts.iter().map(|c| whole.start + c.index(sizes.iter().sum::<u64>() as usize) as u64).collect();
        ends.extend([whole.start, whole.end]);
        ends.sort_unstable();
        let mut crcs = vec![Crc32c::new(); targets.len()];
        let mut next = chunks.iter().cycle();
        for pair in ends.windows(2).filter(|pair| pair[0] < pair[1]) {
            let mut strips = Strips::new(&targets, &(pair[0]..pair[1])).unwrap();
            let mut at = pair[0];
            while let Some((place, into)) = strips.next_chunk() {
                prop_assert_eq!(place, at, "strips leave nothing out");
                let count = into.len().min(*next.next().unwrap());
                into[..count].copy_from_slice(&object[at as usize..at as usize + count]);
                strips.arrived(count);
                at += count as u64;
            }
            prop_assert_eq!(at, pair[1]);
            prop_assert_eq!(strips.summed, strips.sums.len());
            for sum in strips.into_sums() {
                crcs[sum.target].append(&sum.crc);
            }
        }
        for (target, crc) in targets.iter().zip(&crcs) {
            let frame = &object[target.from.range.start as usize..target.from.range.end as usize];
            let buffer = target.segment.reserve(target.offset, target.from.bytes()).unwrap();
            prop_assert_eq!(buffer.as_slice(), frame);
            prop_assert_eq!(crc.value(), crc32c(&frame[64..]));
            prop_assert_eq!(crc.bytes(), frame.len() as u64 - 64);
        }
    }
}

#[test]
fn frames_side_by_side_share_a_strip() {
    let segment = Segment::create("test", SEGMENT, &MemoryLimits::default()).unwrap();
    let targets = targets(&segment, &[128, 192, 64], &[false, false, true]);
    let whole = 640..640 + 384;
    let strips = Strips::new(&targets, &whole).unwrap();
    let all: Vec<_> = strips
        .reserved
        .iter()
        .map(|(at, buffer)| (*at, buffer.length()))
        .collect();
    assert_eq!(all, [(640, 320), (960, 64)]);
}
