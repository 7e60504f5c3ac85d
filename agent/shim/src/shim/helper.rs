//! Running the helper: one process, one request, one reply, one deadline.

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use coracle_shim_protocol::{HelperReply, HelperRequest, socket};
use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    sys::{
        signal::{Signal, kill},
        socket::{AddressFamily, SockFlag, SockType, socketpair},
    },
    unistd::Pid,
};

use super::streams::AfterInput;

/// A helper at work.
pub(super) struct Helper<T> {
    pub(super) pid: i32,
    /// It has ended: its PID may be another's by now.
    pub(super) reaped: bool,
    socket: OwnedFd,
    pub(super) deadline: Instant,
    /// What its reply is for.
    pub(super) purpose: T,
}

/// Why a helper runs.
pub(super) enum Purpose {
    Create {
        connection: u64,
        call: u64,
        container: u64,
        tty: bool,
        stdin: Option<AfterInput>,
    },
    Exec {
        connection: u64,
        call: u64,
        container: u64,
    },
    /// It has answered.
    Done,
}

impl<T> Helper<T> {
    /// Starts the helper with these streams, which are closed here afterwards.
    pub(super) fn spawn(
        executable: BorrowedFd<'_>,
        request: &HelperRequest,
        streams: [Stdio; 3],
        limit: Duration,
        purpose: T,
    ) -> io::Result<Self> {
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        // One thread: nobody else can exec between this and the drop below.
        fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty()))?;
        socket::send(ours.as_fd(), request, &[])?;
        let [stdin, stdout, stderr] = streams;
        // No environment, no directory, no pre-exec closure: the standard library then uses
        // posix_spawn.
        let child = Command::new(format!("/proc/self/fd/{}", executable.as_raw_fd()))
            .arg0("coracle-oci")
            .arg(theirs.as_raw_fd().to_string())
            .env_clear()
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .spawn()?;
        let pid = child.id().cast_signed();
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self {
            pid,
            reaped: false,
            socket: ours,
            deadline: Instant::now() + limit,
            purpose,
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Its reply; an error if it ended without one.
    pub(super) fn reply(&self) -> io::Result<(HelperReply, Option<OwnedFd>)> {
        let mut buffer = Vec::new();
        match socket::receive(self.fd(), &mut buffer)? {
            Some((reply, mut descriptors)) => Ok((reply, descriptors.pop())),
            None => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the helper ended without an answer",
            )),
        }
    }

    pub(super) fn kill(&self) {
        if !self.reaped {
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
    }
}
