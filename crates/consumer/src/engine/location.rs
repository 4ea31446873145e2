//! The locations of frames in the store: which parts of a step a node needs, and what it knows of each step.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::{Seq, Step};
use batchweave_core::manifest::StepEntry;
use batchweave_core::tgb::ranges::{Frame, PartSlices, part_slices};
use batchweave_core::tgb::{Expect, Identity};

/// Slices per block. Locations are read block by block, 40 KiB of index entries each, so that ranks of one node
/// with nearby slices share a read.
const BLOCK: u32 = 1024;

/// One slice of one step: the unit of fetching and of release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FrameId {
    pub(crate) step: Step,
    pub(crate) slice: u32,
}

/// The location of a frame in the store, and the identity that its header must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) key: Arc<str>,
    /// The bytes of header, payload and padding.
    pub(crate) range: Range<u64>,
    pub(crate) identity: Identity,
    pub(crate) seq: Seq,
}

impl Location {
    pub(crate) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The header fields that the frame must have.
    pub(crate) fn expect(&self, id: FrameId) -> Expect<'_> {
        Expect {
            key: &self.key,
            step: Some(id.step),
            identity: self.identity,
            seq: self.seq,
            slice: id.slice,
        }
    }

    /// The frame as input of `coalesce`.
    pub(crate) fn frame(&self, id: FrameId) -> Frame<'_> {
        Frame {
            step: id.step,
            seq: self.seq,
            slice: id.slice,
            key: &self.key,
            range: self.range.clone(),
        }
    }
}

/// The known locations of one step's slices: runs of slices, each in one object, by their first slice.
#[derive(Debug, Clone, Default)]
pub(crate) struct SliceLocations(BTreeMap<u32, Arc<[Location]>>);

impl SliceLocations {
    /// Adds the slices from `first` on, and replaces runs that begin within them.
    pub(crate) fn add(&mut self, first: u32, frames: Arc<[Location]>) {
        let end = first.saturating_add(frames.len() as u32);
        self.0.retain(|old, _| !(first..end).contains(old));
        self.0.insert(first, frames);
    }

    /// The location of a slice, if known.
    pub(crate) fn at(&self, slice: u32) -> Option<&Location> {
        let (first, frames) = self.0.range(..=slice).next_back()?;
        frames.get((slice - first) as usize)
    }

    /// Whether all of `slices` are located.
    pub(crate) fn cover(&self, slices: &Range<u32>) -> bool {
        let mut next = slices.start;
        while next < slices.end {
            let run = self.0.range(..=next).next_back();
            let end = run.map_or(0, |(first, frames)| first + frames.len() as u32);
            if end <= next {
                return false;
            }
            next = end;
        }
        true
    }

    /// Whether a located slice lies in the object.
    pub(crate) fn lie_in(&self, key: &str) -> bool {
        let first = |frames: &Arc<[Location]>| frames.first().is_some_and(|at| &*at.key == key);
        self.0.values().any(first)
    }
}

/// Returns the blocks of `entry` that contain some of `slices`, in order. `slices` are sorted and do not overlap.
pub(crate) fn blocks<'e>(entry: &'e StepEntry, slices: &[Range<u32>]) -> Vec<PartSlices<'e>> {
    let mut blocks: Vec<PartSlices<'e>> = Vec::new();
    for range in slices {
        for cut in part_slices(entry.step, entry.seq, &entry.tgb, range.clone()) {
            let part = cut.part;
            let mut first = cut.slices.start - (cut.slices.start - part.first_slice) % BLOCK;
            while first < cut.slices.end {
                let slices = first..part.end_slice().min(first + BLOCK);
                first = slices.end;
                // A block that two ranges share is the last block of the first range.
                if blocks.last().is_none_or(|last| last.slices != slices) {
                    blocks.push(PartSlices {
                        slices,
                        ..cut.clone()
                    });
                }
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use batchweave_core::ids::StreamId;
    use batchweave_core::tgb::{Digest, ObjectPart, TgbRecord};

    use super::*;

    fn location(key: &str) -> Location {
        Location {
            key: key.into(),
            range: 0..64,
            identity: Identity {
                stream: StreamId([0; 16]),
                producer: 0,
                epoch: 1,
            },
            seq: 0,
        }
    }

    fn frames(key: &str, count: usize) -> Arc<[Location]> {
        vec![location(key); count].into()
    }

    #[test]
    fn places_know_what_they_cover() {
        let mut places = SliceLocations::default();
        assert!(!places.cover(&(0..1)) && places.cover(&(3..3)));
        places.add(4, frames("b", 4));
        places.add(0, frames("a", 2));
        assert!(places.cover(&(4..8)) && places.cover(&(0..2)));
        for gap in [0..3, 2..4, 3..5, 7..9] {
            assert!(!places.cover(&gap), "{gap:?}");
        }
        places.add(2, frames("a", 2));
        assert!(places.cover(&(0..8)));
        assert_eq!(places.at(5).map(|at| &*at.key), Some("b"));
        assert_eq!((places.at(8), places.lie_in("c")), (None, false));
        // A whole block after runs of it that had gaps between them.
        places.add(0, frames("a", 4));
        places.add(10, frames("b", 1));
        places.add(0, frames("d", 12));
        assert!(places.cover(&(0..12)) && !places.lie_in("b"));
    }

    #[test]
    fn only_parts_that_hold_the_slices_are_read_in_whole_blocks() {
        let part = |key: &str, first_slice, slices| ObjectPart {
            key: key.to_owned(),
            offset: 0,
            length: u64::from(slices) * 128,
            first_slice,
            slices,
            frame_bytes: None,
            index: Some(u64::from(slices) * 128),
        };
        let entry = StepEntry {
            step: 7,
            producer: "p".parse().unwrap(),
            epoch: 1,
            seq: 3,
            version: 2,
            tgb: TgbRecord {
                rows: 1,
                tokens: 1,
                digest: Digest([0; 32]),
                parts: vec![part("a", 0, 8), part("b", 8, 3000), part("c", 3008, 2)],
                provenance: None,
                cost: None,
            },
        };
        let found = |slices: &[Range<u32>]| -> Vec<(String, Range<u32>)> {
            let blocks = blocks(&entry, slices);
            let short = |block: PartSlices<'_>| (block.part.key.clone(), block.slices);
            blocks.into_iter().map(short).collect()
        };
        let blocks = |list: &[(&str, Range<u32>)]| -> Vec<(String, Range<u32>)> {
            let owned = |(key, slices): &(&str, Range<u32>)| ((*key).to_owned(), slices.clone());
            list.iter().map(owned).collect()
        };
        assert_eq!(found(std::slice::from_ref(&(3..4))), blocks(&[("a", 0..8)]));
        assert_eq!(
            found(&[0..1, 5..6]),
            blocks(&[("a", 0..8)]),
            "one read for two ranks"
        );
        let second = [("b", 1032..2056), ("b", 2056..3008), ("c", 3008..3010)];
        assert_eq!(found(&[1040..1041, 2055..3009]), blocks(&second));
    }
}
