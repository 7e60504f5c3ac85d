//! How much memory stays resident: what the C library's allocator keeps is set once, before there
//! is a second thread; what lies free between things in use, and what of the program only a burst
//! has run, is given back while the process runs.
//!
//! Left alone, it gives the top of the heap back after every large answer and takes it again for
//! the next, a page fault for every 4 KB of a list; and it keeps up to eight arenas a core, each
//! with holes of its own. Measured with lists of 500 objects: a fifth of the server's CPU time, and
//! no memory saved.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::{ops::Range, time::Duration};

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
    for (parameter, value) in [
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES),
        (libc::M_ARENA_MAX, ARENAS),
    ] {
        // SAFETY: changes parameters of the allocator, under its own lock; nothing is read or
        // written through pointers.
        unsafe {
            libc::mallopt(parameter, value);
        }
    }
}

/// Gives back what the start and each burst after it have left, for as long as it is polled.
///
/// The allocator itself gives back only the top of a heap; below it, one small thing that stays
/// keeps megabytes. Of the program, the kernel maps 16 pages for each one that is run and never
/// unmaps one while memory is plenty: half of what an idle cluster keeps would be the code of its
/// start.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) async fn give_back() {
    /// The start is over by then; on a slow machine it pays some page faults.
    const START: Duration = Duration::from_secs(8);
    /// A burst is over by then, or lasts; both may wait.
    const PERIOD: Duration = Duration::from_secs(20);
    /// Less is left for the next burst.
    const WORTH_BYTES: usize = 4 << 20;
    /// Who used more of a core in a period is at work, and would map the same code again at once.
    const QUIET: Duration = Duration::from_secs(1);
    let (mut kept, mut worked) = (Resident::default(), None);
    tokio::time::sleep(START).await;
    loop {
        let resident = Resident::now();
        let is_quiet = worked.is_none_or(|before| cpu_time().saturating_sub(before) < QUIET);
        let trims = resident.anonymous > kept.anonymous + WORTH_BYTES;
        let unmaps = is_quiet && resident.of_files > kept.of_files + WORTH_BYTES;
        if trims || unmaps {
            // Off the async threads: it looks at every free piece. Fails only when the runtime goes
            // down.
            let given_back = tokio::task::spawn_blocking(move || {
                if trims {
                    trim();
                }
                if unmaps {
                    unmap_program();
                }
            });
            drop(given_back.await);
        }
        // Each step moves its own mark: what the other has left to do is not taken for what stays.
        let now = Resident::now();
        kept.anonymous = if trims {
            now.anonymous
        } else {
            kept.anonymous.min(now.anonymous)
        };
        kept.of_files = if unmaps {
            now.of_files
        } else {
            kept.of_files.min(now.of_files)
        };
        worked = Some(cpu_time());
        tokio::time::sleep(PERIOD).await;
    }
}

/// Of all threads, since the start.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .map(Duration::from)
        .unwrap_or_default()
}

/// Unmaps the program's own pages: what is run or read again is mapped again from the page cache,
/// without a read of the disk as long as the kernel keeps it there.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "madvise of memory that Rust did not allocate")]
fn unmap_program() {
    // What cannot be read is not unmapped, and what the kernel refuses stays: either costs memory
    // alone.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    for range in read_only_ranges(&maps, &program.to_string_lossy()) {
        // SAFETY: the range is a mapping of the program's file that was never writable, so that
        // every page of it is a page of the file, before and after. Nothing in it is written, and
        // no mapping of a program goes away.
        unsafe {
            libc::madvise(
                range.start as *mut libc::c_void,
                range.len(),
                libc::MADV_DONTNEED,
            );
        }
    }
}

/// Where `program` is mapped and was never writable: its code, and what stands before it in the
/// file. What the linker wrote to and protected afterwards is not in it: that is no page of the
/// file any more.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn read_only_ranges(maps: &str, program: &str) -> Vec<Range<usize>> {
    let parse = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
        // To the end of the line: after an upgrade both end in ` (deleted)`.
        let is_program = &line[line.find('/')?..] == program;
        let is_untouched =
            rights == "r-xp" || (rights == "r--p" && offset.bytes().all(|digit| digit == b'0'));
        let (start, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        (is_program && is_untouched).then_some(address(start)?..address(end)?)
    };
    maps.lines().filter_map(parse).collect()
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "malloc_trim has no wrapper")]
fn trim() {
    // SAFETY: gives free pages back, under the allocator's own locks; nothing is read or written
    // through pointers.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Resident memory of this process, in bytes; 0 if it cannot be read.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[derive(Debug, Default, Clone, Copy)]
struct Resident {
    anonymous: usize,
    of_files: usize,
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
impl Resident {
    fn now() -> Self {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let mut bytes = statm
            .split(' ')
            .skip(1)
            .map(|pages| pages.parse().map_or(0, |pages: usize| pages * 4096));
        let (all, of_files) = (bytes.next().unwrap_or(0), bytes.next().unwrap_or(0));
        Self {
            anonymous: all.saturating_sub(of_files),
            of_files,
        }
    }
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
    fn only_what_was_never_writable_is_unmapped() {
        let maps = "00400000-00500000 r--p 00000000 fe:00 12 /bin/x\n00500000-00900000 r-xp 00100000 fe:00 12 /bin/x\n\
            00900000-00a00000 r--p 00500000 fe:00 12 /bin/x\n00a00000-00b00000 rw-p 00600000 fe:00 12 /bin/x\n\
            00c00000-00d00000 rw-p 00000000 00:00 0 [heap]\n7f000000-7f100000 r-xp 00000000 fe:00 13 /lib/libc.so.6\n";
        assert_eq!(
            read_only_ranges(maps, "/bin/x"),
            [0x40_0000..0x50_0000, 0x50_0000..0x90_0000]
        );
        assert!(read_only_ranges(maps, "/bin/y").is_empty());
        let replaced = maps.replace("/bin/x", "/bin/x (deleted)");
        assert_eq!(
            read_only_ranges(&replaced, "/bin/x (deleted)").len(),
            2,
            "by an upgrade"
        );
    }

    #[test]
    fn a_program_goes_on_after_its_pages_were_unmapped() {
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        // Of these mappings alone: other tests map and unmap what they like.
        let resident_kilobytes = || {
            let (mut sum, mut counts) = (0, false);
            for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
                if let Some(amount) = line.strip_prefix("Rss:") {
                    let amount: usize = amount.trim().trim_end_matches(" kB").parse().unwrap();
                    sum += if counts { amount } else { 0 };
                } else if !line.starts_with(|first: char| first.is_ascii_uppercase()) {
                    counts = !read_only_ranges(line, &program.to_string_lossy()).is_empty();
                }
            }
            sum
        };
        let before = resident_kilobytes();
        unmap_program();
        let after = resident_kilobytes();
        assert!(after < before, "{after} of {before} kB are mapped");
        assert_eq!(
            format!("{:?}", [1.5, 2.0].map(f64::sqrt)),
            "[1.224744871391589, 1.4142135623730951]",
            "it goes on"
        );
    }

    #[test]
    fn what_lies_free_between_things_in_use_is_given_back() {
        let pieces: Vec<Box<[u8]>> = (0..40_000)
            .map(|_| vec![1; 1000].into_boxed_slice())
            .collect();
        let full = Resident::now().anonymous;
        let kept: Vec<Box<[u8]>> = pieces.into_iter().step_by(1000).collect();
        trim();
        let left = Resident::now().anonymous;
        assert!(
            left + 30_000_000 < full,
            "{left} of {full} bytes, {} pieces in use",
            kept.len()
        );
    }
}
