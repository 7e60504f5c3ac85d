//! Which servers have answered, and which not. Pure.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

/// After a failure a server is asked after the others for so long, doubled with each up to the
/// other.
const FIRST: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(60);

/// Of those that have failed since they last answered.
#[derive(Debug, Default)]
pub(super) struct Health(HashMap<SocketAddr, Unwell>);

#[derive(Debug)]
struct Unwell {
    until: Instant,
    pause: Duration,
}

impl Health {
    /// The order in which servers are asked.
    pub(super) fn order(&self, servers: &[SocketAddr], now: Instant) -> Vec<SocketAddr> {
        let is_unwell = |server: &SocketAddr| {
            let unwell = self.0.get(server);
            unwell.is_some_and(|unwell| now < unwell.until)
        };
        let mut order = servers.to_vec();
        // Stable: else as they were given.
        order.sort_by_key(is_unwell);
        order
    }

    pub(super) fn well(&mut self, server: SocketAddr) {
        self.0.remove(&server);
    }

    pub(super) fn failed(&mut self, server: SocketAddr, now: Instant) {
        let pause = match self.0.get(&server) {
            Some(unwell) => (unwell.pause * 2).min(LAST),
            None => FIRST,
        };
        let until = now + pause;
        self.0.insert(server, Unwell { until, pause });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_is_asked_last_for_longer_and_longer() {
        let (one, two): (SocketAddr, SocketAddr) = (
            "192.0.2.1:53".parse().unwrap(),
            "192.0.2.2:53".parse().unwrap(),
        );
        let servers = [one, two];
        let (mut health, mut now) = (Health::default(), Instant::now());
        assert_eq!(health.order(&servers, now), [one, two]);
        for secs in [1, 2, 4, 8, 16, 32, 60, 60] {
            health.failed(one, now);
            assert_eq!(health.order(&servers, now), [two, one]);
            now += Duration::from_secs(secs) - Duration::from_millis(1);
            assert_eq!(health.order(&servers, now), [two, one]);
            now += Duration::from_millis(1);
            assert_eq!(health.order(&servers, now), [one, two], "{secs}");
        }
        health.failed(one, now);
        health.well(one);
        assert_eq!(health.order(&servers, now), [one, two]);
    }
}
