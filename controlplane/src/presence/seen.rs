//! Which servers are alive, by what one of them has seen of all Leases. No I/O; the clock is given.
//!
//! A Lease that changes is renewed by somebody. When it changed is told by the clock of who looks,
//! never by the time in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use tokio::time::Instant;

/// A server whose Lease has not changed for so long is no more. Upstream's TTL, for renewals every
/// 10 s.
const ALIVE: Duration = Duration::from_secs(15);

/// A Lease as it was found.
pub(super) struct Look<'a> {
    pub(super) name: &'a str,
    pub(super) version: &'a str,
    /// What it says; nothing if its server has stopped.
    pub(super) address: Option<SocketAddr>,
}

/// What is known of a Lease.
struct Known {
    version: String,
    address: Option<SocketAddr>,
    /// When it was seen to change; `None` for one that was there at the first look and that nobody
    /// else holds to be alive.
    changed: Option<Instant>,
}

/// All that was seen.
pub(super) struct Seen {
    own: String,
    own_address: Option<SocketAddr>,
    leases: BTreeMap<String, Known>,
    /// When it was looked for the first time.
    first: Option<Instant>,
    /// Who is alive besides this server, as it was told last.
    others: Vec<SocketAddr>,
}

impl Seen {
    /// For the server whose Lease is called `own`.
    pub(super) fn new(own: String, own_address: Option<SocketAddr>) -> Self {
        Self {
            own,
            own_address,
            leases: BTreeMap::new(),
            first: None,
            others: Vec::new(),
        }
    }

    /// Whether nothing was seen yet.
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Takes in what is there now. At the first look those are taken to be alive that are among
    /// `led_to`: it is not known when the other Leases changed, and they may be of long ago.
    pub(super) fn look<'a>(
        &mut self,
        found: impl Iterator<Item = Look<'a>>,
        led_to: &BTreeSet<SocketAddr>,
        now: Instant,
    ) {
        let is_first = self.is_empty();
        let was_blind = self.is_blind(now);
        let mut before = std::mem::take(&mut self.leases);
        for look in found {
            let known = before.remove(look.name);
            let is_believed = look
                .address
                .is_some_and(|address| led_to.contains(&address));
            let changed = match &known {
                Some(known) if known.version == look.version => known.changed,
                None if is_first && !is_believed => None,
                _ => Some(now),
            };
            let known = Known {
                version: look.version.to_owned(),
                address: look.address,
                changed,
            };
            self.leases.insert(look.name.to_owned(), known);
        }
        if is_first {
            self.first = Some(now);
        }
        if was_blind && !self.is_blind(now) {
            // Who was alive before may not have been able to renew either.
            let were_alive = self.leases.values_mut().filter(|known| {
                known
                    .address
                    .is_some_and(|address| self.others.contains(&address))
            });
            were_alive.for_each(|known| known.changed = Some(now));
        }
    }

    /// Who is alive: this server, and those whose Lease has changed lately. While this server does
    /// not even see its own Lease change, nobody is held to be gone: nothing can be said then.
    pub(super) fn alive(&mut self, now: Instant) -> Vec<SocketAddr> {
        if !self.is_blind(now) {
            let alive = self.leases.iter().filter_map(|(name, known)| {
                let until = known.changed? + ALIVE;
                (*name != self.own && now < until).then_some(known.address?)
            });
            self.others = alive.collect();
        }
        let mut servers = self.others.clone();
        servers.extend(self.own_address);
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// Who was alive besides this server.
    pub(super) fn others(&self) -> Vec<SocketAddr> {
        let mut others = self.others.clone();
        others.retain(|server| Some(*server) != self.own_address);
        others
    }

    /// Whether what it sees is old. At the beginning its own Lease is on its way.
    fn is_blind(&self, now: Instant) -> bool {
        let own = self.leases.get(&self.own);
        let last = own.and_then(|own| own.changed).or(self.first);
        last.is_some_and(|last| now >= last + ALIVE)
    }
}

#[cfg(test)]
mod tests;
