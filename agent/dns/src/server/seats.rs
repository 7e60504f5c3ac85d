//! Who may keep a connection open: so many of one asker, and so many in all.
//!
//! When all are taken, whoever has fewer than the one who has most takes one from there: the
//! connection that has been silent for longest, and only then one that waits for its answer. So a
//! few who open all they may and say nothing keep nobody else out, and nobody is sent away for one
//! who has as many.

use std::{net::IpAddr, sync::Arc};

use coracle_relay::Counted;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// In all, and of one asker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) total: usize,
    pub(super) each: usize,
}

/// The connections. Clones are one.
#[derive(Debug, Clone)]
pub(super) struct Seats {
    limits: Limits,
    taken: Arc<Mutex<Taken>>,
}

type Taken = Counted<Heard>;

/// Those who go first come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Heard {
    is_waiting: bool,
    /// When it has last asked something, or came.
    at: Instant,
}

/// One of them, given back when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    taken: Arc<Mutex<Taken>>,
    number: u64,
    leave: CancellationToken,
}

// === impl Seats ===

impl Seats {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            taken: Arc::default(),
        }
    }

    /// `None` for one who has enough.
    pub(super) fn take(&self, asker: IpAddr) -> Option<Seat> {
        let mut taken = self.taken.lock();
        let own = taken.count_of(asker);
        if own >= self.limits.each {
            return None;
        }
        if taken.count() >= self.limits.total {
            let number = silent_of_most(&taken, own)?;
            taken.send_away(number);
        }
        let heard = Heard {
            is_waiting: false,
            at: Instant::now(),
        };
        let (number, leave) = taken.add(asker, heard);
        Some(Seat {
            taken: Arc::clone(&self.taken),
            number,
            leave,
        })
    }
}

/// Who goes for an asker who has `own`; `None` if nobody has more.
fn silent_of_most(taken: &Taken, own: usize) -> Option<u64> {
    let most = taken.most();
    if most <= own {
        return None;
    }
    let of_most = taken.all();
    let of_most = of_most.filter(|(_, asker, _)| taken.count_of(*asker) == most);
    let first = of_most.min_by_key(|(_, _, heard)| **heard);
    first.map(|(number, ..)| number)
}

// === impl Seat ===

impl Seat {
    /// It has asked something.
    pub(super) fn asks(&self) {
        self.is_heard(true);
    }

    /// It has its answer.
    pub(super) fn is_answered(&self) {
        self.is_heard(false);
    }

    fn is_heard(&self, is_waiting: bool) {
        if let Some(heard) = self.taken.lock().get_mut(self.number) {
            *heard = Heard {
                is_waiting,
                at: Instant::now(),
            };
        }
    }

    /// Works for the connection until it has to go for another.
    pub(super) async fn keep(&self, work: impl Future<Output = ()>) {
        self.leave.run_until_cancelled(work).await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.taken.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMITS: Limits = Limits { total: 4, each: 3 };

    fn asker(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn counted(seats: &Seats) -> (usize, usize) {
        let taken = seats.taken.lock();
        (taken.count(), taken.most())
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_most_gives_up_the_most_silent_of_its_own() {
        let seats = Seats::new(LIMITS);
        let mut greedy = Vec::new();
        for _ in 0..3 {
            greedy.extend(seats.take(asker(1)));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(seats.take(asker(1)).is_none(), "it has enough");
        let second = seats.take(asker(2)).unwrap();
        greedy[0].asks();
        let third = seats.take(asker(3)).unwrap();
        let gone = |seat: &Seat| seat.leave.is_cancelled();
        let left: Vec<bool> = greedy.iter().map(gone).collect();
        assert_eq!(left, [false, true, false]);
        // Two have one, and one has two: he gives one to nobody who has as many then.
        let fourth = seats.take(asker(4)).unwrap();
        assert!(gone(&greedy[2]) && !gone(&second) && !gone(&third) && !gone(&fourth));
        assert!(seats.take(asker(4)).is_none(), "all have one");
        assert_eq!(counted(&seats), (4, 1));
        drop((greedy, second, third, fourth));
        assert_eq!(counted(&seats), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_answer_goes_after_who_is_idle() {
        let seats = Seats::new(LIMITS);
        let mut greedy = Vec::new();
        for _ in 0..3 {
            greedy.extend(seats.take(asker(1)));
        }
        let other = seats.take(asker(2)).unwrap();
        // The slow question is the oldest; who had its answer meanwhile is idle.
        greedy[0].asks();
        tokio::time::advance(Duration::from_secs(1)).await;
        for seat in &greedy[1..] {
            seat.asks();
            seat.is_answered();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let third = seats.take(asker(3)).unwrap();
        let gone: Vec<bool> = greedy
            .iter()
            .map(|seat| seat.leave.is_cancelled())
            .collect();
        assert_eq!(gone, [false, true, false]);
        assert!(!other.leave.is_cancelled() && !third.leave.is_cancelled());
    }
}
