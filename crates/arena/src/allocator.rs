//! Advice to the C library's allocator, for programs that hand large blocks from thread to thread.

/// Larger blocks are mapped one by one and given back when they are freed.
const MAPPED_FROM_BYTES: i32 = 1 << 20;
/// Smaller ones are kept for the next, up to this at the end of each heap.
const KEPT_BYTES: i32 = 4 << 20;
/// Heaps of a program whose threads allocate little.
const HEAPS: i32 = 2;

/// Large blocks are given back to the system when they are freed. By itself glibc learns from the first
/// ones to keep them, in a heap for each thread: a program whose buffers go through several threads then
/// has several times what it uses. Elsewhere than on glibc it does nothing.
pub fn give_large_blocks_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers, locks what it changes, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

/// All threads share two heaps. By itself glibc makes eight for each core, of which each keeps what is
/// freed in it: a daemon with a hundred threads that mostly wait held four times what it used.
/// Elsewhere than on glibc it does nothing. To be called before many threads have allocated.
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    // SAFETY: as above.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
    }
}
