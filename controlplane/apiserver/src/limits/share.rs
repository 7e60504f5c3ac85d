//! A number of things that many take from, each identity a part of it. Two atomic additions to
//! take, none allocates.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Identities are told apart by so many flows; two that meet in one share its part.
const FLOWS: usize = 1024;

/// Whose part is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow(usize);

impl Flow {
    pub(crate) fn of(hash: u64) -> Self {
        Self(usize::try_from(hash % FLOWS as u64).unwrap_or_default())
    }
}

/// The things.
#[derive(Debug)]
pub(crate) struct Share {
    most: usize,
    /// Of one flow.
    each: usize,
    taken: AtomicUsize,
    by_flow: Box<[AtomicUsize]>,
}

/// Some of a share, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    share: Arc<Share>,
    flow: Flow,
    amount: usize,
}

impl Share {
    pub(crate) fn new(most: usize, each: usize) -> Self {
        Self {
            most,
            each,
            taken: AtomicUsize::new(0),
            by_flow: (0..FLOWS).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// `None` when it is taken.
    pub(crate) fn take(self: &Arc<Self>, flow: Flow, amount: usize) -> Option<Permit> {
        let mut permit = Permit {
            share: Arc::clone(self),
            flow,
            amount: 0,
        };
        permit.grow(amount).then_some(permit)
    }

    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    fn counters(&self, flow: Flow) -> [(&AtomicUsize, usize); 2] {
        [(&self.by_flow[flow.0], self.each), (&self.taken, self.most)]
    }
}

impl Permit {
    /// Takes `more`; false when that is more than there is, and then nothing was taken.
    pub(crate) fn grow(&mut self, more: usize) -> bool {
        let [(own, each), (taken, most)] = self.share.counters(self.flow);
        if !add(own, more, each) {
            return false;
        }
        if !add(taken, more, most) {
            own.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.amount += more;
        true
    }

    /// Bytes that keep it until they are dropped.
    pub(crate) fn kept_with(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Counted {
            bytes,
            _permit: self,
        })
    }
}

/// Bytes, and what they take of a share.
struct Counted {
    bytes: Vec<u8>,
    _permit: Permit,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for (counter, _) in self.share.counters(self.flow) {
            counter.fetch_sub(self.amount, Ordering::Relaxed);
        }
    }
}

/// A lock for each flow, which those who wait get in the order in which they came. Made as they are
/// used.
#[derive(Debug)]
pub(crate) struct FlowLocks(Box<[OnceLock<Arc<Mutex<()>>>]>);

impl FlowLocks {
    pub(crate) fn new() -> Self {
        Self((0..FLOWS).map(|_| OnceLock::new()).collect())
    }

    /// Waits until nobody else of the flow holds its lock.
    pub(crate) async fn lock(&self, flow: Flow) -> OwnedMutexGuard<()> {
        Arc::clone(self.0[flow.0].get_or_init(Arc::default))
            .lock_owned()
            .await
    }
}

fn add(counter: &AtomicUsize, more: usize, most: usize) -> bool {
    counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            Some(now + more).filter(|sum| *sum <= most)
        })
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flow_gets_its_part_and_all_together_get_all() {
        let share = Arc::new(Share::new(10, 4));
        let mut held: Vec<Permit> = (0..4).filter_map(|_| share.take(Flow(1), 1)).collect();
        assert!(share.take(Flow(1), 1).is_none(), "its part is taken");
        held.extend(share.take(Flow(2), 4));
        held.extend(share.take(Flow(3), 2));
        assert_eq!(share.taken(), 10);
        assert!(share.take(Flow(4), 1).is_none(), "all is taken");
        drop(held);
        assert_eq!(share.taken(), 0);
    }

    #[test]
    fn what_cannot_grow_keeps_what_it_has() {
        let share = Arc::new(Share::new(10, 4));
        let mut permit = share.take(Flow(1), 3).unwrap();
        assert!(!permit.grow(2));
        assert!(permit.grow(1));
        assert_eq!(share.taken(), 4);
        drop(permit);
        assert_eq!(share.taken(), 0);
    }
}
