//! Which servers answer: in what order they are asked. Pure, the clock is a parameter.
//!
//! ```text
//! well --no answer--> failing: asked last for 1 s --its turn, no answer--> 2 s, 4 s .. 60 s
//!   ^------------------------------ any answer ------------------------------------|
//! ```

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    time::Duration,
};

use coracle_telemetry::ExponentialBackoff;
use tokio::time::Instant;

/// How long one that has failed is asked last.
const PAUSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// How long one question has a server to itself that comes back from its pause: the others need not
/// all wait for it.
const PROBE: Duration = Duration::from_secs(1);

/// The servers that have failed. One that is not here is well.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: HashMap<SocketAddr, Failing>,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    failures: u32,
    until: Instant,
    /// Its pause was over, and one question asks it in its old place.
    probed: bool,
}

// === impl Health ===

impl Health {
    /// `servers` in the order to ask them: those that are well or whose pause is over, then the
    /// others, the first to come back first.
    pub(crate) fn order(&mut self, servers: &[SocketAddr], now: Instant) -> Vec<SocketAddr> {
        let mut order = Vec::with_capacity(servers.len());
        let mut last = Vec::new();
        for server in servers {
            match self.failing.get_mut(server) {
                Some(failing) if now < failing.until => last.push((failing.until, *server)),
                Some(failing) => {
                    failing.probed = true;
                    failing.until = now + PROBE;
                    order.push(*server);
                }
                None => order.push(*server),
            }
        }
        last.sort_by_key(|(until, _)| *until);
        order.extend(last.into_iter().map(|(_, server)| server));
        order
    }

    /// It has not answered. Returns how long it is asked last from now on; `None` within its pause:
    /// questions that were under way together count as one failure.
    pub(crate) fn failed(&mut self, server: SocketAddr, now: Instant) -> Option<Duration> {
        let before = self.failing.get(&server).copied();
        if before.is_some_and(|failing| !failing.probed && now < failing.until) {
            return None;
        }
        let failures = before.map_or(0, |failing| failing.failures);
        let pause = PAUSES.after(failures);
        let failing = Failing {
            failures: failures.saturating_add(1),
            until: now + pause,
            probed: false,
        };
        self.failing.insert(server, failing);
        Some(pause)
    }

    /// It has answered. Returns whether it had failed before.
    pub(crate) fn healed(&mut self, server: SocketAddr) -> bool {
        self.failing.remove(&server).is_some()
    }

    /// Forgets those that are asked no more.
    pub(crate) fn retain(&mut self, servers: &BTreeSet<SocketAddr>) {
        self.failing.retain(|server, _| servers.contains(server));
    }
}

#[cfg(test)]
mod tests;
