//! The pods that back off, and who of them goes before its time: while nobody is active, to wait
//! longer helps nobody.
//!
//! ```text
//! push --> waiting, until it may be popped --> early --pop--> (in flight)
//!             \                                  \--its window is over--> (active)
//!              \--its back-off is over----------------------------------> (active)
//! ```
//! The early go by windows of a second in which their back-offs end; within a window as the active
//! do: the highest priority, then who failed first. A window ends as a whole, so that the order
//! holds for those that become active, too.
//!
//! Source: `pkg/scheduler/backend/queue/backoff_queue.go` at v1.37 (`SchedulerPopFromBackoffQ`).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use crate::pod_info::PodUid;

/// Within so long, priority stands above whose back-off ends first.
const ORDERING_WINDOW: Duration = Duration::from_secs(1);

/// How long one pod backs off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backoff {
    pub(super) priority: i32,
    /// When its last attempt failed.
    pub(super) failed: Instant,
    /// From when on it may be popped before its time; [`Backoff::until`] if it has to wait it out.
    pub(super) early_from: Instant,
    /// When it is over.
    pub(super) until: Instant,
}

/// A pod that may be popped; the smallest is next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Early {
    window: u32,
    priority: Reverse<i32>,
    failed: Instant,
    uid: PodUid,
}

/// Pods that back off, by the windows in which they end.
#[derive(Debug)]
pub(super) struct BackoffQueue {
    /// The beginning of the first window.
    epoch: Instant,
    waiting: BTreeMap<(Instant, PodUid), Backoff>,
    early: BTreeSet<Early>,
}

impl BackoffQueue {
    pub(super) fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            waiting: BTreeMap::new(),
            early: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.early.len()
    }

    /// Whether some may be popped.
    pub(super) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    pub(super) fn push(&mut self, uid: &PodUid, backoff: Backoff, now: Instant) {
        if backoff.early_from <= now && now < backoff.until {
            self.early.insert(self.early_key(uid, &backoff));
        } else {
            self.waiting
                .insert((backoff.early_from, uid.clone()), backoff);
        }
    }

    /// Takes out a pod that was pushed with `backoff`.
    pub(super) fn remove(&mut self, uid: &PodUid, backoff: &Backoff) {
        self.waiting.remove(&(backoff.early_from, uid.clone()));
        self.early.remove(&self.early_key(uid, backoff));
    }

    /// Takes the first that may be popped and is one of those that are `wanted`.
    pub(super) fn pop(&mut self, wanted: impl Fn(&PodUid) -> bool) -> Option<PodUid> {
        let next = self.early.iter().find(|early| wanted(&early.uid))?.clone();
        self.early.remove(&next);
        Some(next.uid)
    }

    /// Takes those whose back-off is over, in order, and lets those be popped whose time for that
    /// has come.
    pub(super) fn pop_completed(&mut self, now: Instant) -> Vec<PodUid> {
        let mut completed = Vec::new();
        while let Some(first) = self.early.first()
            && self.window_end(first.window) <= now
        {
            completed.extend(self.early.pop_first().map(|early| early.uid));
        }
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 <= now
        {
            let ((_, uid), backoff) = first.remove_entry();
            if backoff.until <= now {
                completed.push(uid);
            } else {
                self.early.insert(self.early_key(&uid, &backoff));
            }
        }
        completed
    }

    /// When [`BackoffQueue::pop_completed`] has something to do next.
    pub(super) fn next_completed(&self) -> Option<Instant> {
        let waiting = self.waiting.first_key_value().map(|((from, _), _)| *from);
        let early = self
            .early
            .first()
            .map(|early| self.window_end(early.window));
        waiting.into_iter().chain(early).min()
    }

    fn early_key(&self, uid: &PodUid, backoff: &Backoff) -> Early {
        let since_epoch = backoff.until.saturating_duration_since(self.epoch);
        let window = since_epoch.as_secs() / ORDERING_WINDOW.as_secs();
        Early {
            window: u32::try_from(window).unwrap_or(u32::MAX),
            priority: Reverse(backoff.priority),
            failed: backoff.failed,
            uid: uid.clone(),
        }
    }

    fn window_end(&self, window: u32) -> Instant {
        self.epoch + ORDERING_WINDOW.saturating_mul(window.saturating_add(1))
    }
}

#[cfg(test)]
mod tests;
