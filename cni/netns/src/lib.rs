//! Network namespaces: make, pin, enter, identify, release.
//!
//! The only place outside the shim that calls `setns` or `unshare`. Work inside a namespace is a
//! closure handed to [`NetNs::run`], which runs on a thread of its own and ends with it: there is
//! no way back to get wrong, and no worker of an async runtime ever changes namespace. Does not
//! configure anything inside a namespace.

#![forbid(unsafe_code)]

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    thread,
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};

/// What the kernel knows a namespace by: two files with the same pair are the same namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Inode on nsfs.
    pub inode: u64,
    /// Device of nsfs.
    pub dev: u64,
}

/// Why a namespace could not be made, entered or released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetNsError {
    /// The file is missing or is no network namespace.
    #[error("open network namespace {path}")]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel made none.
    #[error("make a network namespace")]
    Make {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It could not be entered.
    #[error("enter network namespace {path}")]
    Enter {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It could not be bound to a file.
    #[error("pin network namespace at {path}")]
    Pin {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The pin could not be removed.
    #[error("unpin network namespace at {path}")]
    Unpin {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl NetNsError {
    /// Whether there is no such namespace (any more): the file is missing, or is a plain file that
    /// lost its mount.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Open { source, .. }
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput))
    }
}

/// An open network namespace. Keeps it alive as long as the value lives.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    path: PathBuf,
}

impl NetNs {
    /// Opens the namespace at `path`: a pin, or `/proc/<pid>/ns/net`.
    ///
    /// # Errors
    /// [`NetNsError::Open`]; kind `InvalidInput` if the file is something else, such as a pin whose
    /// mount is gone.
    pub fn open(path: &Path) -> Result<Self, NetNsError> {
        let fail = |source| NetNsError::Open {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(fail)?;
        let stat = rustix::fs::fstatfs(&file).map_err(|e| fail(e.into()))?;
        // Comparing the numbers this way works whatever integer types a platform gives them.
        if i128::from(stat.f_type) != i128::from(NSFS_MAGIC) {
            return Err(fail(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a namespace file",
            )));
        }
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetNsError::Open`] without /proc.
    pub fn current() -> Result<Self, NetNsError> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Makes a new, empty namespace and pins it at `path`. The loopback link in it is down.
    ///
    /// # Errors
    /// [`NetNsError::Make`] without CAP_SYS_ADMIN; [`NetNsError::Pin`] if `path` exists already.
    #[allow(
        clippy::disallowed_methods,
        reason = "on a thread of its own: this is the place"
    )]
    pub fn create(path: &Path) -> Result<Self, NetNsError> {
        let made = on_own_thread(|| -> Result<Self, NetNsError> {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| NetNsError::Make { source: e.into() })?;
            Self::current()
        })
        .map_err(|source| NetNsError::Make { source })??;
        // `/proc/thread-self` of a thread that has ended cannot be opened again, the descriptor
        // stays good.
        let pin_source = PathBuf::from(format!("/proc/self/fd/{}", raw(made.file.as_fd())));
        pin_file(&pin_source, path)?;
        Ok(Self {
            file: made.file,
            path: path.to_owned(),
        })
    }

    /// Binds the namespace to a new file at `path`, so that it outlives every process in it.
    ///
    /// # Errors
    /// [`NetNsError::Pin`]; nothing is left at `path` then, unless it was there before.
    pub fn pin(&self, path: &Path) -> Result<(), NetNsError> {
        pin_file(
            &PathBuf::from(format!("/proc/self/fd/{}", raw(self.file.as_fd()))),
            path,
        )
    }

    /// Where it was opened or pinned.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells it from others.
    ///
    /// # Errors
    /// [`NetNsError::Open`] if the descriptor cannot be examined.
    pub fn identity(&self) -> Result<Identity, NetNsError> {
        let stat = rustix::fs::fstat(&self.file).map_err(|e| NetNsError::Open {
            path: self.path.clone(),
            source: e.into(),
        })?;
        Ok(Identity {
            inode: stat.st_ino,
            dev: stat.st_dev,
        })
    }

    /// Runs `work` inside the namespace, on a thread of its own, and waits for it. Blocks: not for
    /// async code.
    ///
    /// Sockets opened by `work` stay in the namespace and can be handed out. A panic in `work` goes
    /// on in the caller.
    ///
    /// # Errors
    /// [`NetNsError::Enter`]; `work` did not run then.
    #[allow(
        clippy::disallowed_methods,
        reason = "on a thread of its own: this is the place"
    )]
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetNsError> {
        let enter = |source| NetNsError::Enter {
            path: self.path.clone(),
            source,
        };
        on_own_thread(|| {
            setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)?;
            Ok(work())
        })
        .and_then(|result| result)
        .map_err(enter)
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Removes the pin at `path`. The namespace goes with it unless a process, a descriptor or another
/// pin holds it.
///
/// Idempotent: succeeds if there is nothing at `path`.
///
/// # Errors
/// [`NetNsError::Unpin`].
pub fn unpin(path: &Path) -> Result<(), NetNsError> {
    let fail = |source| NetNsError::Unpin {
        path: path.to_owned(),
        source,
    };
    // A pin can be mounted more than once by a predecessor that was killed and tried again.
    loop {
        match umount2(path, MntFlags::MNT_DETACH) {
            Ok(()) => {}
            Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => break,
            Err(errno) => return Err(fail(errno.into())),
        }
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fail(error)),
        _ => Ok(()),
    }
}

/// `statfs` type of nsfs, see statfs(2).
const NSFS_MAGIC: u32 = 0x6e73_6673;

fn raw(fd: BorrowedFd<'_>) -> i32 {
    use std::os::fd::AsRawFd as _;
    fd.as_raw_fd()
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, work)?;
        match thread.join() {
            Ok(value) => Ok(value),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn pin_file(source: &Path, path: &Path) -> Result<(), NetNsError> {
    let fail = |source| NetNsError::Pin {
        path: path.to_owned(),
        source,
    };
    File::options()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(fail)?;
    mount(
        Some(source),
        path,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
    .map_err(|errno| {
        // Nobody else knows the file yet; what the mount reported is what matters.
        let _ = std::fs::remove_file(path);
        fail(errno.into())
    })
}

#[cfg(test)]
mod tests;
