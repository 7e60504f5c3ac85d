//! Whether what volumes hold in memory may reach the disk: Secrets and tokens are there so that it
//! does not.
//!
//! Source: `pkg/kubelet/util/swap/swap_util.go`, `generateTmpfsMountOptions` in
//! `pkg/volume/emptydir/empty_dir.go` at v1.37.

use std::{fs, sync::OnceLock};

use rustix::{
    io::Errno,
    mount::{FsOpenFlags, fsconfig_set_flag, fsopen},
};

/// Keeps a tmpfs out of the swap (Linux 6.4, and older ones of distributions).
pub(crate) const NOSWAP: &str = "noswap";

/// Whether memory volumes of this machine may be swapped out: it has swap, and its kernel does not
/// keep a tmpfs off it. `None` if it has swap and who asks may not know the rest.
#[must_use]
pub fn reaches_memory_volumes() -> Option<bool> {
    if is_on(&fs::read_to_string("/proc/swaps").unwrap_or_default()) {
        probe().map(|takes| !takes)
    } else {
        Some(false)
    }
}

/// Whether a tmpfs can be told [`NOSWAP`].
pub(crate) fn is_avoidable() -> bool {
    probe().unwrap_or(false)
}

/// Asks the kernel, once and without mounting anything. In a user namespace it refuses, too.
fn probe() -> Option<bool> {
    static TAKES: OnceLock<Option<bool>> = OnceLock::new();
    *TAKES.get_or_init(|| match fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(context) => Some(fsconfig_set_flag(&context, NOSWAP).is_ok()),
        Err(Errno::PERM) => None,
        // Older than the call, and so than the option.
        Err(_) => Some(false),
    })
}

/// By `/proc/swaps`: a heading, and a line for each device or file.
fn is_on(swaps: &str) -> bool {
    swaps.trim().lines().nth(1).is_some()
}

#[cfg(test)]
mod tests {
    use super::is_on;

    #[test]
    fn swap_is_told_by_the_lines_below_the_heading() {
        let heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        for (swaps, expected) in [
            (String::new(), false),
            (heading.to_owned(), false),
            (format!("{heading}\n"), false),
            (format!("{heading}/dev/dm-1 partition 998396 0 -2\n"), true),
        ] {
            assert_eq!(is_on(&swaps), expected, "{swaps:?}");
        }
    }
}
