//! Settings of the C library's allocator, for programs that pass large blocks between threads.

/// Size from which blocks are mapped separately and returned to the system when freed.
const MAPPED_FROM_BYTES: i32 = 1 << 20;
/// Free memory kept at the end of each heap for smaller blocks.
const KEPT_BYTES: i32 = 4 << 20;
/// Number of heaps for a program whose threads allocate little.
const HEAPS: i32 = 2;

/// Returns large blocks to the system when they are freed. By default glibc raises its threshold after the
/// first ones and keeps them in a heap per thread: a program that passes buffers between threads then
/// occupies several times the memory that it uses. No effect on other C libraries.
pub fn give_large_blocks_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers, locks what it changes, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

/// Makes all threads share two heaps. By default glibc makes eight per core, and each keeps its freed
/// memory: a daemon with a hundred mostly idle threads occupied four times the memory that it used.
/// Call it before many threads have allocated. No effect on other C libraries.
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    // SAFETY: as above.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
    }
}

/// Returns the free pages of all heaps to the system, also those below blocks in use, which glibc keeps
/// after a burst of small allocations such as thousands of connections. It walks the heaps: call it every
/// few seconds at the most. No effect on other C libraries.
pub fn trim_heaps() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number, locks each heap, and may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
