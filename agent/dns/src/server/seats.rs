//! Who may keep a connection open: so many of one asker, and so many in all.
//!
//! When all are taken, whoever has fewer than the one who has most takes one from there: the
//! connection that has been silent for longest. So a few who open all they may and say nothing keep
//! nobody else out, and nobody is sent away for one who has as many.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

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

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    open: BTreeMap<u64, Open>,
    by_asker: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Open {
    asker: IpAddr,
    /// When it has last asked something, or came.
    heard: Instant,
    leave: CancellationToken,
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
        let own = taken.by_asker.get(&asker).copied().unwrap_or(0);
        if own >= self.limits.each {
            return None;
        }
        if taken.open.len() >= self.limits.total {
            taken.evict_for(own)?;
        }
        let number = taken.next;
        taken.next += 1;
        let leave = CancellationToken::new();
        let open = Open {
            asker,
            heard: Instant::now(),
            leave: leave.clone(),
        };
        taken.open.insert(number, open);
        *taken.by_asker.entry(asker).or_default() += 1;
        Some(Seat {
            taken: Arc::clone(&self.taken),
            number,
            leave,
        })
    }
}

// === impl Taken ===

impl Taken {
    /// Sends one away for an asker who has `own`; `None` if nobody has more.
    fn evict_for(&mut self, own: usize) -> Option<()> {
        let most = self.by_asker.values().copied().max()?;
        if most <= own {
            return None;
        }
        let of_most = self.open.iter();
        let of_most = of_most.filter(|(_, open)| self.by_asker.get(&open.asker) == Some(&most));
        let (number, _) = of_most.min_by_key(|(_, open)| open.heard)?;
        self.remove(*number)?.leave.cancel();
        Some(())
    }

    fn remove(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        if let Some(count) = self.by_asker.get_mut(&open.asker) {
            *count -= 1;
            if *count == 0 {
                self.by_asker.remove(&open.asker);
            }
        }
        Some(open)
    }
}

// === impl Seat ===

impl Seat {
    /// It has asked something.
    pub(super) fn asks(&self) {
        if let Some(open) = self.taken.lock().open.get_mut(&self.number) {
            open.heard = Instant::now();
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
        let counted: usize = taken.by_asker.values().sum();
        assert_eq!(counted, taken.open.len());
        (counted, taken.by_asker.len())
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
        assert_eq!(counted(&seats), (4, 4));
        drop((greedy, second, third, fourth));
        assert_eq!(counted(&seats), (0, 0));
    }
}
