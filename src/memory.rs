//! How the C library's allocator keeps memory: set once, before there is a second thread.
//!
//! Left alone, it gives the top of the heap back after every large answer and takes it again for the next, a page fault
//! for every 4 KB of a list; and it keeps up to eight arenas a core, each with holes of its own. Measured with lists of
//! 500 objects: a fifth of the server's CPU time, and no memory saved.

/// Tells the allocator.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "mallopt has no wrapper")]
pub(crate) fn tune() {
    /// Stays free at the top of the heap. It is resident, so it is small.
    const KEPT_BYTES: i32 = 4 << 20;
    /// What is larger is mapped and unmapped on its own.
    const MAPPED_BYTES: i32 = 1 << 20;
    /// Threads share so many heaps.
    const ARENAS: i32 = 2;
    for (parameter, value) in
        [(libc::M_TRIM_THRESHOLD, KEPT_BYTES), (libc::M_MMAP_THRESHOLD, MAPPED_BYTES), (libc::M_ARENA_MAX, ARENAS)]
    {
        // SAFETY: changes parameters of the allocator, under its own lock; nothing is read or written through pointers.
        unsafe {
            libc::mallopt(parameter, value);
        }
    }
}

/// Other C libraries have nothing to tell.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn tune() {}
