//! Which API servers there are, how they are, and which one is used. Pure: the time comes from
//! outside.
//!
//! ```text
//!                           .--- not ready, twice ---> Unready
//!                           |                             |
//!  Unknown --- ready ---> Healthy <------- ready ---------+
//!     ^  \                  |                             |
//!     |   '-- silent twice, or no connection -------> Failed
//!     '-------- a connection after none, untested --------'
//! ```
//! One server at a time is used for everything that begins: a node's reads then follow its writes.
//! It is left for a better one only, so that one that is slow is kept where there is no other. Each
//! node has an order of its own by which it chooses among equals: so the nodes are spread.
//!
//! Source: `pkg/agent/loadbalancer/servers.go` of k3s, whose rules these are but for the spreading.

use std::{collections::BTreeMap, time::Duration};

use coracle_telemetry::ExponentialBackoff;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::address::ServerAddress;

/// Nobody has more; what writes more into the Endpoints is wrong.
pub(super) const MOST: usize = 32;
/// So many answers must be missing, one after the other: one may be the fault of a busy machine.
const MISSES: u32 = 2;
/// One that has left the Endpoints counts as removed after this time: as servers start they may
/// take each other out for a moment.
const REMOVED_AFTER: Duration = Duration::from_secs(30);
/// One that is well for so long gets its share of the nodes back.
const STEADY: Duration = Duration::from_secs(600);
/// Between two questions to the server that is used. A stopped one is left after at most two of
/// these and two [`super::probe::LIMIT`]: the node's Lease bears 40 s.
const IN_USE: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(6), Duration::from_secs(6));
/// Between two questions to one that waits: each costs it a TLS handshake.
const IN_RESERVE: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(60), Duration::from_secs(60));
/// Between two questions to one that did not answer as it should.
const UNWELL: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// How a server is; the better first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Health {
    /// It has said that it is ready.
    Healthy,
    /// Nobody has asked it yet.
    Unknown,
    /// It answers, but does not want to be used.
    Unready,
    /// It does not answer.
    Failed,
}

/// What a server has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Ready,
    NotReady,
    /// Nothing in time.
    Silence,
    /// Nobody is there, or not one of the cluster's servers.
    Refusal,
}

#[derive(Debug)]
struct Server {
    health: Health,
    /// By `--server`: never forgotten.
    is_given: bool,
    /// Since when the Endpoints do not have it.
    unlisted: Option<Instant>,
    /// Its place in this node's order.
    weight: u64,
    healthy_since: Option<Instant>,
    /// Answers that were missing, since the last good one.
    misses: u32,
    ask_at: Instant,
    is_asked: bool,
}

impl Server {
    fn is_listed(&self, now: Instant) -> bool {
        self.unlisted
            .is_none_or(|since| now < since + REMOVED_AFTER)
    }

    fn is_usable(&self) -> bool {
        self.health <= Health::Unknown
    }

    /// Smaller is better.
    fn rank(&self, now: Instant) -> (Health, bool, u64) {
        (self.health, !self.is_listed(now), self.weight)
    }

    /// Whether it is worth to leave the one in use.
    fn is_better(&self, used: &Self, now: Instant) -> bool {
        match used.health {
            Health::Healthy | Health::Unknown => {
                self.health == Health::Healthy && self.is_listed(now) && !used.is_listed(now)
            }
            Health::Unready => self.health == Health::Healthy,
            Health::Failed => self.health < Health::Failed,
        }
    }

    /// Whether it has been well long enough to get its share back.
    fn is_steady(&self, now: Instant) -> bool {
        self.is_listed(now)
            && self.health == Health::Healthy
            && self
                .healthy_since
                .is_some_and(|since| now >= since + STEADY)
    }

    fn turn(&mut self, health: Health, now: Instant) {
        self.health = health;
        self.healthy_since = match health {
            Health::Healthy => self.healthy_since.or(Some(now)),
            _ => None,
        };
    }
}

