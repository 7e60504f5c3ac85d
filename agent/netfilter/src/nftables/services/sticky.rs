//! Clients that are remembered with an endpoint that is no more.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
};

use coracle_telemetry::ErrorChain;

use super::{
    super::{
        batch::{Batch, Data, Key},
        kernel::{self, CommitError},
        vip::{Vip, parse_value},
    },
    Services,
    parts::{TABLE, name},
};

/// What is remembered may be forgotten by itself in between.
const TRIES: usize = 5;
/// The client's address comes first in a key.
const CLIENT_BYTES: usize = 4;

impl Services {
    /// Forgets those who are remembered with other endpoints than these.
    pub(super) fn forget_clients(&mut self, sticky: &BTreeMap<Vip, BTreeSet<SocketAddr>>) {
        if sticky.is_empty() {
            return;
        }
        if let Err(error) = self.try_to_forget(sticky) {
            tracing::warn!(error = %ErrorChain(&error), "clients may still be sent to endpoints that are gone");
            self.suspect = true;
        }
    }

    fn try_to_forget(
        &mut self,
        sticky: &BTreeMap<Vip, BTreeSet<SocketAddr>>,
    ) -> Result<(), CommitError> {
        let mut outcome = Ok(());
        for _ in 0..TRIES {
            let remembered = kernel::elements(&TABLE, name::STICKY).map_err(CommitError::Io)?;
            let stale = remembered.iter();
            let stale = stale.filter(|(key, data)| is_stale(sticky, key, data).unwrap_or(false));
            let stale: Vec<&Key> = stale.map(|(key, _)| key).collect();
            if stale.is_empty() {
                return Ok(());
            }
            let mut batch = Batch::new();
            batch.delete_elements(&TABLE, name::STICKY, stale);
            outcome = self.commit(batch);
            match &outcome {
                Ok(()) => return Ok(()),
                Err(CommitError::Refused(all)) if all.values().all(is_forgotten) => {}
                Err(_) => break,
            }
        }
        outcome
    }
}

fn is_forgotten(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn is_stale(sticky: &BTreeMap<Vip, BTreeSet<SocketAddr>>, key: &Key, data: &Data) -> Option<bool> {
    let vip = Vip::parse(key.first.get(CLIENT_BYTES..)?)?;
    let Data::Value(value) = data else {
        return None;
    };
    Some(!sticky.get(&vip)?.contains(&parse_value(value)?))
}
