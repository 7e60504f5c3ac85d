//! Pipes and terminals as tokio streams, and knowing when the last byte was read.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    unistd::pipe2,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, unix::AsyncFd},
    net::unix::pipe,
    sync::watch,
};

/// A pipe whose read end is ours: `(ours, the process's)`.
pub(super) fn output_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    Ok((pipe::Receiver::from_owned_fd(read)?, write))
}

/// A pipe whose write end is ours: `(ours, the process's)`.
pub(super) fn input_pipe() -> io::Result<(pipe::Sender, OwnedFd)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    Ok((pipe::Sender::from_owned_fd(write)?, read))
}

pub(super) fn null() -> io::Result<OwnedFd> {
    Ok(std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?
        .into())
}

/// Puts a descriptor under tokio's watch.
#[allow(
    unsafe_code,
    reason = "the safe constructor is deprecated for types that could lend other descriptors"
)]
pub(super) fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names one descriptor as long as it lives, and `AsyncFd` keeps it as long
    // as itself.
    unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)
}

/// Counts readers that have not met their end.
#[derive(Clone)]
pub(super) struct Drained(watch::Sender<usize>);

impl Drained {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Watches one reader: it counts until it ends, fails or is dropped.
    pub(super) fn watch<R>(&self, reader: R) -> DrainReader<R> {
        self.0.send_modify(|open| *open += 1);
        DrainReader {
            reader,
            open: Some(self.clone()),
        }
    }

    /// Resolves when no watched reader is left.
    pub(super) async fn wait(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open == 0).await;
    }
}

/// See [`Drained::watch`].
pub(super) struct DrainReader<R> {
    reader: R,
    open: Option<Drained>,
}

impl<R> DrainReader<R> {
    fn close(&mut self) {
        if let Some(Drained(open)) = self.open.take() {
            open.send_modify(|open| *open -= 1);
        }
    }
}

impl<R> Drop for DrainReader<R> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for DrainReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = ready!(Pin::new(&mut self.reader).poll_read(context, buffer));
        if outcome.is_err() || (buffer.filled().len() == before && buffer.remaining() > 0) {
            self.close();
        }
        Poll::Ready(outcome)
    }
}

/// A terminal's master. Clones share it.
#[derive(Clone)]
pub(super) struct Terminal(Arc<AsyncFd<OwnedFd>>);

impl Terminal {
    pub(super) fn new(master: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_truncate(fcntl(&master, FcntlArg::F_GETFL)?);
        fcntl(&master, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self(Arc::new(register(master)?)))
    }

    pub(super) fn resize(&self, columns: u16, rows: u16) {
        let size = rustix::termios::Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let _ = rustix::termios::tcsetwinsize(self.0.get_ref(), size);
    }
}

impl AsyncRead for Terminal {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let attempt = guard.try_io(|fd| {
                Ok(nix::unistd::read(
                    fd.get_ref().as_fd(),
                    buffer.initialize_unfilled(),
                )?)
            });
            match attempt {
                Ok(Ok(length)) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                // The last process has left the terminal: that is its end.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::EIO as i32) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            if let Ok(outcome) =
                guard.try_io(|fd| Ok(nix::unistd::write(fd.get_ref().as_fd(), bytes)?))
            {
                return Poll::Ready(outcome);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The end of input on a terminal is a character, and the sender's to send.
        Poll::Ready(Ok(()))
    }
}

impl AsRawFd for Terminal {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}
