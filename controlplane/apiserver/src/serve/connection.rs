//! One client's connection: what is known of it, and when it has to go.

use std::{
    net::SocketAddr,
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
    tls_session::LargeAnswers,
};

/// By when somebody must have shown who they are.
pub(super) const ANONYMOUS: Duration = Duration::from_secs(10);
/// What is under way when the time is up gets so long to end.
const DRAIN: Duration = Duration::from_secs(1);
/// How often a connection that may stay is checked.
const CHECK_PERIOD: Duration = Duration::from_secs(5);

/// A connection.
pub(crate) struct Connection {
    certificate: Option<Holder>,
    peer: Option<SocketAddr>,
    /// Of the answers over HTTP/1.1, which come one after the other.
    progress: Arc<Progress>,
    slot: Slot,
    /// Its seat among those of its first identity; `None` in it for who is not bounded.
    known: OnceLock<Option<Permit>>,
    /// Of the request that made a stream of it.
    upgrade: OnceLock<Seat>,
    large_answers: LargeAnswers,
}

impl Connection {
    pub(super) fn new(certificate: Option<Holder>, peer: Option<SocketAddr>, slot: Slot) -> Self {
        Self {
            certificate,
            peer,
            progress: Arc::default(),
            slot,
            known: OnceLock::new(),
            upgrade: OnceLock::new(),
            large_answers: LargeAnswers::default(),
        }
    }

    /// Those under way.
    pub(crate) fn large_answers(&self) -> &LargeAnswers {
        &self.large_answers
    }

    /// Who the client was when the connection was made, by its certificate.
    pub(crate) fn certificate(&self) -> Option<&Holder> {
        self.certificate.as_ref()
    }

    /// Who is at the other end.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// How the answer over HTTP/1.1 gets on.
    pub(crate) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// From now on it is a stream, which takes `seat` until it is closed.
    pub(crate) fn mark_upgraded(&self, seat: Seat) {
        // A connection is upgraded once.
        let _ = self.upgrade.set(seat);
    }

    /// Gives a client that has shown who it is a place among its identity's connections.
    ///
    /// # Errors
    /// 429 if it has too many connections; this one then goes like one of nobody.
    pub(crate) fn claim_identity(
        &self,
        limits: &Limits,
        requester: Requester,
    ) -> Result<(), Status> {
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
        if self.connection.known.get().is_none() {
            if self.is_draining || now >= self.opened + ANONYMOUS {
                return Decision::Close("its client did not show who it is");
            }
            self.is_draining = true;
            return Decision::Drain {
                next_check: self.opened + ANONYMOUS,
            };
        }
        if self.connection.progress.due().is_some_and(|due| due <= now) {
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
