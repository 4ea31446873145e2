//! Where the bytes of one request go: strips of the arena, and the checksums of the frames.
//!
//! Invariant: bytes are taken in the order of the object, each once.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchweave_arena::{ArenaError, FrameBuf};
use batchweave_core::crc::Crc32c;
use batchweave_core::tgb::HEADER_BYTES;

use super::Target;

/// Bytes that are read and summed at a time: a part of a core's own cache.
const CHUNK_BYTES: usize = 256 << 10;

/// The part of a frame behind its header that one request reads, and its checksum so far.
pub(super) struct Sum {
    /// The frame's place among the targets.
    pub(super) target: usize,
    pub(super) crc: Crc32c,
    range: Range<u64>,
}

/// The destinations of the bytes of a range, and how far they are filled.
pub(super) struct Strips {
    /// Reserved ranges of the arena, each with the offset of its first byte in the object. Frames that are neighbours in
    /// the arena, too, share one.
    reserved: Vec<(u64, FrameBuf)>,
    /// The first range that is not full, and its filled bytes.
    open: usize,
    filled: usize,
    sums: Vec<Sum>,
    /// Sums that have all their bytes.
    summed: usize,
    summing: Duration,
}

impl Strips {
    /// Reserves the places of `range` of the object in the arena.
    pub(super) fn new(targets: &[Target], range: &Range<u64>) -> Result<Self, ArenaError> {
        Ok(Self {
            reserved: reserved(targets, range)?,
            open: 0,
            filled: 0,
            sums: sums(targets, range),
            summed: 0,
            summing: Duration::ZERO,
        })
    }

    /// Returns the offset in the object of the next byte to write; `None` when all are written.
    pub(super) fn next_byte(&self) -> Option<u64> {
        let (start, _) = self.reserved.get(self.open)?;
        Some(start + self.filled as u64)
    }

    /// Returns the place of the next bytes, and their offset in the object.
    pub(super) fn next_chunk(&mut self) -> Option<(u64, &mut [u8])> {
        let at = self.next_byte()?;
        let (_, buffer) = self.reserved.get_mut(self.open)?;
        let into = &mut buffer.as_mut_slice()[self.filled..];
        let most = into.len().min(CHUNK_BYTES);
        Some((at, &mut into[..most]))
    }

    /// Sums the `count` bytes that were written to the place of the next ones, which go behind them.
    pub(super) fn arrived(&mut self, count: usize) {
        let Some((start, buffer)) = self.reserved.get(self.open) else {
            return;
        };
        let arrived = Instant::now();
        let (at, end) = (start + self.filled as u64, self.filled + count);
        let bytes = &buffer.as_slice()[self.filled..end];
        self.summed += add(&mut self.sums[self.summed..], at, bytes);
        self.summing += arrived.elapsed();
        let full = end as u64 == buffer.length();
        (self.open, self.filled) = if full {
            (self.open + 1, 0)
        } else {
            (self.open, end)
        };
    }

    /// Returns the time that checksums have taken.
    pub(super) fn summing(&self) -> Duration {
        self.summing
    }

    pub(super) fn into_sums(self) -> Vec<Sum> {
        self.sums
    }
}

fn inside<'a>(
    targets: &'a [Target],
    range: &Range<u64>,
) -> impl Iterator<Item = (usize, &'a Target, Range<u64>)> {
    let range = range.clone();
    targets.iter().enumerate().filter_map(move |(n, target)| {
        let from = &target.from.range;
        let part = from.start.max(range.start)..from.end.min(range.end);
        (part.start < part.end).then_some((n, target, part))
    })
}

fn sums(targets: &[Target], range: &Range<u64>) -> Vec<Sum> {
    let sum = |(n, target, part): (usize, &Target, Range<u64>)| Sum {
        target: n,
        range: part.start.max(target.from.range.start + HEADER_BYTES)..part.end,
        crc: Crc32c::new(),
    };
    inside(targets, range).map(sum).collect()
}

/// Adds the bytes at `at` in the object to the sums that they are part of. Returns the number of sums that end
/// with these bytes.
fn add(sums: &mut [Sum], at: u64, bytes: &[u8]) -> usize {
    let end = at + bytes.len() as u64;
    let mut passed = 0;
    for sum in sums {
        let part = sum.range.start.max(at)..sum.range.end.min(end);
        if part.start < part.end {
            let (first, last) = ((part.start - at) as usize, (part.end - at) as usize);
            sum.crc.update(&bytes[first..last]);
        }
        if sum.range.end > end {
            break;
        }
        passed += 1;
    }
    passed
}

fn reserved(targets: &[Target], range: &Range<u64>) -> Result<Vec<(u64, FrameBuf)>, ArenaError> {
    let mut all: Vec<(u64, &Target, Range<u64>)> = Vec::new();
    for (_, target, part) in inside(targets, range) {
        let offset = target.offset + (part.start - target.from.range.start);
        let place = offset..offset + (part.end - part.start);
        match all.last_mut() {
            Some((_, last, strip))
                if Arc::ptr_eq(&last.segment, &target.segment) && strip.end == place.start =>
            {
                strip.end = place.end;
            }
            _ => all.push((part.start, target, place)),
        }
    }
    let buffer = |(start, target, place): (u64, &Target, Range<u64>)| {
        let bytes = place.end - place.start;
        Ok((start, target.segment.reserve(place.start, bytes)?))
    };
    all.into_iter().map(buffer).collect()
}

#[cfg(test)]
mod tests;
