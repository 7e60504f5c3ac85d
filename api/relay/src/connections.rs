//! All connections of a server that anybody reaches: how many there are, and who goes when there
//! are too many.
//!
//! A connection whose client has not shown who it is has no claim: when there are too many from its
//! address, or too many at all, the oldest of those goes. So whoever comes gets its turn to say who
//! it is, however many others only wait; and when all come back at once, such as after a restart,
//! they do not push each other out before they could speak.

use std::{net::IpAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Counted;

/// Most connections from one address whose clients have not shown who they are.
const OF_A_STRANGER: usize = 256;
/// Until then a client is still introducing itself, and goes only when all places are taken.
const INTRODUCTION: Duration = Duration::from_secs(2);
/// Beyond the bound, for this machine itself: its administrator and its agent.
const FOR_LOOPBACK: usize = 256;

/// The connections.
pub struct Connections {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Since when each is there.
    strangers: Counted<Instant>,
    settled: usize,
}

/// One of them, as long as it lives.
pub struct Slot {
    connections: Arc<Connections>,
    number: u64,
    leave: CancellationToken,
    is_settled: std::sync::atomic::AtomicBool,
}

impl Connections {
    /// No more than `most`, but for this machine itself.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            state: Mutex::default(),
        })
    }

    /// Lets one in from `source`, for which another may have to go; `None` if all that are there
    /// have a claim.
    #[must_use]
    pub fn admit(self: &Arc<Self>, source: IpAddr) -> Option<Slot> {
        let mut state = self.state.lock();
        if state.strangers.count_of(source) >= OF_A_STRANGER {
            state.evict(|from, since| from == source && since.elapsed() >= INTRODUCTION);
        }
        let most = if source.is_loopback() {
            self.most + FOR_LOOPBACK
        } else {
            self.most
        };
        if state.settled + state.strangers.count() >= most && !state.evict(|_, _| true) {
            return None;
        }
        let (number, leave) = state.strangers.add(source, Instant::now());
        Some(Slot {
            connections: Arc::clone(self),
            number,
            leave,
            is_settled: false.into(),
        })
    }

    /// How many there are: of strangers, and of those with a claim.
    #[must_use]
    pub fn counted(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.strangers.count(), state.settled)
    }
}

impl State {
    /// Sends the oldest of these away; whether there was one.
    fn evict(&mut self, is_one: impl Fn(IpAddr, &Instant) -> bool) -> bool {
        let mut strangers = self.strangers.all();
        let oldest = strangers.find(|(_, source, since)| is_one(*source, since));
        let Some(number) = oldest.map(|(number, ..)| number) else {
            return false;
        };
        drop(strangers);
        self.strangers.send_away(number);
        true
    }
}

impl Slot {
    /// Its client has shown who it is.
    pub fn settle(&self) {
        let mut state = self.connections.state.lock();
        // One that has just been sent away stays away.
        if state.strangers.remove(self.number) {
            state.settled += 1;
            self.is_settled
                .store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Told when it has to go for another.
    #[must_use]
    pub fn leave(&self) -> CancellationToken {
        self.leave.clone()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        if *self.is_settled.get_mut() {
            state.settled -= 1;
        } else {
            state.strangers.remove(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn address(last: u8) -> IpAddr {
        IpAddr::from([198, 18, 0, last])
    }

    fn counted(connections: &Connections) -> (usize, usize) {
        connections.counted()
    }

    #[test]
    fn the_oldest_stranger_goes_when_all_places_are_taken() {
        let connections = Connections::new(3);
        let known = connections.admit(address(1)).unwrap();
        known.settle();
        let strangers = [
            connections.admit(address(2)).unwrap(),
            connections.admit(address(3)).unwrap(),
        ];
        let another = connections.admit(address(4)).unwrap();
        assert!(
            strangers[0].leave.is_cancelled()
                && !strangers[1].leave.is_cancelled()
                && !known.leave.is_cancelled()
        );
        another.settle();
        strangers[0].settle();
        assert_eq!(
            counted(&connections),
            (1, 2),
            "who was sent away does not come back by asking"
        );
        drop((known, strangers, another));
        assert_eq!(counted(&connections), (0, 0));
    }

    #[test]
    fn those_with_a_claim_stay_but_this_machine_still_gets_in() {
        let connections = Connections::new(2);
        let known: Vec<Slot> = (0..2)
            .filter_map(|at| connections.admit(address(at)))
            .collect();
        known.iter().for_each(Slot::settle);
        assert!(connections.admit(address(9)).is_none());
        let here = connections.admit(HERE).unwrap();
        here.settle();
        assert_eq!(counted(&connections), (0, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_has_so_many_strangers() {
        let connections = Connections::new(10_000);
        let mut slots: Vec<Slot> = (0..=OF_A_STRANGER)
            .filter_map(|_| connections.admit(address(1)))
            .collect();
        let other = connections.admit(address(2)).unwrap();
        assert_eq!(
            counted(&connections),
            (OF_A_STRANGER + 2, 0),
            "they have just come"
        );
        tokio::time::advance(INTRODUCTION).await;
        slots.extend(connections.admit(address(1)));
        assert!(
            slots[0].leave.is_cancelled()
                && !slots[1].leave.is_cancelled()
                && !other.leave.is_cancelled()
        );
        assert_eq!(counted(&connections), (OF_A_STRANGER + 2, 0));
    }
}
