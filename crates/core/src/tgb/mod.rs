//! Transactional global batches (TGBs) as stored: slice frames, an index and a trailer in an object, and
//! their description in the log. The format is docs/format.md; each of its rules is a [`Fault`].
//!
//! Invariants:
//! - Every number is little-endian; every frame starts 64-byte aligned, and so does its payload and
//!   the payload's array data.
//! - Every byte of an object is covered by a checksum or must be zero.
//! - A frame names its stream, producer, epoch, TGB and slice, and readers check them.
//! - No input bytes cause a panic.

mod bins;
mod build;
mod error;
mod frame;
mod index;
mod layout;
mod object;
mod part;
pub mod ranges;
mod trailer;

pub use bins::bin_ranges;
pub use build::{BuildError, Object, ObjectBuilder, Packed, SliceRun, TgbData, pack};
pub use error::{Fault, FrameLocation, TgbError};
pub use frame::{Expect, FrameHeader, verify, verify_summed};
pub use index::IndexEntry;
pub use layout::{Array, Dtype, Layout, LayoutError};
pub use object::{Contents, check_object};
pub use part::{Digest, ObjectPart, PartError, SliceCost, TgbRecord};
pub use trailer::Trailer;

use crate::ids::{Epoch, Hash, ProducerName, StreamId};

/// Alignment of frames, payloads and array data, in bytes.
pub const ALIGN_BYTES: u64 = 64;
/// Bytes of a frame's header.
pub const HEADER_BYTES: u64 = 64;
/// Bytes of one entry of an object's index.
pub const ENTRY_BYTES: u64 = 40;
/// Bytes of the trailer, which ends an object.
pub const TRAILER_BYTES: u64 = 64;
/// Version of frames, index and trailer; the last byte of their magic numbers.
pub const TGB_VERSION: u8 = 1;

const _: () = {
    assert!(
        HEADER_BYTES.is_multiple_of(ALIGN_BYTES),
        "a payload follows its header aligned"
    );
    assert!(ENTRY_BYTES.is_multiple_of(8) && TRAILER_BYTES.is_multiple_of(8));
};

/// The writer of stored bytes; part of every frame and trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub stream: StreamId,
    /// The first 8 bytes of the SHA-256 of the producer's name, as a number.
    pub producer: u64,
    pub epoch: Epoch,
}

impl Identity {
    /// Returns the identity of objects that `producer` writes in `epoch`.
    pub fn new(stream: StreamId, producer: &ProducerName, epoch: Epoch) -> Self {
        let hash = Hash::sha256(producer.as_str().as_bytes()).0;
        let first = u64::from_le_bytes(bytes_at(&hash, 0));
        Self {
            stream,
            producer: first,
            epoch,
        }
    }
}

/// Bytes of a frame with a payload of `payload` bytes, padding included; `None` beyond u64.
pub fn frame_bytes(payload: u64) -> Option<u64> {
    payload
        .checked_next_multiple_of(ALIGN_BYTES)?
        .checked_add(HEADER_BYTES)
}

/// `N` bytes at `at`; zeros beyond the end, so that no length that a caller got wrong can panic.
fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(found) = bytes.get(at..at.saturating_add(N)) {
        out.copy_from_slice(found);
    }
    out
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

#[cfg(test)]
mod tests;
