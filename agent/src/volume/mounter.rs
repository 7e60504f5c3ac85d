//! The mounts that volumes need: tmpfs, and bind mounts of sub-paths.
//!
//! A trait, so that tests of everything above run without privileges.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    path::Path,
};

use nix::{
    mount::{MsFlags, mount},
    sys::statvfs::statvfs,
};

use crate::{mounts, swap};

/// Mounts and unmounts. Blocking.
pub(crate) trait Mounter: Send + Sync + 'static {
    /// Mounts a tmpfs.
    fn mount_tmpfs(&self, target: &Path, tmpfs: &Tmpfs) -> io::Result<()>;
    /// Lets a tmpfs take so many bytes more than it holds, and not more than that.
    fn set_room(&self, target: &Path, bytes: u64) -> io::Result<()>;
    /// Bind-mounts what `source` is open on.
    fn bind(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()>;
    /// Whether something is mounted exactly there.
    fn is_mount_point(&self, target: &Path) -> bool;
    /// Unmounts everything at and below `dir`, deepest first.
    fn unmount_below(&self, dir: &Path) -> io::Result<()>;
}

/// A tmpfs; what is absent is as the kernel has it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tmpfs {
    pub(crate) size_bytes: Option<u64>,
    /// Mode and group of its root directory.
    pub(crate) mode: Option<u32>,
    pub(crate) group: Option<u32>,
}

impl Tmpfs {
    fn options(&self, noswap: bool) -> String {
        let parts = [
            self.size_bytes.map(|size| format!("size={size}")),
            // Without one the kernel lets everybody put files in.
            Some(format!("mode={:o}", self.mode.unwrap_or(0o755))),
            self.group.map(|group| format!("gid={group}")),
            noswap.then(|| swap::NOSWAP.to_owned()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(",")
    }
}

/// The real one.
pub(crate) struct SystemMounter;

impl Mounter for SystemMounter {
    fn mount_tmpfs(&self, target: &Path, tmpfs: &Tmpfs) -> io::Result<()> {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let options = tmpfs.options(swap::is_avoidable());
        mount(
            Some("tmpfs"),
            target,
            Some("tmpfs"),
            flags,
            Some(options.as_str()),
        )
        .map_err(io::Error::from)
    }

    fn set_room(&self, target: &Path, bytes: u64) -> io::Result<()> {
        let found = statvfs(target)?;
        let used = found
            .blocks()
            .saturating_sub(found.blocks_free())
            .saturating_mul(found.fragment_size());
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let remount = |noswap: bool| {
            let tmpfs = Tmpfs {
                size_bytes: Some(used.saturating_add(bytes)),
                ..Tmpfs::default()
            };
            mount(
                None::<&str>,
                target,
                None::<&str>,
                flags,
                Some(tmpfs.options(noswap).as_str()),
            )
        };
        // The kernel wants to hear of swap what it heard at first; an earlier release said nothing.
        if swap::is_avoidable() && remount(true).is_ok() {
            return Ok(());
        }
        remount(false).map_err(io::Error::from)
    }

    fn bind(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
        let source = format!("/proc/self/fd/{}", source.as_raw_fd());
        mount(
            Some(source.as_str()),
            target,
            None::<&str>,
            // As upstream: what is mounted below the path is not there.
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .map_err(io::Error::from)
    }

    fn is_mount_point(&self, target: &Path) -> bool {
        mounts::is_point(target)
    }

    fn unmount_below(&self, dir: &Path) -> io::Result<()> {
        mounts::detach_below(&[dir])
    }
}

/// Mounts nothing, remembers nothing.
#[cfg(test)]
pub(crate) struct NoMounts;

#[cfg(test)]
impl Mounter for NoMounts {
    fn mount_tmpfs(&self, _: &Path, _: &Tmpfs) -> io::Result<()> {
        Ok(())
    }

    fn set_room(&self, _: &Path, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn bind(&self, _: BorrowedFd<'_>, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn is_mount_point(&self, _: &Path) -> bool {
        false
    }

    fn unmount_below(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_may_put_files_into_a_tmpfs_that_says_nothing_else() {
        assert_eq!(Tmpfs::default().options(false), "mode=755");
        let tmpfs = Tmpfs {
            size_bytes: Some(4096),
            mode: Some(0o1777),
            group: Some(7),
        };
        assert_eq!(tmpfs.options(false), "size=4096,mode=1777,gid=7");
    }

    #[test]
    fn what_volumes_hold_in_memory_is_kept_off_the_swap() {
        assert_eq!(Tmpfs::default().options(true), "mode=755,noswap");
        if !coracle_ground::is_root_or_skip() {
            return;
        }
        // The kernel has the last word: what it says it takes, it has to take.
        let dir = coracle_ground::Ground::new();
        SystemMounter
            .mount_tmpfs(dir.path(), &Tmpfs::default())
            .expect("mount");
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("table");
        SystemMounter.unmount_below(dir.path()).expect("unmount");
        let line = table
            .lines()
            .find(|line| line.contains(&dir.path().display().to_string()))
            .expect("a line");
        assert_eq!(
            line.ends_with(",noswap") || line.contains(",noswap,"),
            swap::is_avoidable(),
            "{line}"
        );
    }
}
