//! The daemon's side of a segment: created, populated, sealed, and written through reserved ranges.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod, fcntl_add_seals,
    ftruncate, memfd_create,
};
use rustix::mm::Advice;

use crate::mapping::Mapping;
use crate::{ArenaError, MemoryLimits};

/// Seals of every segment before its descriptor is sent.
pub(crate) const SEALS: SealFlags = SealFlags::FUTURE_WRITE
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Bytes populated between two checks of the limits.
const POPULATE_BYTES: u64 = 64 << 20;

/// The kind of pages of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// The machine's usual pages.
    Small,
    /// Huge pages where the kernel provides them, otherwise small ones.
    HugeIfAny,
    /// Huge pages that an administrator has reserved; otherwise creation fails.
    HugeReserved,
}

/// A segment of the arena with its only writable mapping.
pub struct Segment {
    map: Mapping,
    not_huge: Option<io::Error>,
    fd: OwnedFd,
    /// Offset and length of each reserved range; they never overlap.
    reserved: Mutex<BTreeMap<u64, u64>>,
}

impl Segment {
    /// Creates and populates a segment of small pages. The name is shown in `/proc/*/maps`. Fails when
    /// memory limits leave too little.
    pub fn create(name: &str, bytes: u64, limits: &MemoryLimits) -> Result<Arc<Self>, ArenaError> {
        Self::create_with(name, bytes, limits, Pages::Small, None)
    }

    /// Creates a segment with a kind of pages, optionally bound to one memory node.
    pub fn create_with(
        name: &str,
        bytes: u64,
        limits: &MemoryLimits,
        pages: Pages,
        node: Option<u32>,
    ) -> Result<Arc<Self>, ArenaError> {
        let failed = |call: &'static str| {
            move |source: io::Error| ArenaError::Segment {
                name: name.to_owned(),
                bytes,
                call,
                source,
            }
        };
        if bytes == 0 {
            return Err(failed("size")(io::ErrorKind::InvalidInput.into()));
        }
        // Reserved pages do not count against the limits.
        let reserved = pages == Pages::HugeReserved;
        if !reserved {
            limits.check(bytes)?;
        }
        let writable = anonymous_file(name, reserved).map_err(failed("memfd_create"))?;
        ftruncate(&writable, bytes).map_err(|e| failed("ftruncate")(e.into()))?;
        let len = usize::try_from(bytes)
            .map_err(|_| failed("mmap")(io::ErrorKind::OutOfMemory.into()))?;
        let map = Mapping::new(writable.as_fd(), len, true).map_err(|why| match why.kind() {
            io::ErrorKind::OutOfMemory if reserved => ArenaError::NoHugePages { bytes },
            _ => failed("mmap")(why),
        })?;
        if let Some(node) = node {
            map.bind(node).map_err(failed("mbind"))?;
        }
        for at in (0..bytes).step_by(POPULATE_BYTES as usize) {
            let part = POPULATE_BYTES.min(bytes - at);
            if !reserved {
                limits.check(part)?;
            }
            populate(&map, &writable, at, part).map_err(failed("populate"))?;
        }
        let not_huge = match pages {
            Pages::HugeIfAny => map.collapse().err(),
            Pages::Small | Pages::HugeReserved => None,
        };
        let fd = seal(&writable).map_err(failed("seal"))?;
        Ok(Arc::new(Self {
            map,
            not_huge,
            fd,
            reserved: Mutex::default(),
        }))
    }

    /// Returns the segment's size in bytes.
    pub fn bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Returns why huge pages were requested but not provided.
    pub fn not_huge(&self) -> Option<&io::Error> {
        self.not_huge.as_ref()
    }

    /// Reserves a range for writing. Reserved ranges never overlap: a bug in the allocator is an error here instead of
    /// wrong tokens in a trainer.
    pub fn reserve(self: &Arc<Self>, offset: u64, length: u64) -> Result<FrameBuf, ArenaError> {
        let bytes = self.bytes();
        let end = offset
            .checked_add(length)
            .filter(|&end| end <= bytes && length > 0);
        let Some(end) = end else {
            return Err(ArenaError::Range {
                offset,
                length,
                bytes,
            });
        };
        let mut reserved = self.reserved();
        if let Some((&other, &other_length)) = reserved.range(..end).next_back()
            && other + other_length > offset
        {
            return Err(ArenaError::Overlap {
                offset,
                length,
                other,
                other_length,
            });
        }
        reserved.insert(offset, length);
        Ok(FrameBuf {
            segment: Arc::clone(self),
            offset,
            length,
        })
    }

    fn reserved(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The read-only, sealed descriptor to send to ranks.
impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Creates a memfd. Kernels from 6.3 expect the flag that it is not executable; older ones refuse the flag.
fn anonymous_file(name: &str, reserved: bool) -> io::Result<OwnedFd> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    flags.set(MemfdFlags::HUGETLB, reserved);
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(rustix::io::Errno::INVAL) => Ok(memfd_create(name, flags)?),
        other => Ok(other?),
    }
}

/// Allocates pages; before Linux 5.14 without mapping them.
fn populate(map: &Mapping, fd: &OwnedFd, at: u64, len: u64) -> io::Result<()> {
    match map.advise(at as usize, len as usize, Advice::LinuxPopulateWrite) {
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
            Ok(fallocate(fd, FallocateFlags::empty(), at, len)?)
        }
        other => other,
    }
}

/// Opens a read-only descriptor for ranks. It alone is not enough: a receiver could reopen a memfd of mode 0777 (0666
/// with `NOEXEC_SEAL`) for writing through `/proc`, so the mode becomes 0400, and the seals bind the owner too.
fn seal(writable: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", writable.as_raw_fd());
    let read_only = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    fchmod(writable, Mode::RUSR)?;
    fcntl_add_seals(writable, SEALS)?;
    Ok(read_only)
}

/// Exclusive access to a range of a segment, until it is dropped.
pub struct FrameBuf {
    segment: Arc<Segment>,
    offset: u64,
    length: u64,
}

impl FrameBuf {
    /// Returns the offset of the first byte in the segment.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Writes `bytes` at `at`, counted from the range's first byte.
    pub fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), ArenaError> {
        let length = bytes.len() as u64;
        if at.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(ArenaError::Range {
                offset: at,
                length,
                bytes: self.length,
            });
        }
        let at = at as usize;
        self.as_mut_slice()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Returns the bytes for reading.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: only this object has reserved the range; writing needs `&mut self`.
        unsafe {
            self.segment
                .map
                .bytes(self.offset as usize, self.length as usize)
        }
    }

    /// Returns the bytes for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is writable, reserved ranges don't overlap, and `&mut self` is the only access to
        // this one.
        unsafe {
            self.segment
                .map
                .bytes_mut(self.offset as usize, self.length as usize)
        }
    }
}

impl Drop for FrameBuf {
    fn drop(&mut self) {
        self.segment.reserved().remove(&self.offset);
    }
}
