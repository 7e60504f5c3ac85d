//! Who speaks with the shim: connections come, ask, are told of events, and hang up.

use std::{io, os::fd::OwnedFd};

use coracle_shim_protocol::{Event, Message};
use nix::poll::PollFlags;
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
