//! What the shim does with a container's cgroup: find it in every hierarchy, count OOM kills, kill,
//! remove.
//!
//! Works on v1, hybrid and v2. libcontainer makes the cgroup and its limits; the agent makes the
//! pod's.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// A dying process keeps its cgroup busy for a moment after it was reaped.
const REMOVE_ATTEMPTS: u32 = 25;
const REMOVE_PAUSE: Duration = Duration::from_millis(2);

/// Mount points of all hierarchies, v1 and v2.
pub(crate) fn mounts(mountinfo: &str) -> Vec<(PathBuf, String)> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut right = right.split(' ');
            let kind = right.next()?;
            let options = right.nth(1).unwrap_or("");
            let point = left.split(' ').nth(4)?;
            match kind {
                "cgroup" => Some((PathBuf::from(point), options.to_owned())),
                "cgroup2" => Some((PathBuf::from(point), String::new())),
                _ => None,
            }
        })
        .collect()
}

/// Pairs the lines of `/proc/<pid>/cgroup` with the mount points of their hierarchies.
pub(crate) fn locate(cgroups: &str, mountinfo: &str) -> Vec<(PathBuf, String)> {
    let mounts = mounts(mountinfo);
    cgroups
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let first = controllers.split(',').next().unwrap_or("");
            let (point, _) = mounts.iter().find(|(_, options)| {
                if first.is_empty() {
                    options.is_empty()
                } else {
                    options.split(',').any(|option| option == first)
                }
            })?;
            Some((point.clone(), path.to_owned()))
        })
        .collect()
}

/// The directories of one cgroup in all hierarchies that have it.
fn directories(path: &str) -> Vec<PathBuf> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let relative = path.trim_start_matches('/');
    if relative.is_empty() {
        return Vec::new();
    }
    mounts(&mountinfo)
        .into_iter()
        .map(|(point, _)| point.join(relative))
        .filter(|directory| directory.is_dir())
        .collect()
}

/// How many processes the kernel has killed there for want of memory.
pub(super) fn oom_kills(path: &str) -> u64 {
    for directory in directories(path) {
        for file in ["memory.events", "memory.oom_control"] {
            let Ok(text) = fs::read_to_string(directory.join(file)) else {
                continue;
            };
            let count = text
                .lines()
                .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
            return count.unwrap_or(0);
        }
    }
    0
}

/// Kills every process in it and below.
pub(super) fn kill_all(path: &str) {
    for directory in directories(path) {
        if fs::write(directory.join("cgroup.kill"), "1").is_ok() {
            continue;
        }
        for pid in processes(&directory) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Every process in it and below.
pub(super) fn processes_of(path: &str) -> Vec<i32> {
    directories(path)
        .first()
        .map(|directory| processes(directory))
        .unwrap_or_default()
}

fn processes(directory: &Path) -> Vec<i32> {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<i32> = text
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter(|pid| *pid > 0)
        .collect();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(processes(&entry.path()));
        }
    }
    found
}

/// Removes it from all hierarchies, children first. What is still busy after some milliseconds
/// stays for the agent.
pub(super) fn remove(path: &str) {
    for directory in directories(path) {
        for attempt in 0..REMOVE_ATTEMPTS {
            if remove_tree(&directory) {
                break;
            }
            if attempt + 1 < REMOVE_ATTEMPTS {
                thread::sleep(REMOVE_PAUSE);
            }
        }
    }
}

fn remove_tree(directory: &Path) -> bool {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    match fs::remove_dir(directory) {
        Ok(()) => true,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
30 20 0:25 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:27 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory
33 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
34 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";

    #[test]
    fn every_hierarchy_of_a_process_is_found() {
        let cgroups = "4:memory:/a/b\n3:cpu,cpuacct:/c\n1:name=systemd:/\n0::/u";
        let found = locate(cgroups, MOUNTINFO);
        let expected = [
            ("/sys/fs/cgroup/memory", "/a/b"),
            ("/sys/fs/cgroup/cpu,cpuacct", "/c"),
            ("/sys/fs/cgroup/systemd", "/"),
            ("/sys/fs/cgroup/unified", "/u"),
        ];
        assert_eq!(
            found,
            expected.map(|(point, path)| (PathBuf::from(point), path.to_owned()))
        );
    }
}
