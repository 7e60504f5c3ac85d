//! Directories that a layer's archive leaves out but has entries in look as they do in the layers
//! below.
//!
//! As containerd has it: owner, mode, time and attributes come from the uppermost layer below that
//! has the directory; what is no directory there, or in none, leaves root and 0755. A link on the
//! way is followed within that layer. What a layer's directory holds therefore depends on what is
//! below it.
//!
//! Source: `mkparent` in containerd `pkg/archive/tar.go`.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags},
    io::Errno,
};

use super::{UnpackError, entry_error, meta, open_in_root};

/// Gives every directory in `implied` (paths inside `target`, with inodes) what the layers `below`
/// (uppermost first) have for it. One that is no longer there is passed over.
///
/// # Errors
/// See [`UnpackError`].
pub(crate) fn inherit(
    target: &Path,
    implied: &[(PathBuf, u64)],
    below: &[PathBuf],
) -> Result<(), UnpackError> {
    if implied.is_empty() || below.is_empty() {
        return Ok(());
    }
    let open = |path: &Path| open_root(path).map_err(entry_error("open", path));
    let (root, below) = (
        open(target)?,
        below
            .iter()
            .map(|path| open(path))
            .collect::<Result<Vec<_>, _>>()?,
    );
    for (path, inode) in implied {
        copy(&root, path, *inode, &below)
            .map_err(entry_error("take over the metadata of", path))?;
    }
    Ok(())
}

fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(
        CWD,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

fn copy(root: &OwnedFd, path: &Path, inode: u64, below: &[OwnedFd]) -> io::Result<()> {
    let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
        return Ok(());
    };
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let Ok(parent) = open_in_root(root.as_fd(), parent, OFlags::DIRECTORY) else {
        return Ok(());
    };
    // A later entry may have put something else there, a link to follow among the worse.
    let there = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
    if !there.is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Directory && stat.st_ino == inode
    }) {
        return Ok(());
    }
    for layer in below {
        match open_in_root(layer.as_fd(), path, OFlags::DIRECTORY) {
            Ok(found) => {
                return meta::set(
                    parent.as_fd(),
                    name,
                    &meta::of_directory(found.as_fd())?,
                    false,
                );
            }
            // No directory there: a file, a whiteout, links in a circle.
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
