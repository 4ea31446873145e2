//! A mapped memfd, and the rules for memory that is shared with another process.
//!
//! 1. A segment has one writer: the daemon's own mapping, made before `F_SEAL_FUTURE_WRITE`. Every other
//!    mapping, in any process, is read-only, and the kernel refuses a new writable one.
//! 2. It never changes its size (`F_SEAL_SHRINK`, `F_SEAL_GROW`), and it is populated before use: a mapped
//!    byte is always there, so an access cannot end in SIGBUS. A reader refuses segments without these seals.
//! 3. The daemon creates `&mut [u8]` only through a `FrameBuf`, and no two of them overlap (checked when it is
//!    reserved). So within the daemon the usual rules of references hold.
//! 4. A reader creates `&[T]` only from a frame delivered to it; the daemon leaves a frame alone until
//!    its release or the end of the session. If a daemon broke this, the reader would see torn *numbers*: element
//!    types are plain integers and floats, for which every bit pattern is a value. No length, offset or
//!    pointer is ever read from shared memory.
//! 5. A mapping is unmapped only when its last reference is gone (`Arc`), and a forked child has none
//!    of a reader's mappings (`MADV_DONTFORK`).

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Usual size of a huge page in bytes.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// Not known to rustix yet; Linux 6.1.
const MADV_COLLAPSE: i32 = 25;

/// Returns a free address aligned to huge pages; null where there is none.
fn aligned(len: usize) -> *mut c_void {
    let Some(room) = len.checked_add(HUGE_PAGE) else {
        return null_mut();
    };
    // SAFETY: the kernel chooses the address, the memory is unused, and it is unmapped immediately.
    let found = unsafe {
        mmap_anonymous(null_mut(), room, ProtFlags::empty(), MapFlags::PRIVATE)
            .inspect(|base| _ = munmap(*base, room))
    };
    found.map_or(null_mut(), |base| {
        base.map_addr(|address| address.next_multiple_of(HUGE_PAGE))
    })
}

/// A shared mapping of a whole segment.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and `Mapping` itself has no interior
// mutability: writes go through `bytes_mut`, whose caller guarantees exclusive access.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize, writable: bool) -> io::Result<Self> {
        let write = if writable {
            ProtFlags::WRITE
        } else {
            ProtFlags::empty()
        };
        let hint = if len >= HUGE_PAGE {
            aligned(len)
        } else {
            null_mut()
        };
        // SAFETY: the kernel chooses the address (it ignores a hint that is taken), so no
        // existing mapping is replaced.
        let base = unsafe { mmap(hint, len, ProtFlags::READ | write, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Advises the kernel about the pages at `at`; only for advice that keeps the contents.
    pub(crate) fn advise(&self, at: usize, len: usize, advice: Advice) -> io::Result<()> {
        assert!(
            at <= self.len && len <= self.len - at,
            "advice outside the mapping"
        );
        // SAFETY: the range lies in this mapping, and the advices used here (populate, don't fork)
        // don't change what is read there.
        unsafe { madvise(self.base.as_ptr().add(at).cast::<c_void>(), len, advice) }?;
        Ok(())
    }

    /// Makes the kernel allocate missing pages on one memory node.
    pub(crate) fn bind(&self, node: u32) -> io::Result<()> {
        // SAFETY: the range is this mapping.
        unsafe { crate::numa::bind(self.base.as_ptr().cast(), self.len, node) }
    }

    /// Makes the kernel move existing pages to huge ones.
    pub(crate) fn collapse(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping; the contents stay as they are.
        let result = unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, MADV_COLLAPSE) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Returns the bytes at `at`.
    ///
    /// # Safety
    /// While the reference lives, nothing in this process writes to the range, and the daemon
    /// leaves it alone (rules 3 and 4).
    pub(crate) unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(
            at <= self.len && len <= self.len - at,
            "range outside the mapping"
        );
        // SAFETY: the range lies in this mapping, which lives as long as `self`; u8 has no invalid
        // values; the caller guarantees that nothing writes.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// Returns the bytes at `at` for writing.
    ///
    /// # Safety
    /// The mapping is writable, and no other reference to the range lives (rule 3).
    #[expect(
        clippy::mut_from_ref,
        reason = "disjoint ranges of one mapping; the caller has reserved its range"
    )]
    pub(crate) unsafe fn bytes_mut(&self, at: usize, len: usize) -> &mut [u8] {
        assert!(
            at <= self.len && len <= self.len - at,
            "range outside the mapping"
        );
        // SAFETY: as in `bytes`; the caller guarantees that the reference is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are of one mmap, and every reference into it borrows `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
