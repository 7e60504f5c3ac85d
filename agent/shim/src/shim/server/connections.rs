//! Who speaks with the shim: connections come, ask, are told of events, and hang up.

use std::{
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    time::Instant,
};

use coracle_shim_protocol::{Event, Message, layout};
use nix::{
    poll::PollFlags,
    sys::{
        socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket},
        stat::{Mode, umask},
    },
};
use rustix::net::{SocketFlags, accept_with};

use super::{super::connection::Connection, Server};

/// An agent, its successor, and some tools.
const MAX_CONNECTIONS: usize = 16;

impl Server {
    /// Serves a connection that was not accepted but inherited, after telling it so.
    pub(in crate::shim) fn adopt(&mut self, socket: OwnedFd, first: &Message) -> io::Result<()> {
        let mut connection = Connection::new(socket)?;
        connection.send(first, None)?;
        let number = self.number();
        self.connections.insert(number, connection);
        Ok(())
    }

    pub(super) fn accept(&mut self) {
        let Ok(accepted) = accept_with(&self.listener, SocketFlags::CLOEXEC) else {
            return;
        };
        if self.connections.len() >= MAX_CONNECTIONS {
            return;
        }
        if let Ok(connection) = Connection::new(accepted) {
            let number = self.number();
            self.connections.insert(number, connection);
        }
    }

    pub(super) fn connection_ready(&mut self, number: u64, events: PollFlags) {
        if events.contains(PollFlags::POLLOUT)
            && self
                .connections
                .get_mut(&number)
                .is_some_and(|connection| connection.flush().is_err())
        {
            return self.hang_up(number);
        }
        if !events.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
            return;
        }
        loop {
            let Some(connection) = self.connections.get(&number) else {
                return;
            };
            match connection.receive() {
                Ok(Some((call, descriptors))) => self.call(number, call, descriptors),
                Ok(None) => return,
                Err(_) => return self.hang_up(number),
            }
        }
    }

    /// The connection is gone; so are the commands it was running.
    fn hang_up(&mut self, number: u64) {
        self.connections.remove(&number);
        let orphaned: Vec<u64> = self
            .execs
            .iter()
            .filter(|(_, exec)| exec.connection == number)
            .map(|(id, _)| *id)
            .collect();
        for exec in orphaned {
            self.kill_exec(exec);
        }
    }

    /// Ends with all containers if the sandbox's directory is lost and nobody is there to tell of
    /// it.
    pub(super) fn end_without_home(&mut self) {
        let occupied = !self.connections.is_empty() || self.shutdown.is_some();
        if self.home.is_lost(occupied, Instant::now()) {
            super::super::complain(format_args!("the sandbox's directory is gone: ending"));
            self.begin_shutdown(None);
        }
    }

    /// To one connection; a broken one is hung up.
    pub(in crate::shim) fn send(
        &mut self,
        number: u64,
        message: &Message,
        descriptor: Option<OwnedFd>,
    ) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        if connection.send(message, descriptor).is_err() {
            self.hang_up(number);
        }
    }

    pub(super) fn tell(&mut self, event: Event) {
        let message = Message::Event(event);
        for number in self.connections.keys().copied().collect::<Vec<_>>() {
            self.send(number, &message, None);
        }
    }
}

/// Makes the socket at which the next agent finds this shim.
pub(super) fn listen_in(directory: &Path) -> io::Result<OwnedFd> {
    let handle = fs::File::open(directory)?;
    let listener = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        None,
    )?;
    // A socket's path is limited to 108 bytes; the detour by descriptor keeps it short.
    let short = format!("/proc/self/fd/{}/{}", handle.as_raw_fd(), layout::SOCKET);
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = bind(listener.as_raw_fd(), &UnixAddr::new(short.as_str())?);
    umask(before);
    bound?;
    listen(&listener, Backlog::new(8)?)?;
    Ok(listener)
}
