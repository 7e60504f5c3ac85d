//! Reads the eviction signals: what is left of memory, disks and process IDs.

use std::{fs, path::Path};

use super::{Signal, Supply};

/// Everything that can be observed; what cannot is left out.
pub(crate) fn observe(pods_dir: &Path, images_dir: &Path) -> Vec<Supply> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut observed: Vec<Supply> = memory(&read("/proc/meminfo")).into_iter().collect();
    observed.extend(disk(
        pods_dir,
        Signal::NodefsAvailable,
        Signal::NodefsInodesFree,
    ));
    observed.extend(disk(
        images_dir,
        Signal::ImagefsAvailable,
        Signal::ImagefsInodesFree,
    ));
    observed.extend(pids(
        &read("/proc/sys/kernel/pid_max"),
        &read("/proc/loadavg"),
    ));
    observed
}

/// Of the whole machine, as the root cgroup would say it: everything but the working set.
fn memory(meminfo: &str) -> Option<Supply> {
    let bytes = |name: &str| {
        let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
            .map(|kib| kib * 1024)
    };
    let available = bytes("MemFree:")? + bytes("Inactive(file):")?;
    Some(Supply {
        signal: Signal::MemoryAvailable,
        available,
        capacity: bytes("MemTotal:")?,
    })
}

/// Bytes and inodes. The capacity is what can be used at all, as `df` counts its per cent: blocks
/// that the file system keeps for itself are missing from it, where upstream counts them as used.
fn disk(dir: &Path, bytes: Signal, inodes: Signal) -> Vec<Supply> {
    let Ok(stat) = nix::sys::statvfs::statvfs(dir) else {
        return Vec::new();
    };
    let used = stat.blocks().saturating_sub(stat.blocks_free());
    let size = stat.fragment_size();
    let available = stat.blocks_available();
    vec![
        Supply {
            signal: bytes,
            available: available * size,
            capacity: (used + available) * size,
        },
        // File systems without a table of inodes say 0 of 0.
        Supply {
            signal: inodes,
            available: stat.files_free(),
            capacity: stat.files(),
        },
    ]
}

/// Threads count as processes do: `/proc/loadavg` has `running/all` of them.
fn pids(pid_max: &str, loadavg: &str) -> Option<Supply> {
    let capacity = pid_max.trim().parse::<u64>().ok()?;
    let used = loadavg
        .split_whitespace()
        .nth(3)?
        .split_once('/')?
        .1
        .parse::<u64>()
        .ok()?;
    Some(Supply {
        signal: Signal::PidAvailable,
        available: capacity.saturating_sub(used),
        capacity,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_understood() {
        let meminfo = "MemTotal:       1000 kB\nMemFree:         300 kB\nInactive(file):  200 kB\n";
        let expected = Supply {
            signal: Signal::MemoryAvailable,
            available: 500 * 1024,
            capacity: 1000 * 1024,
        };
        assert_eq!(memory(meminfo), Some(expected));
        assert_eq!(memory(""), None);
        let expected = Supply {
            signal: Signal::PidAvailable,
            available: 32768 - 120,
            capacity: 32768,
        };
        assert_eq!(
            pids("32768\n", "0.20 0.18 0.12 1/120 11206\n"),
            Some(expected)
        );
    }

    #[test]
    fn a_real_machine_has_something_left_of_everything() {
        let observed = observe(Path::new("/"), Path::new("/proc"));
        for signal in [
            Signal::MemoryAvailable,
            Signal::NodefsAvailable,
            Signal::PidAvailable,
        ] {
            let supply = observed
                .iter()
                .find(|supply| supply.signal == signal)
                .expect("observed");
            assert!(
                supply.available > 0 && supply.available <= supply.capacity,
                "{supply:?}"
            );
        }
        assert_eq!(
            disk(
                Path::new("/nowhere"),
                Signal::NodefsAvailable,
                Signal::NodefsInodesFree
            ),
            []
        );
    }
}
