//! One client's connection: what is known of it.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use coracle_api::status::Status;
use coracle_auth::authn::x509::Holder;
use coracle_relay::Slot;

use crate::{
    limits::{Limits, Permit, Requester, Seat},
    progress::Progress,
    tls_session::LargeAnswers,
};

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
    pub(crate) fn new(certificate: Option<Holder>, peer: Option<SocketAddr>, slot: Slot) -> Self {
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

    /// Whether its client has shown who it is.
    pub(crate) fn is_known(&self) -> bool {
        self.known.get().is_some()
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
