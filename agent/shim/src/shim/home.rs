//! Whether the sandbox's directory is still where the agent made it.
//!
//! The run directory may be lost under a pod that runs: somebody removes it, or another file system
//! hides it. Without its socket no agent finds a shim any more; the next one runs the pod anew, and
//! this shim and its containers would go on beside it for ever. So a shim that nobody is connected
//! to looks for its socket now and then, and ends with all it has when that is gone.
//!
//! It looks through the node's mounts, which it has left: its own still have what the node no
//! longer has mounted, where mounts are not propagated.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use coracle_shim_protocol::layout;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat, openat2},
    io::Errno,
};

/// Long enough to cost nothing, short enough that a pod does not run twice for long.
const PERIOD: Duration = Duration::from_secs(10);

/// The node's root directory, as seen before this process had mounts of its own: what lies below it
/// is looked up in the node's mounts ever after.
pub(super) struct NodeRoot(OwnedFd);

impl NodeRoot {
    pub(super) fn open() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, "/", flags, Mode::empty())?))
    }

    /// Device and inode of a file.
    fn identity(&self, path: &Path) -> Result<(u64, u64), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT;
        let found = fstat(openat2(&self.0, path, flags, Mode::empty(), resolve)?)?;
        Ok((found.st_dev, found.st_ino))
    }
}

/// The socket by which agents find this shim, and when it is looked for.
pub(super) struct Home {
    root: NodeRoot,
    socket: PathBuf,
    /// Of the socket, when it was made.
    identity: (u64, u64),
    /// When to look, while nobody is connected.
    due: Option<Instant>,
}

impl Home {
    /// Of a sandbox whose socket has just been made.
    pub(super) fn new(root: NodeRoot, sandbox_dir: &Path) -> io::Result<Self> {
        let socket = sandbox_dir.join(layout::SOCKET);
        let identity = root.identity(&socket)?;
        Ok(Self {
            root,
            socket,
            identity,
            due: None,
        })
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// To be called at every turn: whether it is gone, and nobody is `connected` who would know
    /// better.
    pub(super) fn is_lost(&mut self, connected: bool, now: Instant) -> bool {
        if connected {
            self.due = None;
            return false;
        }
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due || self.due.is_none() {
            self.due = Some(now + PERIOD);
        }
        is_due && !self.is_there()
    }

    fn is_there(&self) -> bool {
        match self.root.identity(&self.socket) {
            Ok(found) => found == self.identity,
            // Anything else does not say that it is gone.
            Err(error) => !matches!(error, Errno::NOENT | Errno::NOTDIR),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Looks at once, and after each period.
    fn is_lost(home: &mut Home, periods: u32) -> bool {
        home.is_lost(false, Instant::now() + PERIOD * periods)
    }

    fn home(dir: &Path) -> Home {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join(layout::SOCKET), "").unwrap();
        Home::new(NodeRoot::open().unwrap(), dir).unwrap()
    }

    #[test]
    fn what_is_removed_or_replaced_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let sandbox = dir.path().join("run/sandbox");
        let socket = sandbox.join(layout::SOCKET);
        let ways: [&dyn Fn(); 3] = [
            &|| fs::remove_file(&socket).unwrap(),
            &|| fs::remove_dir_all(dir.path().join("run")).unwrap(),
            &|| {
                fs::rename(&socket, sandbox.join("old")).unwrap();
                fs::write(&socket, "").unwrap();
            },
        ];
        for lose in ways {
            let mut home = home(&sandbox);
            assert!(!is_lost(&mut home, 0) && !is_lost(&mut home, 2));
            lose();
            assert!(!is_lost(&mut home, 2), "it is not looked for all the time");
            assert!(is_lost(&mut home, 4));
        }
    }

    #[test]
    fn who_is_connected_knows_better() {
        let dir = tempfile::tempdir().unwrap();
        let mut home = home(dir.path());
        fs::remove_file(dir.path().join(layout::SOCKET)).unwrap();
        let later = |periods: u32| Instant::now() + PERIOD * periods;
        assert!(!home.is_lost(true, later(0)) && home.due().is_none());
        assert!(!home.is_lost(false, later(1)));
        assert!(!home.is_lost(true, later(3)));
        // From when the last one has hung up.
        assert!(!home.is_lost(false, later(3)));
        assert!(home.is_lost(false, later(4)));
    }
}
