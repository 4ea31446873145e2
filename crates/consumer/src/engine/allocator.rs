//! Allocation of frames in the arena's segments: first fit over the free ranges. Pure.
//!
//! Invariants: free ranges of a segment never touch or overlap; everything is a multiple of
//! `ALIGN`, so that frames, and the data in them, start 64-byte aligned.

use std::collections::BTreeMap;

/// The alignment of frames, in bytes.
pub(crate) const ALIGN: u64 = 64;

/// The bytes of a frame in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrameRegion {
    /// Index of the segment.
    pub(crate) segment: u32,
    /// First byte in it.
    pub(crate) offset: u64,
    /// Length, a multiple of `ALIGN`.
    pub(crate) bytes: u64,
}

/// The free ranges of all segments.
#[derive(Debug, Default)]
pub(crate) struct ArenaAllocator {
    free: Vec<BTreeMap<u64, u64>>,
    sizes: Vec<u64>,
    used: u64,
}

impl ArenaAllocator {
    /// Adds an empty segment of `bytes` and returns its index.
    pub(crate) fn add_segment(&mut self, bytes: u64) -> u32 {
        let bytes = bytes - bytes % ALIGN;
        self.free.push(BTreeMap::from([(0, bytes)]));
        self.sizes.push(bytes);
        self.free.len() as u32 - 1
    }

    /// The number of bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// The number of bytes of all segments.
    pub(crate) fn total(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// Whether `count` regions of `bytes` each could be allocated.
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

    /// Allocates `bytes` in the first free range that is long enough; `None` if there is none.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Option<FrameRegion> {
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
            return Some(FrameRegion {
                segment,
                offset,
                bytes,
            });
        }
        None
    }

    /// Frees a region and joins it with its free neighbours. Panics if it is free already.
    pub(crate) fn free(&mut self, region: FrameRegion) {
        let free = &mut self.free[region.segment as usize];
        let (mut offset, mut bytes) = (region.offset, region.bytes);
        if let Some((&before, &length)) = free.range(..offset).next_back() {
            assert!(before + length <= offset, "{region:?} was freed twice");
            if before + length == offset {
                free.remove(&before);
                (offset, bytes) = (before, length + bytes);
            }
        }
        let after = free.range(offset..).next();
        let apart = after.is_none_or(|(next, _)| *next >= offset + bytes);
        assert!(apart, "{region:?} was freed twice");
        if let Some(length) = free.remove(&(offset + bytes)) {
            bytes += length;
        }
        free.insert(offset, bytes);
        self.used -= region.bytes;
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn first_fit_then_nothing_left() {
        let mut arena = ArenaAllocator::default();
        arena.add_segment(256);
        let a = arena.allocate(100).unwrap();
        let b = arena.allocate(128).unwrap();
        assert_eq!((a.offset, a.bytes, b.offset), (0, 128, 128));
        assert_eq!(arena.allocate(1), None);
        assert!(!arena.fits(1, 1));
        arena.free(a);
        arena.free(b);
        assert!(arena.fits(4, 64) && arena.fits(2, 65) && !arena.fits(3, 65));
        assert_eq!(arena.allocate(256).unwrap().offset, 0, "neighbours joined");
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_is_caught() {
        let mut arena = ArenaAllocator::default();
        arena.add_segment(256);
        let region = arena.allocate(64).unwrap();
        arena.free(region);
        arena.free(region);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_a_part_of_a_free_range_is_caught() {
        let mut arena = ArenaAllocator::default();
        arena.add_segment(256);
        let region = arena.allocate(64).unwrap();
        arena.free(region);
        arena.free(FrameRegion {
            offset: 64,
            ..region
        });
    }

    #[test]
    fn random_use_never_overlaps_and_comes_back_whole() {
        for seed in 0..20 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut arena = ArenaAllocator::default();
            (0..3).for_each(|_| assert!(arena.add_segment(64 * 100) < 3));
            let mut held: Vec<FrameRegion> = Vec::new();
            for _ in 0..2000 {
                if random.random_bool(0.5) {
                    if let Some(new) = arena.allocate(random.random_range(1..1000)) {
                        let overlaps = |p: &FrameRegion| {
                            p.segment == new.segment
                                && p.offset < new.offset + new.bytes
                                && new.offset < p.offset + p.bytes
                        };
                        assert!(!held.iter().any(overlaps), "seed {seed}");
                        held.push(new);
                    }
                } else if !held.is_empty() {
                    let at = random.random_range(0..held.len());
                    arena.free(held.swap_remove(at));
                }
                assert_eq!(
                    arena.used(),
                    held.iter().map(|p| p.bytes).sum::<u64>(),
                    "seed {seed}"
                );
            }
            held.drain(..).for_each(|p| arena.free(p));
            for _ in 0..3 {
                assert!(arena.allocate(64 * 100).is_some(), "seed {seed}");
            }
        }
    }
}
