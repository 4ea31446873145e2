//! The rank's side of a segment: mapped read-only after its seals are checked.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{fcntl_get_seals, fstat};
use rustix::mm::Advice;

use crate::ArenaError;
use crate::mapping::Mapping;
use crate::segment::SEALS;
use batchweave_wire::Dtype;

/// A segment of the daemon, mapped read-only until its last frame is dropped.
pub struct MappedSegment {
    map: Mapping,
}

impl MappedSegment {
    /// Maps a segment received with a `segment` message, and closes the descriptor.
    pub fn map(fd: OwnedFd, bytes: u64) -> Result<Arc<Self>, ArenaError> {
        let refused = |reason: String| ArenaError::Untrusted { reason };
        let seals =
            fcntl_get_seals(&fd).map_err(|e| refused(format!("it is not a memfd ({e})")))?;
        if !seals.contains(SEALS) {
            return Err(refused(format!(
                "its seals are {seals:?}, expected {SEALS:?}"
            )));
        }
        let size = fstat(&fd)
            .map_err(|e| refused(format!("fstat: {e}")))?
            .st_size;
        if bytes == 0 || u64::try_from(size) != Ok(bytes) {
            return Err(refused(format!(
                "it has {size} bytes, the message says {bytes}"
            )));
        }
        let failed = |source| ArenaError::Segment {
            name: "received".into(),
            bytes,
            call: "mmap",
            source,
        };
        let map = Mapping::new(fd.as_fd(), bytes as usize, false).map_err(failed)?;
        map.advise(0, map.len(), Advice::LinuxDontFork)
            .map_err(failed)?;
        // Where it fails (before Linux 5.14), pages are mapped one by one at first use.
        let _ = map.advise(0, map.len(), Advice::LinuxPopulateRead);
        Ok(Arc::new(Self { map }))
    }

    /// Returns the segment's size in bytes.
    pub fn bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Returns the frame at `offset`, which the daemon has delivered to this rank.
    pub fn frame(self: &Arc<Self>, offset: u64, length: u64) -> Result<FrameView, ArenaError> {
        let bytes = self.bytes();
        if offset.checked_add(length).is_none_or(|end| end > bytes) {
            return Err(ArenaError::Range {
                offset,
                length,
                bytes,
            });
        }
        Ok(FrameView {
            segment: Arc::clone(self),
            offset: offset as usize,
            length: length as usize,
        })
    }
}

/// The bytes of one frame. It keeps the mapping alive, but not the frame's contents: those are stable
/// until this rank sends the release.
pub struct FrameView {
    segment: Arc<MappedSegment>,
    offset: usize,
    length: usize,
}

impl FrameView {
    /// Returns all bytes of the frame's data.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: nothing in this process can write to a read-only mapping, and the daemon leaves the
        // frame alone until its release (rule 4).
        unsafe { self.segment.map.bytes(self.offset, self.length) }
    }

    /// Returns `count` elements from byte `at` of the frame; `None` if they leave it or are not aligned.
    pub fn elements<T: Element>(&self, at: u64, count: u64) -> Option<&[T]> {
        let size = size_of::<T>() as u64;
        let end = count.checked_mul(size)?.checked_add(at)?;
        let bytes = self
            .bytes()
            .get(usize::try_from(at).ok()?..usize::try_from(end).ok()?)?;
        // SAFETY: every bit pattern is a value of an `Element`, a sealed set of plain numbers.
        let (head, elements, tail) = unsafe { bytes.align_to::<T>() };
        (head.is_empty() && tail.is_empty()).then_some(elements)
    }
}

mod sealed {
    /// Keeps `Element` to the types of this crate.
    pub trait Sealed {}
}

/// A number that is read in place from shared memory; little-endian machines only.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The element types of layouts that may be read as `Self`.
    const DTYPES: &'static [Dtype];
}

macro_rules! elements {
    ($($type:ty: $($dtype:ident)|+,)+) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPES: &'static [Dtype] = &[$(Dtype::$dtype),+];
        }
    )+};
}

// Booleans and half floats are read as integers of their size: not every byte is a `bool`.
elements! {
    u8: U8 | Bool,
    i8: I8,
    u16: U16 | F16 | BF16,
    i16: I16,
    u32: U32,
    i32: I32,
    u64: U64,
    i64: I64,
    f32: F32,
    f64: F64,
}

#[cfg(target_endian = "big")]
compile_error!("slices are little-endian and read in place");
