//! Removes directory trees, and never what is mounted in them.
//!
//! A pod's directory has other people's data mounted below it (a host path's sub-path, a volume).
//! It is unmounted before the tree goes; but if that failed, or looked in the wrong place, the
//! removal must stop at the mount and say so, and not walk into the data. Every step down is
//! therefore one `openat2(RESOLVE_NO_XDEV)` from the directory above: the kernel refuses to cross a
//! mount, bind mounts of the same file system included. Blocking.
//!
//! What containers left may be nested as deeply as they liked: no path is ever put together, and
//! what is deeper than [`DEPTH_MAX`] is moved up to the top first, so neither the stack nor the
//! number of open files grows with it.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags},
    io::Errno,
};

/// As many directories are open at once, two descriptors each.
const DEPTH_MAX: usize = 64;
/// A listing that changes under our hands may skip entries: so often is it read again while it gets
/// shorter.
const PASSES_MAX: usize = 1000;

/// Removes `path` with everything in it. Nothing there is no error; a symbolic link is removed and
/// not followed.
///
/// # Errors
/// The first thing that could not be removed, a mount point among them; all others are removed
/// nevertheless.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the root directory is not removed",
        ));
    };
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let name = CString::new(name.as_encoded_bytes())?;
    let parent = match rustix::fs::openat(
        CWD,
        parent,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    match rustix::fs::unlinkat(&parent, &name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::openat(&parent, &name, flags, Mode::empty())?;
    let mut removal = Removal {
        top: top.as_fd(),
        moved: 0,
        failure: None,
    };
    removal.clear(top.as_fd(), 0);
    if let Some(failure) = removal.failure {
        return Err(failure);
    }
    match rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

struct Removal<'a> {
    top: BorrowedFd<'a>,
    /// Directories moved up so far: makes their new names.
    moved: u64,
    failure: Option<io::Error>,
}

impl Removal<'_> {
    /// Removes what is in `dir`, again and again while something goes.
    fn clear(&mut self, dir: BorrowedFd<'_>, depth: usize) {
        for _ in 0..PASSES_MAX {
            match self.pass(dir, depth) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => return self.note(error),
            }
        }
    }

    /// Removes every entry of one listing; how many went.
    fn pass(&mut self, dir: BorrowedFd<'_>, depth: usize) -> io::Result<usize> {
        let mut gone = 0;
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match self.remove(dir, name, entry.file_type(), depth) {
                Ok(()) => gone += 1,
                Err(error) => self.note(error),
            }
        }
        Ok(gone)
    }

    fn remove(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        kind: FileType,
        depth: usize,
    ) -> io::Result<()> {
        if kind != FileType::Directory {
            match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // The listing did not know its kind.
                Err(Errno::ISDIR) => {}
                Err(error) => return Err(named(name, error)),
            }
        }
        if depth >= DEPTH_MAX {
            return self.move_up(dir, name);
        }
        let child = enter(dir, name)?;
        self.clear(child.as_fd(), depth + 1);
        match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // What is in there has been noted already, or it went on growing.
            Err(error) => Err(named(name, error)),
        }
    }

    /// To the top directory, where a later pass finds it.
    fn move_up(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            let to = format!(".removed-{}", self.moved);
            match rustix::fs::renameat_with(dir, name, self.top, &to, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(named(name, error)),
            }
        }
    }

    fn note(&mut self, error: io::Error) {
        self.failure.get_or_insert(error);
    }
}

/// Opens a directory that is on the same mount as its parent.
fn enter(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
        .map_err(|error| named(name, error))
}

fn named(name: &CStr, error: Errno) -> io::Error {
    let name = name.to_string_lossy();
    match error {
        // In a directory of ours nothing else keeps an entry busy.
        Errno::XDEV | Errno::BUSY => io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("{name:?} is a mount point, which is left alone"),
        ),
        error => {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{name:?}: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn everything_goes_and_links_are_not_followed() {
        let dir = tempfile::tempdir().expect("directory");
        let (tree, other) = (dir.path().join("tree"), dir.path().join("other"));
        fs::create_dir_all(tree.join("a/b")).expect("directory");
        fs::create_dir(&other).expect("directory");
        fs::write(other.join("kept"), "x").expect("file");
        fs::write(tree.join("a/file"), "x").expect("file");
        std::os::unix::fs::symlink(&other, tree.join("a/link")).expect("link");
        remove_tree(&tree).expect("remove");
        assert!(!tree.exists());
        remove_tree(&tree).expect("nothing there is fine");
        std::os::unix::fs::symlink(&other, &tree).expect("link");
        remove_tree(&tree).expect("remove the link");
        assert!(fs::symlink_metadata(&tree).is_err());
        assert_eq!(fs::read_to_string(other.join("kept")).expect("kept"), "x");
    }

    #[test]
    fn depth_costs_neither_stack_nor_descriptors() {
        let dir = tempfile::tempdir().expect("directory");
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).expect("directory");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(&tree, flags, Mode::empty()).expect("open");
        for _ in 0..5000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).expect("directory");
            at = rustix::fs::openat(&at, "d", flags, Mode::empty()).expect("open");
        }
        drop(at);
        remove_tree(&tree).expect("remove");
        assert!(!tree.exists());
    }

    /// In a thread with a mount namespace of its own, so that a failure leaves no mount.
    #[test]
    fn mounted_data_is_never_removed() {
        let dir = tempfile::tempdir().expect("directory");
        let (tree, data) = (dir.path().join("tree"), dir.path().join("data"));
        fs::create_dir_all(tree.join("sub/point")).expect("directory");
        fs::create_dir(&data).expect("directory");
        fs::write(data.join("precious"), "x").expect("file");
        fs::write(tree.join("own"), "x").expect("file");
        let (to, from) = (tree.join("sub/point"), data.clone());
        let removed = in_own_mounts(move || {
            rustix::mount::mount_bind(&from, &to).expect("bind");
            remove_tree(&tree)
                .map_err(|error| error.to_string())
                .map(|()| tree.join("own").exists())
        });
        assert_eq!(
            removed.expect_err("refused"),
            "\"point\" is a mount point, which is left alone"
        );
        assert_eq!(
            fs::read_to_string(data.join("precious")).expect("kept"),
            "x"
        );
        assert!(
            !dir.path().join("tree/own").exists(),
            "what is not mounted goes"
        );
    }

    #[expect(clippy::disallowed_methods, reason = "the thread ends with the test")]
    fn in_own_mounts<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let in_thread = move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)
                .expect("a mount namespace (root)");
            let private = rustix::mount::MountPropagationFlags::PRIVATE
                | rustix::mount::MountPropagationFlags::REC;
            rustix::mount::mount_change("/", private).expect("private mounts");
            work()
        };
        std::thread::spawn(in_thread).join().expect("thread")
    }
}
