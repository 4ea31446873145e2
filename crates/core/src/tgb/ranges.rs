//! The byte ranges of slices: from the log alone when frames have one size, after one small read of index
//! entries otherwise. Neighbouring frames become one read.

use std::ops::Range;

use super::error::{Fault, FrameLocation, TgbError};
use super::{ENTRY_BYTES, IndexEntry, ObjectPart, TgbRecord, frame_bytes};
use crate::ids::{Seq, Step};

/// Size above which a read is split into pieces that are fetched in parallel: 16 MiB, and room for the
/// headers of frames whose payloads are a round number of bytes together.
pub const PIECE_BYTES_MAX: u64 = with_headers(16 << 20);

/// Returns `payload` bytes and a sixteenth for headers: otherwise the last of 16 slices of 1 MiB would be a
/// read of its own.
pub const fn with_headers(payload: u64) -> u64 {
    payload + payload / 16
}

/// Slices of one TGB that lie in one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartSlices<'a> {
    pub step: Step,
    /// The TGB's number within its producer.
    pub seq: Seq,
    pub part: &'a ObjectPart,
    /// The slices of the part; never empty.
    pub slices: Range<u32>,
}

/// One frame and its location in its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<'a> {
    pub step: Step,
    /// The TGB's number within its producer.
    pub seq: Seq,
    pub slice: u32,
    pub key: &'a str,
    /// The range of the frame in the object.
    pub range: Range<u64>,
}

/// The result of [`PartSlices::locate`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located<'a> {
    /// All frames; no read is needed.
    Frames(Vec<Frame<'a>>),
    /// Read these bytes of the part's object, then call [`PartSlices::from_index`].
    Index(Range<u64>),
}

/// A frame within a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameSlot {
    pub step: Step,
    /// The TGB's number within its producer.
    pub seq: Seq,
    pub slice: u32,
    /// The offset of the frame in the read.
    pub offset: u64,
    pub bytes: u64,
}

/// One ranged read of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub key: String,
    pub range: Range<u64>,
    /// The frames in these bytes, without gaps.
    pub frames: Vec<FrameSlot>,
}

/// Returns the parts of `tgb` that hold some of `slices`. The record has passed [`TgbRecord::check`].
pub fn part_slices(
    step: Step,
    seq: Seq,
    tgb: &TgbRecord,
    slices: Range<u32>,
) -> Vec<PartSlices<'_>> {
    let cut =
        |part: &ObjectPart| part.first_slice.max(slices.start)..part.end_slice().min(slices.end);
    let parts = tgb.parts.iter().map(|part| (part, cut(part)));
    let held = parts.filter(|(_, slices)| !slices.is_empty());
    held.map(|(part, slices)| PartSlices {
        step,
        seq,
        part,
        slices,
    })
    .collect()
}

impl<'a> PartSlices<'a> {
    /// Returns the frames, or the index range to read first.
    pub fn locate(&self) -> Located<'a> {
        let part = self.part;
        let at = |slice: u32| u64::from(slice.saturating_sub(part.first_slice));
        if let Some(size) = part.frame_bytes {
            let frame = |slice| {
                let start = part.offset.saturating_add(at(slice).saturating_mul(size));
                self.frame(slice, start..start.saturating_add(size))
            };
            return Located::Frames(self.slices.clone().map(frame).collect());
        }
        let index = part.index.unwrap_or(part.end());
        let entry = |slice| index.saturating_add(at(slice) * ENTRY_BYTES);
        Located::Index(entry(self.slices.start)..entry(self.slices.end))
    }

    /// Returns the frames, from the index entries that [`Located::Index`] requested.
    pub fn from_index(&self, bytes: &[u8]) -> Result<Vec<Frame<'a>>, TgbError> {
        let need = self.slices.len() as u64 * ENTRY_BYTES;
        if bytes.len() as u64 != need {
            let fault = Fault::Truncated {
                what: "the index",
                need,
                have: bytes.len() as u64,
            };
            return Err(self.error(self.slices.start, fault));
        }
        let entries = bytes.chunks(ENTRY_BYTES as usize).zip(self.slices.clone());
        let frames = entries.map(|(bytes, slice)| self.frame_of(slice, bytes));
        frames.collect()
    }

    /// Returns the frame of one slice, from the bytes of its index entry.
    pub fn frame_of(&self, slice: u32, entry: &[u8]) -> Result<Frame<'a>, TgbError> {
        self.entry(entry, slice)
            .map_err(|fault| self.error(slice, fault))
    }

    fn entry(&self, bytes: &[u8], slice: u32) -> Result<Frame<'a>, Fault> {
        let entry = IndexEntry::decode(bytes)?;
        let what = "an index entry";
        if entry.seq != self.seq {
            return Err(Fault::Seq {
                what,
                expected: self.seq,
                found: entry.seq,
            });
        }
        if entry.slice != slice {
            return Err(Fault::Slice {
                what,
                expected: slice,
                found: entry.slice,
            });
        }
        let start = entry.offset;
        let end = frame_bytes(entry.payload_bytes).map_or(u64::MAX, |n| start.saturating_add(n));
        if start < self.part.offset || end > self.part.end() {
            return Err(Fault::Offset { start, end });
        }
        Ok(self.frame(slice, start..end))
    }

    fn frame(&self, slice: u32, range: Range<u64>) -> Frame<'a> {
        Frame {
            step: self.step,
            seq: self.seq,
            slice,
            key: &self.part.key,
            range,
        }
    }

    fn error(&self, slice: u32, fault: Fault) -> TgbError {
        let place = FrameLocation {
            key: self.part.key.clone(),
            step: Some(self.step),
            seq: Some(self.seq),
            slice: Some(slice),
        };
        TgbError {
            place: Box::new(place),
            fault,
        }
    }
}

/// Joins adjacent frames of one object, up to `read_bytes` per read (a frame is never split here). Keeps
/// the order of `frames`, so that the first frames needed are read first.
pub fn coalesce(frames: &[Frame<'_>], read_bytes: u64) -> Vec<Read> {
    let mut reads: Vec<Read> = Vec::new();
    for frame in frames {
        let bytes = frame.range.end - frame.range.start;
        let slot = |offset| {
            let Frame {
                step, seq, slice, ..
            } = *frame;
            FrameSlot {
                step,
                seq,
                slice,
                offset,
                bytes,
            }
        };
        match reads
            .last_mut()
            .filter(|read| read.takes(frame, read_bytes))
        {
            Some(read) => {
                read.frames.push(slot(read.bytes()));
                read.range.end = frame.range.end;
            }
            None => reads.push(Read {
                key: frame.key.to_owned(),
                range: frame.range.clone(),
                frames: vec![slot(0)],
            }),
        }
    }
    reads
}

impl Read {
    /// Returns the number of bytes to read.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn takes(&self, frame: &Frame<'_>, read_bytes: u64) -> bool {
        self.key == frame.key
            && self.range.end == frame.range.start
            && frame.range.end - self.range.start <= read_bytes
    }

    /// Returns the read as pieces to fetch in parallel: one up to 17 MiB, else each 8 to 17 MiB.
    pub fn pieces(&self) -> Vec<Range<u64>> {
        let count = self.bytes().div_ceil(PIECE_BYTES_MAX).max(1);
        let size = self
            .bytes()
            .div_ceil(count)
            .next_multiple_of(super::ALIGN_BYTES);
        let piece = |i: u64| {
            let start = self.range.start + i * size;
            start.min(self.range.end)..(start + size).min(self.range.end)
        };
        (0..count).map(piece).collect()
    }
}

#[cfg(test)]
mod tests;
