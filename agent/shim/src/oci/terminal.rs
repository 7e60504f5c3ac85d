//! Terminals of containers: receiving the master from libcontainer, and making one inside a running
//! container.

use std::{
    fs,
    io::IoSliceMut,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{fs::OpenOptionsExt, net::UnixListener},
    },
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use nix::{
    fcntl::OFlag,
    poll::{PollFd, PollFlags, poll},
    unistd::{Gid, Uid, fchown},
};
use rustix::{
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt},
};

/// The socket on which libcontainer hands over the master of a new container's terminal.
pub(super) struct ConsoleSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ConsoleSocket {
    pub(super) fn bind(path: PathBuf) -> anyhow::Result<Self> {
        let parent = path.parent().context("console socket without directory")?;
        let directory = fs::File::open(parent)?;
        let name = path.file_name().context("console socket without name")?;
        // A socket's path is limited to 108 bytes; the detour by descriptor keeps it short.
        let short = Path::new("/proc/self/fd")
            .join(directory.as_raw_fd().to_string())
            .join(name);
        let _ = fs::remove_file(&path);
        Ok(Self {
            listener: UnixListener::bind(short).context("bind console socket")?,
            path,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the master; it has been sent already when the container is made.
    pub(super) fn receive(&self) -> anyhow::Result<OwnedFd> {
        let mut polled = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        if poll(&mut polled, 1000u16)? == 0 {
            bail!("no terminal from the container");
        }
        let (stream, _) = self.listener.accept()?;
        let mut bytes = [0; 64];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        recvmsg(
            &stream,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for item in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = item
                && let Some(master) = descriptors.next()
            {
                return Ok(master);
            }
        }
        bail!("no terminal from the container")
    }
}

impl Drop for ConsoleSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A terminal's two ends.
pub(super) struct Terminal {
    pub(super) master: OwnedFd,
    pub(super) slave: OwnedFd,
}

const DEVPTS_SUPER_MAGIC: i64 = 0x1cd1;

/// Makes a terminal from the devpts of the root this process is in. The path is the container's, so
/// the file behind it is checked before use.
pub(super) fn open_inside() -> anyhow::Result<Terminal> {
    let master: OwnedFd = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW).bits())
        .open("/dev/pts/ptmx")
        .context("open /dev/pts/ptmx")?
        .into();
    let kind = nix::sys::statfs::fstatfs(&master)?.filesystem_type().0;
    if kind != DEVPTS_SUPER_MAGIC {
        bail!("/dev/pts/ptmx is not a terminal multiplexer");
    }
    let slave = slave_of(&master)?;
    Ok(Terminal { master, slave })
}

fn slave_of(master: &OwnedFd) -> anyhow::Result<OwnedFd> {
    unlockpt(master).context("unlock the terminal")?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    ioctl_tiocgptpeer(master, flags).context("open the terminal's other end")
}

/// Gives the terminal to its user, so that programs may open `/dev/stdout` and the like by name.
pub(super) fn give(master: &OwnedFd, uid: u32) -> anyhow::Result<()> {
    give_slave(&slave_of(master)?, uid)
}

pub(super) fn give_slave(slave: &OwnedFd, uid: u32) -> anyhow::Result<()> {
    fchown(slave, Some(Uid::from_raw(uid)), None::<Gid>).context("give the terminal to its user")
}
