//! Which bytes of the arena's segments are in use: first fit over the free ranges. Pure.
//!
//! Invariants: free ranges of a segment never touch or overlap; everything is a multiple of
//! `ALIGN`, so that frames, and the data in them, start 64-byte aligned.

use std::collections::BTreeMap;

/// Frames start at multiples of this.
pub(crate) const ALIGN: u64 = 64;

/// A range of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Index of the segment.
    pub(crate) segment: u32,
    /// First byte in it.
    pub(crate) offset: u64,
    /// Length, a multiple of `ALIGN`.
    pub(crate) bytes: u64,
}

/// The free space of all segments.
#[derive(Debug, Default)]
pub(crate) struct Space {
    free: Vec<BTreeMap<u64, u64>>,
    sizes: Vec<u64>,
    used: u64,
}

impl Space {
    /// Adds an empty segment of `bytes` and says its index.
    pub(crate) fn add_segment(&mut self, bytes: u64) -> u32 {
        let bytes = bytes - bytes % ALIGN;
        self.free.push(BTreeMap::from([(0, bytes)]));
        self.sizes.push(bytes);
        self.free.len() as u32 - 1
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of all segments.
    pub(crate) fn total(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// Whether so many places of `bytes` each are free.
    pub(crate) fn fits(&self, count: u64, bytes: u64) -> bool {
        let bytes = bytes.next_multiple_of(ALIGN);
        let mut left = count;
        for length in self.free.iter().flat_map(BTreeMap::values) {
            left = left.saturating_sub(length / bytes.max(1));
            if left == 0 {
                return true;
            }
        }
        false
    }

    /// Takes `bytes` from the first free range that is long enough.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Place> {
        let bytes = bytes.next_multiple_of(ALIGN);
        for (segment, free) in self.free.iter_mut().enumerate() {
            let fit = free.iter().find(|(_, length)| **length >= bytes);
            let Some((&offset, &length)) = fit else {
                continue;
            };
            free.remove(&offset);
            if length > bytes {
                free.insert(offset + bytes, length - bytes);
            }
            self.used += bytes;
            let segment = segment as u32;
            return Some(Place {
                segment,
                offset,
                bytes,
            });
        }
        None
    }

    /// Gives a place back; its free neighbours join it.
    pub(crate) fn give_back(&mut self, place: Place) {
        let free = &mut self.free[place.segment as usize];
        let (mut offset, mut bytes) = (place.offset, place.bytes);
        if let Some((&before, &length)) = free.range(..offset).next_back() {
            assert!(before + length <= offset, "{place:?} was given back twice");
            if before + length == offset {
                free.remove(&before);
                (offset, bytes) = (before, length + bytes);
            }
        }
        let after = free.range(offset..).next();
        let apart = after.is_none_or(|(next, _)| *next >= offset + bytes);
        assert!(apart, "{place:?} was given back twice");
        if let Some(length) = free.remove(&(offset + bytes)) {
            bytes += length;
        }
        free.insert(offset, bytes);
        self.used -= place.bytes;
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn first_fit_then_nothing_left() {
        let mut space = Space::default();
        space.add_segment(256);
        let a = space.take(100).unwrap();
        let b = space.take(128).unwrap();
        assert_eq!((a.offset, a.bytes, b.offset), (0, 128, 128));
        assert_eq!(space.take(1), None);
        assert!(!space.fits(1, 1));
        space.give_back(a);
        space.give_back(b);
        assert!(space.fits(4, 64) && space.fits(2, 65) && !space.fits(3, 65));
        assert_eq!(space.take(256).unwrap().offset, 0, "neighbours joined");
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn giving_back_twice_is_caught() {
        let mut space = Space::default();
        space.add_segment(256);
        let place = space.take(64).unwrap();
        space.give_back(place);
        space.give_back(place);
        space.give_back(Place {
            offset: 64,
            ..place
        });
    }

    #[test]
    fn random_use_never_overlaps_and_comes_back_whole() {
        for seed in 0..20 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut space = Space::default();
            (0..3).for_each(|_| assert!(space.add_segment(64 * 100) < 3));
            let mut held: Vec<Place> = Vec::new();
            for _ in 0..2000 {
                if random.random_bool(0.5) {
                    if let Some(new) = space.take(random.random_range(1..1000)) {
                        let overlaps = |p: &Place| {
                            p.segment == new.segment
                                && p.offset < new.offset + new.bytes
                                && new.offset < p.offset + p.bytes
                        };
                        assert!(!held.iter().any(overlaps), "seed {seed}");
                        held.push(new);
                    }
                } else if !held.is_empty() {
                    let at = random.random_range(0..held.len());
                    space.give_back(held.swap_remove(at));
                }
                assert_eq!(
                    space.used(),
                    held.iter().map(|p| p.bytes).sum::<u64>(),
                    "seed {seed}"
                );
            }
            held.drain(..).for_each(|p| space.give_back(p));
            for _ in 0..3 {
                assert!(space.take(64 * 100).is_some(), "seed {seed}");
            }
        }
    }
}
