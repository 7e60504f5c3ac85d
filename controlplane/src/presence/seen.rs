//! Which servers are alive, by what one of them has seen of the keys of all. No I/O; the clock is
//! given.
//!
//! A key that changes is renewed by its server. When it changed is told by the clock of who looks.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use coracle_store::Revision;
use tokio::time::Instant;

use crate::alive::{ALIVE, Found};

/// The key of a server that was killed, and does not come back, is of no use after that.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// What is known of a key.
struct Known {
    renewed: Revision,
    /// When it was first seen to be so.
    since: Instant,
    address: Option<SocketAddr>,
    /// When it was seen to change; `None` for one that was there at the first look and that nobody
    /// else holds to be alive.
    changed: Option<Instant>,
}

/// All that was seen.
pub(super) struct Seen {
    own: String,
    own_address: Option<SocketAddr>,
    servers: BTreeMap<String, Known>,
    /// When it was looked for the first time.
    first: Option<Instant>,
    /// Who is alive besides this server, as it was told last.
    others: Vec<SocketAddr>,
}

impl Seen {
    /// For the server whose key is called `own`.
    pub(super) fn new(own: String, own_address: Option<SocketAddr>) -> Self {
        Self {
            own,
            own_address,
            servers: BTreeMap::new(),
            first: None,
            others: Vec::new(),
        }
    }

    /// Whether nothing was seen yet.
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Takes in what is there now. At the first look those are taken to be alive that are among
    /// `led_to`: it is not known when the other keys changed, and they may be of long ago.
    pub(super) fn look(&mut self, found: &[Found], led_to: &BTreeSet<SocketAddr>, now: Instant) {
        let is_first = self.is_empty();
        let was_blind = self.is_blind(now);
        let mut before = std::mem::take(&mut self.servers);
        for found in found {
            let known = before.remove(&found.name);
            let unchanged = known.filter(|known| known.renewed == found.renewed);
            let is_believed = found
                .address
                .is_some_and(|address| led_to.contains(&address));
            let (changed, since) = match unchanged {
                Some(known) => (known.changed, known.since),
                None if is_first && !is_believed => (None, now),
                None => (Some(now), now),
            };
            let known = Known {
                renewed: found.renewed,
                since,
                address: found.address,
                changed,
            };
            self.servers.insert(found.name.clone(), known);
        }
        if is_first {
            self.first = Some(now);
        }
        if was_blind && !self.is_blind(now) {
            // Who was alive before may not have been able to renew either.
            let were_alive = self.servers.values_mut().filter(|known| {
                known
                    .address
                    .is_some_and(|address| self.others.contains(&address))
            });
            were_alive.for_each(|known| known.changed = Some(now));
        }
    }

    /// Who is alive: this server, and those whose key has changed lately. While this server does
    /// not even see its own key change, nobody is held to be gone: nothing can be said then.
    pub(super) fn alive(&mut self, now: Instant) -> Vec<SocketAddr> {
        if !self.is_blind(now) {
            let alive = self.servers.iter().filter_map(|(name, known)| {
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

    /// Keys that nobody has renewed for so long that nobody will.
    pub(super) fn forgotten(&self, now: Instant) -> Vec<(String, Revision)> {
        if self.is_blind(now) {
            return Vec::new();
        }
        let old = self
            .servers
            .iter()
            .filter(|(name, known)| **name != self.own && now >= known.since + FORGOTTEN);
        old.map(|(name, known)| (name.clone(), known.renewed))
            .collect()
    }

    /// Whether what it sees is old. At the beginning its own key is on its way.
    fn is_blind(&self, now: Instant) -> bool {
        let own = self.servers.get(&self.own);
        let last = own.and_then(|own| own.changed).or(self.first);
        last.is_some_and(|last| now >= last + ALIVE)
    }
}

#[cfg(test)]
mod tests;