/// The servers that a node knows: at least one.
#[derive(Debug)]
pub(super) struct Servers {
    node_name: String,
    all: BTreeMap<ServerAddress, Server>,
    current: ServerAddress,
}

impl Servers {
    /// Knows those that are `given` for good, and those that were `kept` until better is known.
    /// `None` if none is given.
    pub(super) fn new(
        node_name: &str,
        given: &[ServerAddress],
        kept: Vec<ServerAddress>,
        now: Instant,
    ) -> Option<Self> {
        let mut this = Self {
            node_name: node_name.to_owned(),
            all: BTreeMap::new(),
            current: given.first()?.clone(),
        };
        for address in given.iter().cloned() {
            this.add(address, true, now);
        }
        for address in kept {
            this.add(address, false, now);
        }
        if let Some(best) = this.best(|_| true, now) {
            this.current = best;
        }
        Some(this)
    }

    fn add(&mut self, address: ServerAddress, is_given: bool, now: Instant) {
        if self.all.len() >= MOST {
            return;
        }
        let weight = weight(&self.node_name, &address);
        self.all.entry(address).or_insert(Server {
            health: Health::Unknown,
            is_given,
            unlisted: None,
            weight,
            healthy_since: None,
            misses: 0,
            ask_at: now,
            is_asked: false,
        });
    }

