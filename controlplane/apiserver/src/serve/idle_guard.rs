//! When a client's connection has to go.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::socket::Socket;
use crate::connection::Connection;

/// By when somebody must have shown who they are.
pub(super) const ANONYMOUS: Duration = Duration::from_secs(10);
/// What is under way when the time is up gets so long to end.
const DRAIN: Duration = Duration::from_secs(1);
/// How often a connection that may stay is checked.
const CHECK_PERIOD: Duration = Duration::from_secs(5);

/// Ends a connection whose client does not show who it is, does not take its answer, or has hung
/// up.
pub(super) struct IdleGuard {
    connection: Arc<Connection>,
    socket: Socket,
    opened: Instant,
    is_draining: bool,
    was_read_closed: bool,
}

/// What is to be done with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Go on.
    Keep { next_check: Instant },
    /// Take no more requests; those under way may end.
    Drain { next_check: Instant },
    /// End it at once, for this reason.
    Close(&'static str),
}

impl IdleGuard {
    pub(super) fn new(connection: Arc<Connection>, socket: Socket, opened: Instant) -> Self {
        Self {
            connection,
            socket,
            opened,
            is_draining: false,
            was_read_closed: false,
        }
    }

    /// When to check first.
    pub(super) fn first_check(&self) -> Instant {
        self.opened + ANONYMOUS - DRAIN
    }

    pub(super) fn check(&mut self, now: Instant) -> Decision {
        if !self.connection.is_known() {
            if self.is_draining || now >= self.opened + ANONYMOUS {
                return Decision::Close("its client did not show who it is");
            }
            self.is_draining = true;
            return Decision::Drain {
                next_check: self.opened + ANONYMOUS,
            };
        }
        if self
            .connection
            .progress()
            .due()
            .is_some_and(|due| due <= now)
        {
            return Decision::Close("its client does not take the answer");
        }
        // The peer has hung up, but the protocol has not read so far: over HTTP/1.1 nothing is read
        // during an answer once something of a next request has come.
        let is_read_closed = self.socket.is_read_closed();
        if is_read_closed && self.was_read_closed {
            return Decision::Close("its client has hung up");
        }
        self.was_read_closed = is_read_closed;
        Decision::Keep {
            next_check: now + CHECK_PERIOD,
        }
    }
}
