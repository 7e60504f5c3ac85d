//! What a test's runtime has left behind, and taking it away.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::Node;

impl Node {
    /// Removes its cgroups, once what was killed in them is gone.
    #[allow(clippy::disallowed_methods, reason = "waits for the kernel")]
    pub(crate) fn remove_cgroups(&self) {
        for _ in 0..50 {
            let left = cgroups(&self.cgroup);
            if left.is_empty() {
                break;
            }
            for path in left.iter().rev() {
                let _ = fs::remove_dir(path);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Takes down every mount below its directory.
    pub(crate) fn unmount(&self) {
        let mark = self.dir.path().to_str().unwrap().to_owned();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for line in mounts.lines().rev().filter(|line| line.contains(&mark)) {
            if let Some(path) = line.split(' ').nth(4) {
                let _ = nix::mount::umount2(path, nix::mount::MntFlags::MNT_DETACH);
            }
        }
    }

    pub(crate) async fn assert_no_residue(&self) {
        let mut left = Vec::new();
        for _ in 0..100 {
            left = self.residue();
            if left.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("left behind: {left:#?}");
    }

    /// Mounts, cgroups, processes, directories that carry this node's name.
    pub(crate) fn residue(&self) -> Vec<String> {
        let mark = self.dir.path().to_str().unwrap();
        let mut found: Vec<String> = fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .filter(|line| line.contains(mark))
            .map(|line| format!("mount {line}"))
            .collect();
        found.extend(
            cgroups(&self.cgroup)
                .into_iter()
                .map(|path| format!("cgroup {}", path.display())),
        );
        found.extend(
            self.processes()
                .into_iter()
                .map(|pid| format!("process {pid}")),
        );
        for place in ["run/sandboxes", "root/containers"] {
            let entries = fs::read_dir(self.dir.path().join(place))
                .into_iter()
                .flatten()
                .flatten();
            found.extend(entries.map(|entry| format!("directory {}", entry.path().display())));
        }
        found.extend(
            self.network
                .attached
                .lock()
                .iter()
                .map(|id| format!("network of {id}")),
        );
        found
    }

    /// Shims (by their log) and processes in this node's cgroups.
    fn processes(&self) -> Vec<i32> {
        let mark = self.dir.path().to_str().unwrap();
        let all = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        all.filter(|pid| {
            let log = fs::read_link(format!("/proc/{pid}/fd/2")).unwrap_or_default();
            let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            log.starts_with(mark)
                || cgroup.lines().any(|line| {
                    line.split(':')
                        .nth(2)
                        .is_some_and(|path| path.starts_with(&format!("{}/", self.cgroup)))
                })
        })
        .collect()
    }
}

/// All directories of a cgroup in all hierarchies, parents first.
fn cgroups(path: &str) -> Vec<PathBuf> {
    fn walk(directory: PathBuf, found: &mut Vec<PathBuf>) {
        if !directory.is_dir() {
            return;
        }
        found.push(directory.clone());
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            walk(entry.path(), found);
        }
    }
    let mut found = Vec::new();
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for point in mountinfo
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .filter_map(|line| line.split(' ').nth(4))
    {
        walk(
            Path::new(point).join(path.trim_start_matches('/')),
            &mut found,
        );
    }
    found
}
