//! What an entry is besides its content: owner, mode, time, extended attributes. Set by name in an
//! open parent, never through a link.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};

use super::{EXTENSION_MAX, invalid};

/// An image may not speak to overlayfs itself.
const OVERLAY: &[u8] = b"trusted.overlay.";
/// The kernel lists no more.
const XATTRS_MAX: usize = 64 << 10;

/// See the module's description.
pub(super) struct Meta {
    pub(super) mode: Mode,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: i64,
    pub(super) xattrs: HashMap<Vec<u8>, Vec<u8>>,
}

/// As the archive has it.
pub(super) fn read<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Meta> {
    let mut xattrs = HashMap::new();
    if let Some(extensions) = entry.pax_extensions()? {
        for extension in extensions {
            let extension = extension?;
            if extension.value_bytes().len() as u64 > EXTENSION_MAX {
                return Err(invalid("an extended header is too long"));
            }
            if let Some(name) = extension.key_bytes().strip_prefix(b"SCHILY.xattr.") {
                xattrs.insert(name.to_vec(), extension.value_bytes().to_vec());
            }
        }
    }
    let header = entry.header();
    let id = |value: u64| u32::try_from(value).map_err(|_| invalid("owner is not a 32-bit number"));
    Ok(Meta {
        mode: Mode::from_raw_mode(header.mode()? & 0o7777),
        uid: id(header.uid()?)?,
        gid: id(header.gid()?)?,
        mtime: i64::try_from(header.mtime()?).unwrap_or(0),
        xattrs,
    })
}

/// As the directory that `fd` is open on has it.
pub(super) fn of_directory(fd: BorrowedFd<'_>) -> io::Result<Meta> {
    let stat = rustix::fs::fstat(fd)?;
    let link = link_to(fd);
    let mut names = vec![0_u8; XATTRS_MAX];
    // A file system without extended attributes has none.
    let length = rustix::fs::listxattr(&*link, &mut names[..]).unwrap_or(0);
    let mut xattrs = HashMap::new();
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0_u8; XATTRS_MAX];
        let length = rustix::fs::getxattr(&*link, OsStr::from_bytes(name), &mut value[..])?;
        value.truncate(length);
        xattrs.insert(name.to_vec(), value);
    }
    Ok(Meta {
        mode: Mode::from_raw_mode(stat.st_mode & 0o7777),
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: stat.st_mtime,
        xattrs,
    })
}

/// Gives it to the entry `name`; of a symbolic link only owner and time.
pub(super) fn set(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    meta: &Meta,
    symlink: bool,
) -> io::Result<()> {
    // The owner first: chown clears set-user-ID bits and file capabilities.
    rustix::fs::chownat(
        parent,
        name,
        uid(meta),
        gid(meta),
        AtFlags::SYMLINK_NOFOLLOW,
    )?;
    if !symlink {
        rustix::fs::chmodat(parent, name, meta.mode, AtFlags::empty())?;
        set_xattrs(parent, name, meta)?;
    }
    set_time(parent, name, meta.mtime)
}

fn set_xattrs(parent: BorrowedFd<'_>, name: &OsStr, meta: &Meta) -> io::Result<()> {
    if meta.xattrs.is_empty() {
        return Ok(());
    }
    let fd = rustix::fs::openat(
        parent,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    for (key, value) in meta
        .xattrs
        .iter()
        .filter(|(key, _)| !key.starts_with(OVERLAY))
    {
        set_xattr(fd.as_fd(), key, value)?;
    }
    Ok(())
}

pub(super) fn set_xattr(fd: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::setxattr(
        &*link_to(fd),
        OsStr::from_bytes(key),
        value,
        XattrFlags::empty(),
    )?)
}

/// An O_PATH descriptor takes no fsetxattr; its /proc link is the file itself, not a name that
/// could move.
fn link_to(fd: BorrowedFd<'_>) -> OsString {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

pub(super) fn set_time(parent: BorrowedFd<'_>, name: &OsStr, mtime: i64) -> io::Result<()> {
    let at = Timespec {
        tv_sec: mtime,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: at,
        last_modification: at,
    };
    Ok(rustix::fs::utimensat(
        parent,
        name,
        &times,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

pub(super) fn uid(meta: &Meta) -> Option<Uid> {
    Some(Uid::from_raw(meta.uid))
}

pub(super) fn gid(meta: &Meta) -> Option<Gid> {
    Some(Gid::from_raw(meta.gid))
}
