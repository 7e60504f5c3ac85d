//! How the C library's allocator keeps memory: what it keeps is set once, before there is a second thread; what lies free
//! between things in use is given back while the process runs.
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

/// Gives back what a burst has left free, for as long as it is polled.
///
/// The allocator itself gives back only the top of a heap; below it, one small thing that stays keeps megabytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) async fn give_back() {
    /// A burst is over by then, or lasts; both may wait.
    const PERIOD: std::time::Duration = std::time::Duration::from_secs(20);
    /// Less is left for the next burst.
    const WORTH_BYTES: usize = 4 << 20;
    let mut kept = 0;
    loop {
        tokio::time::sleep(PERIOD).await;
        let resident = resident_bytes();
        if resident > kept + WORTH_BYTES {
            // Off the async threads: it looks at every free piece. Fails only when the runtime goes down.
            drop(tokio::task::spawn_blocking(trim).await);
            kept = resident_bytes();
        }
        kept = kept.min(resident);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "malloc_trim has no wrapper")]
fn trim() {
    // SAFETY: gives free pages back, under the allocator's own locks; nothing is read or written through pointers.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Resident memory of this process; 0 if it cannot be read.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Other C libraries have nothing to tell.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn tune() {}

/// Nor have they anything to give back.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) async fn give_back() {
    std::future::pending().await
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn what_lies_free_between_things_in_use_is_given_back() {
        let pieces: Vec<Box<[u8]>> = (0..40_000).map(|_| vec![1; 1000].into_boxed_slice()).collect();
        let full = resident_bytes();
        let kept: Vec<Box<[u8]>> = pieces.into_iter().step_by(1000).collect();
        trim();
        let left = resident_bytes();
        assert!(left + 30_000_000 < full, "{left} of {full} bytes, {} pieces in use", kept.len());
    }
}
