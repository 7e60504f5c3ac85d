//! Whether a container's program was executed: a pipe that the kernel closes at execve, and that
//! carries what execve said when it failed.
//!
//! Whoever asks for the start is answered when that is known. A process that gets no CPU is not
//! waited for: it counts as started then.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use coracle_shim_protocol::{Failure, FailureKind, Reply, START_ERROR_MAX_BYTES};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    unistd::{pipe2, read},
};

use super::failure;

/// Well below the agent's own limit of a start.
const LIMIT: Duration = Duration::from_secs(5);

/// Who waits for the start.
struct Asked {
    connection: u64,
    call: u64,
    pid: i32,
    started_at: u64,
    deadline: Instant,
}

/// What is to be told to whom.
pub(super) struct Answer {
    pub(super) connection: u64,
    pub(super) call: u64,
    pub(super) outcome: Result<Reply, Failure>,
}

/// The end of the pipe that the shim keeps, and what came out of it.
pub(super) struct StartStatus {
    pipe: Option<OwnedFd>,
    error: Option<String>,
    asked: Option<Asked>,
}

impl StartStatus {
    /// With the end that the container's process has to inherit, which this one has to close.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        // The helper inherits it.
        fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let status = Self {
            pipe: Some(ours),
            error: None,
            asked: None,
        };
        Ok((status, theirs))
    }

    /// Number of the end that is inherited, as the helper is told.
    pub(super) fn number(theirs: &OwnedFd) -> i32 {
        theirs.as_raw_fd()
    }

    /// The process was told to go on; this call waits for what comes of it.
    pub(super) fn ask(&mut self, connection: u64, call: u64, pid: i32, started_at: u64) {
        self.asked = Some(Asked {
            connection,
            call,
            pid,
            started_at,
            deadline: Instant::now() + LIMIT,
        });
    }

    /// To be polled while somebody waits.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.asked.as_ref()?;
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// When [`StartStatus::answer`] has to be asked at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.asked.as_ref().map(|asked| asked.deadline)
    }

    /// Why the program was not executed, as far as that is known.
    pub(super) fn error(&mut self) -> Option<&str> {
        self.read();
        self.error.as_deref()
    }

    /// The answer for who waits, once there is one.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        self.read();
        let settled = self.pipe.is_none() || self.error.is_some();
        let late = self.deadline().is_some_and(|at| at <= Instant::now());
        let asked = self.asked.take_if(|_| settled || late)?;
        let outcome = match &self.error {
            Some(message) => Err(failure(FailureKind::Start, message.clone())),
            None => Ok(Reply::Started {
                started_at: asked.started_at,
                pid: asked.pid,
            }),
        };
        Some(Answer {
            connection: asked.connection,
            call: asked.call,
            outcome,
        })
    }

    fn read(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        let mut text = [0; START_ERROR_MAX_BYTES];
        match read(pipe, &mut text) {
            Err(Errno::EAGAIN | Errno::EINTR) => return,
            Ok(0) | Err(_) => {}
            Ok(length) => {
                self.error = Some(String::from_utf8_lossy(&text[..length]).into_owned());
            }
        }
        self.pipe = None;
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::write;

    use super::*;

    #[test]
    fn a_closed_pipe_is_a_start_and_a_message_is_none() {
        for (message, expected) in [(None, Ok(7)), (Some("argument list too long"), Err(()))] {
            let (mut status, theirs) = StartStatus::new().unwrap();
            status.ask(1, 2, 7, 3);
            assert!(status.answer().is_none(), "nothing is known yet");
            if let Some(message) = message {
                write(&theirs, message.as_bytes()).unwrap();
            }
            drop(theirs);
            assert_eq!(status.error(), message);
            let answer = status.answer().expect("known");
            assert_eq!((answer.connection, answer.call), (1, 2));
            let told = match answer.outcome {
                Ok(Reply::Started { pid, .. }) => Ok(pid),
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert_eq!(error.kind, FailureKind::Start);
                    Err(())
                }
            };
            assert_eq!(told, expected);
            assert!(status.answer().is_none(), "answered once");
        }
    }
}
