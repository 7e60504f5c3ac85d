//! One client's connection: what is known of it, and when it has to go.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use coracle_api::status::Status;
use coracle_auth::authn::x509::Holder;
use coracle_relay::Slot;
use tokio::time::Instant;

use super::socket::Socket;
use crate::{
    limits::{Limits, Permit, Requester, Seat},
    progress::Progress,
};

/// By when somebody must have shown who they are.
pub(super) const ANONYMOUS: Duration = Duration::from_secs(10);
/// What is under way when the time is up gets so long to end.
const LEAVE: Duration = Duration::from_secs(1);
/// How often a connection that may stay is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// A connection.
pub(crate) struct Connection {
    certificate: Option<Holder>,
    /// Of the answers over HTTP/1.1, which come one after the other.
    progress: Arc<Progress>,
    slot: Slot,
    /// Its seat among those of its first identity; `None` in it for who is not bounded.
    known: OnceLock<Option<Permit>>,
    /// Of the request that made a stream of it.
    upgrade: OnceLock<Seat>,
}

impl Connection {
    pub(super) fn new(certificate: Option<Holder>, slot: Slot) -> Self {
        Self {
            certificate,
            progress: Arc::default(),
            slot,
            known: OnceLock::new(),
            upgrade: OnceLock::new(),
        }
    }

    /// Who the client was when the connection was made, by its certificate.
    pub(crate) fn certificate(&self) -> Option<&Holder> {
        self.certificate.as_ref()
    }

    /// How the answer over HTTP/1.1 gets on.
    pub(crate) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// It is a stream now, and takes `seat` until it is closed.
    pub(crate) fn is_upgraded(&self, seat: Seat) {
        // A connection is upgraded once.
        let _ = self.upgrade.set(seat);
    }

    /// The client has shown who it is.
    ///
    /// # Errors
    /// 429 if it has too many connections; this one then goes like one of nobody.
    pub(crate) fn is_somebody(&self, limits: &Limits, requester: Requester) -> Result<(), Status> {
        if self.known.get().is_some() {
            return Ok(());
        }
        let permit = limits.connection(requester)?;
        // Two requests at once: the other's seat is as good.
        if self.known.set(permit).is_ok() {
            self.slot.settle();
        }
        Ok(())
    }
}

/// When a connection has to go.
pub(super) struct Watchman {
    connection: Arc<Connection>,
    socket: Socket,
    opened: Instant,
    is_leaving: bool,
    was_read_closed: bool,
}

/// What is to be done with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Look again then.
    Stay { until: Instant },
    /// Nothing new; look again then.
    Leave { until: Instant },
    /// At once.
    Cut(&'static str),
}

impl Watchman {
    pub(super) fn new(connection: Arc<Connection>, socket: Socket, opened: Instant) -> Self {
        Self {
            connection,
            socket,
            opened,
            is_leaving: false,
            was_read_closed: false,
        }
    }

    /// When to look first.
    pub(super) fn first_look(&self) -> Instant {
        self.opened + ANONYMOUS - LEAVE
    }

    pub(super) fn look(&mut self, now: Instant) -> Verdict {
        if self.connection.known.get().is_none() {
            if self.is_leaving || now >= self.opened + ANONYMOUS {
                return Verdict::Cut("its client did not show who it is");
            }
            self.is_leaving = true;
            return Verdict::Leave {
                until: self.opened + ANONYMOUS,
            };
        }
        if self.connection.progress.due().is_some_and(|due| due <= now) {
            return Verdict::Cut("its client does not take the answer");
        }
        // The peer has hung up, but the protocol has not read so far: over HTTP/1.1 nothing is read
        // during an answer once something of a next request has come.
        let is_read_closed = self.socket.is_read_closed();
        if is_read_closed && self.was_read_closed {
            return Verdict::Cut("its client has hung up");
        }
        self.was_read_closed = is_read_closed;
        Verdict::Stay { until: now + LOOK }
    }
}
