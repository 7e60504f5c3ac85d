//! An agent's connection: messages out, queued while it is slow, and hung up when it is too slow.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use coracle_shim_protocol::{Call, Message, socket};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Two per call in flight and event; an agent that far behind reconnects and asks for the state.
const MAX_QUEUED: usize = 1024;

/// One connection.
pub(super) struct Connection {
    socket: OwnedFd,
    queue: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self {
            socket,
            queue: VecDeque::new(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether it waits to write.
    pub(super) fn behind(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Sends or queues; an error means the connection is of no more use.
    pub(super) fn send(
        &mut self,
        message: &Message,
        descriptor: Option<OwnedFd>,
    ) -> io::Result<()> {
        if self.queue.len() >= MAX_QUEUED {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.queue.push_back((socket::encode(message)?, descriptor));
        self.flush()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some((bytes, descriptor)) = self.queue.front() {
            let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
            match socket::send_bytes(self.socket.as_fd(), bytes, &descriptors) {
                Ok(()) => drop(self.queue.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next call; `Ok(None)` when there is none now.
    pub(super) fn receive(&self) -> io::Result<Option<(Call, Vec<OwnedFd>)>> {
        // Not kept: requests are rare, and the buffer is the largest thing here.
        let mut buffer = Vec::new();
        match socket::receive(self.socket.as_fd(), &mut buffer) {
            Ok(Some(received)) => Ok(Some(received)),
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}
