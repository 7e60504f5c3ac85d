//! The mounts that volumes need: tmpfs, and bind mounts of sub-paths.
//!
//! A trait, so that tests of everything above run without privileges.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    path::{Path, PathBuf},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Mounts and unmounts. Blocking.
pub(crate) trait Mounter: Send + Sync + 'static {
    /// Mounts a tmpfs; without a size the kernel's default holds.
    fn mount_tmpfs(&self, target: &Path, size_bytes: Option<u64>) -> io::Result<()>;
    /// Bind-mounts what `source` is open on.
    fn bind(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()>;
    /// Whether something is mounted exactly there.
    fn is_mount_point(&self, target: &Path) -> bool;
    /// Unmounts everything at and below `dir`, deepest first.
    fn unmount_below(&self, dir: &Path) -> io::Result<()>;
}

/// The real one.
pub(crate) struct SystemMounter;

impl Mounter for SystemMounter {
    fn mount_tmpfs(&self, target: &Path, size_bytes: Option<u64>) -> io::Result<()> {
        let options = size_bytes.map(|size| format!("size={size}"));
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("tmpfs"), target, Some("tmpfs"), flags, options.as_deref()).map_err(io::Error::from)
    }

    fn bind(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
        let source = format!("/proc/self/fd/{}", source.as_raw_fd());
        mount(Some(source.as_str()), target, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
            .map_err(io::Error::from)
    }

    fn is_mount_point(&self, target: &Path) -> bool {
        mounts_below(target).is_ok_and(|mounts| mounts.iter().any(|mount| mount == target))
    }

    fn unmount_below(&self, dir: &Path) -> io::Result<()> {
        let mut mounts = mounts_below(dir)?;
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.as_os_str().len()));
        for mount in mounts {
            umount2(&mount, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)?;
        }
        Ok(())
    }
}

/// Mount points at and below `dir`, from `/proc/self/mountinfo`.
fn mounts_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(parse_mountinfo(&text).filter(|mount| mount.starts_with(dir)).collect())
}

fn parse_mountinfo(text: &str) -> impl Iterator<Item = PathBuf> {
    text.lines().filter_map(|line| line.split(' ').nth(4)).map(|field| PathBuf::from(unescape(field)))
}

/// The kernel writes blank, tab, newline and backslash as octal.
fn unescape(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                out.push(char::from(code));
                rest = &rest[at + 4..];
            }
            None => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Mounts nothing, remembers nothing.
#[cfg(test)]
pub(crate) struct NoMounts;

#[cfg(test)]
impl Mounter for NoMounts {
    fn mount_tmpfs(&self, _: &Path, _: Option<u64>) -> io::Result<()> {
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
    fn mountinfo_paths_are_unescaped() {
        let text = "22 1 0:20 / /a\\040b rw - tmpfs tmpfs rw\n23 1 0:21 / /c\\134d rw - tmpfs tmpfs rw\n";
        let got: Vec<PathBuf> = parse_mountinfo(text).collect();
        assert_eq!(got, [PathBuf::from("/a b"), PathBuf::from("/c\\d")]);
    }
}