    /// The one that is used.
    pub(super) fn current(&self) -> &ServerAddress {
        &self.current
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = &ServerAddress> {
        self.all.keys()
    }

    /// Which one to try after those that are `tried`.
    pub(super) fn next(
        &self,
        tried: impl Fn(&ServerAddress) -> bool,
        now: Instant,
    ) -> Option<ServerAddress> {
        if !tried(&self.current) {
            return Some(self.current.clone());
        }
        self.best(|address| !tried(address), now)
    }

    fn best(&self, wanted: impl Fn(&ServerAddress) -> bool, now: Instant) -> Option<ServerAddress> {
        let wanted = self.all.iter().filter(|(address, _)| wanted(address));
        let best = wanted.min_by_key(|(_, server)| server.rank(now));
        best.map(|(address, _)| address.clone())
    }

    /// A connection was made. That does not make well one that does not answer: the kernel of a
    /// machine accepts for a process that is stopped.
    pub(super) fn reached(&mut self, address: &ServerAddress, now: Instant) {
        if let Some(server) = self.all.get_mut(address)
            && server.health == Health::Failed
            && server.misses == 0
        {
            server.turn(Health::Unknown, now);
        }
        self.settle(now);
    }

    /// No connection could be made.
    pub(super) fn unreachable(&mut self, address: &ServerAddress, now: Instant) {
        if let Some(server) = self.all.get_mut(address)
            && server.health != Health::Failed
        {
            server.turn(Health::Failed, now);
            server.ask_at = server.ask_at.min(now + UNWELL.jittered_after(0));
        }
        self.settle(now);
    }

    /// A question has its answer, and so there is a time for the next one.
    pub(super) fn answered(&mut self, address: &ServerAddress, answer: Answer, now: Instant) {
        let is_used = *address == self.current;
        if let Some(server) = self.all.get_mut(address) {
            server.is_asked = false;
            server.misses = match answer {
                Answer::Ready => 0,
                _ => server.misses.saturating_add(1),
            };
            match answer {
                Answer::Ready => server.turn(Health::Healthy, now),
                Answer::Refusal => server.turn(Health::Failed, now),
                _ if server.misses < MISSES => {}
                Answer::NotReady => server.turn(Health::Unready, now),
                Answer::Silence => server.turn(Health::Failed, now),
            }
            let pause = match (server.misses, is_used) {
                (0, true) => IN_USE.jittered_after(0),
                (0, false) => IN_RESERVE.jittered_after(0),
                (misses, _) => UNWELL.jittered_after(misses - 1),
            };
            server.ask_at = now + pause;
        }
        self.settle(now);
    }

    /// These are in the Endpoints now. None at all is no news: somebody must have said so.
    pub(super) fn set_listed(&mut self, listed: &[ServerAddress], now: Instant) {
        if listed.is_empty() {
            return;
        }
        for address in listed {
            self.add(address.clone(), false, now);
        }
        for (address, server) in &mut self.all {
            server.unlisted = match listed.contains(address) {
                true => None,
                false => server.unlisted.or(Some(now)),
            };
        }
        self.settle(now);
    }

    /// What time alone brings.
    pub(super) fn tick(&mut self, now: Instant) {
        self.settle(now);
    }

    /// Chooses who is used, and forgets who is gone.
    fn settle(&mut self, now: Instant) {
        let best = self.best(|_| true, now);
        if let Some(best) = best.filter(|best| self.is_worth_leaving_for(best, now)) {
            self.current = best;
        } else if let Some(first) = self.rightful(now) {
            self.current = first;
        }
        if let Some(current) = self.all.get_mut(&self.current) {
            current.ask_at = current.ask_at.min(now + IN_USE.after(0));
        }
        let is_well = |server: &Server| server.is_listed(now) && server.health == Health::Healthy;
        if self.all.values().any(is_well) {
            let current = &self.current;
            self.all.retain(|address, server| {
                server.is_given || server.is_listed(now) || address == current
            });
        }
    }

    fn is_worth_leaving_for(&self, other: &ServerAddress, now: Instant) -> bool {
        match (self.all.get(other), self.all.get(&self.current)) {
            (Some(other), Some(used)) => other.is_better(used, now),
            (other, _) => other.is_some(),
        }
    }

    /// One that this node would have chosen before the one in use, and that is well again since
    /// long: after a round of restarts all nodes would stay where they have fled to.
    fn rightful(&self, now: Instant) -> Option<ServerAddress> {
        let used = self.all.get(&self.current)?;
        let steady = self.all.iter().filter(|(_, server)| server.is_steady(now));
        let (address, first) = steady.min_by_key(|(_, server)| server.weight)?;
        (first.weight < used.weight).then(|| address.clone())
    }

    /// Those whose connections are to be closed, so that what hangs on them moves: removed, or not
    /// well while the one in use is.
    pub(super) fn is_unwanted(&self, address: &ServerAddress, now: Instant) -> bool {
        let Some(server) = self.all.get(address) else {
            return true;
        };
        let is_refuge = |used: &Server| used.is_usable() && used.is_listed(now);
        *address != self.current
            && self.all.get(&self.current).is_some_and(is_refuge)
            && (!server.is_usable() || !server.is_listed(now))
    }

    /// Those that are to be asked now how they are, and whether they are in use. None as long as
    /// there is no choice.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(ServerAddress, bool)> {
        if self.all.len() < 2 {
            return Vec::new();
        }
        let current = &self.current;
        let due = self
            .all
            .iter_mut()
            .filter(|(_, server)| !server.is_asked && server.ask_at <= now);
        due.map(|(address, server)| {
            server.is_asked = true;
            (address.clone(), address == current)
        })
        .collect()
    }

    /// When there is something to do again, if nothing happens before.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let questions = self.all.values().filter(|server| !server.is_asked);
        let questions = questions.map(|server| server.ask_at);
        let removals = self.all.values().filter_map(|server| server.unlisted);
        let removals = removals
            .map(|since| since + REMOVED_AFTER)
            .filter(|at| *at > now);
        let is_choice = self.all.len() > 1;
        questions.chain(removals).filter(|_| is_choice).min()
    }
}

/// The place of a server in a node's order: by chance, and always the same.
fn weight(node_name: &str, address: &ServerAddress) -> u64 {
    let mut hash = Sha256::new();
    for part in [node_name, "/", address.as_str()] {
        hash.update(part);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hash.finalize()[..8]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests;
