//! How often a wrong proof may be shown.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// So many wrong proofs from one address within [`WITHIN`], and none of its is looked at any more:
/// what somebody chose as a token cannot be guessed here.
const WRONG: usize = 30;
/// The same for all together: much larger, so that one alone does not keep others from joining.
const WRONG_OF_ALL: usize = 10 * WRONG;
/// See [`WRONG`].
pub(crate) const WITHIN: Duration = Duration::from_secs(60);

/// Proofs that were wrong lately, or are being looked at, and who showed them.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<VecDeque<(Option<IpAddr>, Instant)>>);

impl Attempts {
    /// Counts one; `None` if there have been too many.
    pub(crate) fn begin(&self, peer: Option<IpAddr>, now: Instant) -> Option<()> {
        let peer = peer.map(network);
        let mut attempts = self.0.lock();
        while attempts
            .front()
            .is_some_and(|(_, first)| *first + WITHIN <= now)
        {
            attempts.pop_front();
        }
        let own = attempts.iter().filter(|(other, _)| *other == peer).count();
        (own < WRONG && attempts.len() < WRONG_OF_ALL).then(|| attempts.push_back((peer, now)))
    }

    /// It was a right one.
    pub(crate) fn forgive(&self, peer: Option<IpAddr>) {
        let peer = peer.map(network);
        let mut attempts = self.0.lock();
        if let Some(last) = attempts.iter().rposition(|(other, _)| *other == peer) {
            attempts.remove(last);
        }
    }
}

/// Whoever has one IPv6 address has the others of its /64, too.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Option<IpAddr> {
        Some(address.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_wrong_proofs_and_no_more_for_a_while() {
        let (attempts, one) = (Attempts::default(), peer("198.18.0.1"));
        for _ in 0..10 * WRONG {
            attempts.begin(one, Instant::now()).unwrap();
            attempts.forgive(one);
        }
        for _ in 0..WRONG {
            attempts.begin(one, Instant::now()).unwrap();
        }
        assert_eq!(attempts.begin(one, Instant::now()), None);
        assert_eq!(
            attempts.begin(peer("::ffff:198.18.0.1"), Instant::now()),
            None
        );
        tokio::time::advance(WITHIN).await;
        attempts.begin(one, Instant::now()).unwrap();
    }

    #[test]
    fn wrong_proofs_of_one_address_do_not_count_for_another() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        while attempts.begin(peer("fd00::1"), now).is_some() {}
        assert_eq!(attempts.begin(peer("fd00::2"), now), None);
        attempts.begin(peer("fd00:0:0:1::1"), now).unwrap();
        let others = (0..=255).map(|n| peer(&format!("198.18.1.{n}")));
        let more = others.cycle().take(WRONG_OF_ALL);
        let begun = more.filter(|one| attempts.begin(*one, now).is_some());
        assert_eq!(begun.count(), WRONG_OF_ALL - WRONG - 1);
    }
}
