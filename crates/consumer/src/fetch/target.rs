//! A frame to read, and a frame that was read.

use std::sync::Arc;

use batchweave_arena::{FrameBuf, Segment};
use batchweave_core::tgb::ranges::{Read, coalesce};
use batchweave_wire::Fault;

use crate::engine::layouts::Shape;
use crate::engine::location::{FrameId, Location};

/// A frame to read, and its destination.
pub(crate) struct Target {
    pub(crate) id: FrameId,
    pub(crate) from: Location,
    pub(crate) segment: Arc<Segment>,
    /// First byte in the segment.
    pub(crate) offset: u64,
}

impl Target {
    /// The read of this frame alone.
    pub(super) fn read(&self) -> Read {
        let mut reads = coalesce(&[self.from.frame(self.id)], u64::MAX);
        reads.swap_remove(0)
    }
}

/// A verified frame in the arena.
pub(crate) struct Loaded {
    pub(crate) shape: Arc<Shape>,
    /// CRC32C of the payload.
    pub(crate) crc: u32,
    /// Prevents writes to the frame's bytes for as long as the frame is in use.
    pub(super) _reserved: FrameBuf,
}

/// The result of fetching a frame.
pub(crate) type Outcome = Result<Arc<Loaded>, Arc<Fault>>;
