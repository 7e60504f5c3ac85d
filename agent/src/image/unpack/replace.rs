//! What happens to a name that a layer has twice, or that it takes from the layers below: whiteouts
//! in overlayfs' form.
//!
//! A layer's whiteouts are about the layers below it, wherever they stand in its archive: what the
//! layer itself has under that name stays and hides what is below.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::{UnpackError, WHITEOUT_PREFIX, entry_error, meta};

/// Makes a directory unless there is one. What else has its name goes, and does not come back from
/// below.
pub(super) fn make_directory(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let make = || rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755));
    match make() {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) if is_directory(parent, name)? => Ok(()),
        Err(rustix::io::Errno::EXIST) => {
            let hides = is_whiteout(parent, name)?;
            rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
            make()?;
            if hides {
                set_opaque_at(parent, name)
            } else {
                Ok(())
            }
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Later entries of a layer replace earlier ones, directories with all they hold.
pub(super) fn remove_existing(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        // By the parent's descriptor; what is below is removed without following links.
        Err(rustix::io::Errno::ISDIR) => std::fs::remove_dir_all(
            Path::new(&format!("/proc/self/fd/{}", parent.as_raw_fd())).join(name),
        ),
        Err(errno) => Err(errno.into()),
    }
}

/// Hides what the layers below have in this directory.
pub(super) fn set_opaque(directory: BorrowedFd<'_>) -> io::Result<()> {
    meta::set_xattr(directory, b"trusted.overlay.opaque", b"y")
}

fn set_opaque_at(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    set_opaque(rustix::fs::openat(parent, name, flags, Mode::empty())?.as_fd())
}

/// Hides what the layers below have under the name.
pub(super) fn whiteout(
    parent: BorrowedFd<'_>,
    hidden: &[u8],
    path: &Path,
) -> Result<(), UnpackError> {
    if hidden.is_empty() || hidden == b"." || hidden == b".." || hidden.starts_with(WHITEOUT_PREFIX)
    {
        return Err(UnpackError::Refused {
            why: format!("whiteout {path:?} names no file"),
        });
    }
    let name = OsStr::from_bytes(hidden);
    let device = rustix::fs::makedev(0, 0);
    let make = || match rustix::fs::mknodat(
        parent,
        name,
        FileType::CharacterDevice,
        Mode::empty(),
        device,
    ) {
        Err(rustix::io::Errno::EXIST) if is_directory(parent, name)? => set_opaque_at(parent, name),
        // A file hides what is below by itself.
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    };
    make().map_err(entry_error("white out", path))
}

fn is_directory(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Whether overlayfs takes the entry for a whiteout.
pub(super) fn is_whiteout(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0)
}
