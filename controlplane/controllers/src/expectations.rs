//! Remembers which creations and deletions a controller has asked for but not yet seen in its watch.
//!
//! A controller that counts pods from its cache must not act again before the cache shows its last action, or it
//! creates too many. What is never seen expires, so that a lost event delays a controller but never stops it. What was
//! never sent, because the round that would have sent it was cut off, is taken back at once.
//!
//! Source: `pkg/controller/controller_utils.go` (UIDTrackingControllerExpectations) at v1.37.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cache::Key;

/// After this time the cache is believed whatever was expected.
const EXPIRY: Duration = Duration::from_secs(300);
/// The same for a round that was cut off with calls under way: what these did shows by then.
const DOUBT: Duration = Duration::from_secs(10);

/// Outstanding creations and deletions by the key of their owner.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    owners: Mutex<HashMap<Key, Outstanding>>,
}

#[derive(Debug)]
struct Outstanding {
    creations: usize,
    /// Uids of the pods to go.
    deletions: HashSet<String>,
    until: Instant,
}

/// The calls of one round, from [`Expectations::expect`] to their answers. Dropped early (the reconcile took too long, or
/// panicked) it takes back what it has not sent.
#[must_use = "what is not sent through a round is taken back when it is dropped"]
#[derive(Debug)]
pub(crate) struct Round<'a> {
    expectations: &'a Expectations,
    pub(crate) owner: Key,
    unsent_creations: AtomicUsize,
    unsent_deletions: Mutex<HashSet<String>>,
    unanswered: AtomicUsize,
}

impl Expectations {
    /// How long to wait yet for what was asked for and not seen; `None` if there is nothing, or it has had time enough. The
    /// caller has to look again by itself after this time: perhaps no event comes.
    pub(crate) fn pending(&self, owner: &Key) -> Option<Duration> {
        let owners = self.owners.lock();
        let outstanding = owners.get(owner).filter(|left| left.creations > 0 || !left.deletions.is_empty())?;
        Some(outstanding.until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Called before `creations` creates and the deletes of the pods with `deletions` uids are sent, by the round.
    pub(crate) fn expect(&self, owner: &Key, creations: usize, deletions: HashSet<String>) -> Round<'_> {
        let until = Instant::now() + EXPIRY;
        if creations == 0 && deletions.is_empty() {
            self.forget(owner);
        } else {
            let outstanding = Outstanding { creations, deletions: deletions.clone(), until };
            self.owners.lock().insert(owner.clone(), outstanding);
        }
        Round {
            expectations: self,
            owner: owner.clone(),
            unsent_creations: AtomicUsize::new(creations),
            unsent_deletions: Mutex::new(deletions),
            unanswered: AtomicUsize::new(0),
        }
    }

    /// A create was seen, or never will be.
    pub(crate) fn creation_observed(&self, owner: &Key) {
        if let Some(outstanding) = self.owners.lock().get_mut(owner) {
            outstanding.creations = outstanding.creations.saturating_sub(1);
        }
    }

    /// A delete was seen, or never will be.
    pub(crate) fn deletion_observed(&self, owner: &Key, uid: &str) {
        if let Some(outstanding) = self.owners.lock().get_mut(owner) {
            outstanding.deletions.remove(uid);
        }
    }

    /// Forgets an owner that is gone.
    pub(crate) fn forget(&self, owner: &Key) {
        self.owners.lock().remove(owner);
    }
}

impl Round<'_> {
    /// Sends one of the creates. One that fails is expected no more.
    pub(crate) async fn create<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.unsent_creations.fetch_sub(1, Relaxed);
        let answer = self.answered(call).await;
        if answer.is_err() {
            self.expectations.creation_observed(&self.owner);
        }
        answer
    }

    /// Sends the delete of the pod with `uid`. One that fails is expected no more.
    pub(crate) async fn delete<T, E>(&self, uid: &str, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.unsent_deletions.lock().remove(uid);
        let answer = self.answered(call).await;
        if answer.is_err() {
            self.expectations.deletion_observed(&self.owner, uid);
        }
        answer
    }

    async fn answered<T>(&self, call: impl Future<Output = T>) -> T {
        self.unanswered.fetch_add(1, Relaxed);
        let answer = call.await;
        self.unanswered.fetch_sub(1, Relaxed);
        answer
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        for _ in 0..*self.unsent_creations.get_mut() {
            self.expectations.creation_observed(&self.owner);
        }
        for uid in self.unsent_deletions.get_mut().drain() {
            self.expectations.deletion_observed(&self.owner, &uid);
        }
        if *self.unanswered.get_mut() > 0
            && let Some(outstanding) = self.expectations.owners.lock().get_mut(&self.owner)
        {
            outstanding.until = outstanding.until.min(Instant::now() + DOUBT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = Result<(), ()>;

    async fn answer(answer: Answer) -> Answer {
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn owner_waits_until_everything_asked_for_is_seen() {
        let (expectations, owner) = (Expectations::default(), Key::new("ns", "rs"));
        assert_eq!(expectations.pending(&owner), None);
        let round = expectations.expect(&owner, 2, ["u".to_owned()].into());
        round.create(answer(Ok(()))).await.unwrap();
        round.create(answer(Ok(()))).await.unwrap();
        round.delete("u", answer(Ok(()))).await.unwrap();
        drop(round);
        for step in 0..3 {
            assert_eq!(expectations.pending(&owner), Some(EXPIRY), "step {step}");
            match step {
                2 => expectations.deletion_observed(&owner, "u"),
                _ => expectations.creation_observed(&owner),
            }
        }
        assert_eq!(expectations.pending(&owner), None);
    }

    #[tokio::test(start_paused = true)]
    async fn expectation_never_met_expires() {
        let (expectations, owner) = (Expectations::default(), Key::new("ns", "rs"));
        expectations.expect(&owner, 1, HashSet::new()).create(answer(Ok(()))).await.unwrap();
        tokio::time::advance(EXPIRY - Duration::from_secs(1)).await;
        assert_eq!(expectations.pending(&owner), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(expectations.pending(&owner), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_or_is_never_sent_is_not_waited_for() {
        let (expectations, owner) = (Expectations::default(), Key::new("ns", "rs"));
        let round = expectations.expect(&owner, 3, ["failed".to_owned(), "unsent".to_owned()].into());
        round.create(answer(Err(()))).await.unwrap_err();
        round.delete("failed", answer(Err(()))).await.unwrap_err();
        assert!(expectations.pending(&owner).is_some(), "two are to come");
        drop(round);
        assert_eq!(expectations.pending(&owner), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_is_cut_off_holds_its_owner_for_moments() {
        let (expectations, owner) = (Expectations::default(), Key::new("ns", "rs"));
        let cut = async {
            let round = expectations.expect(&owner, 5, HashSet::new());
            round.create(answer(Ok(()))).await.unwrap();
            expectations.creation_observed(&owner);
            round.create(std::future::pending::<Answer>()).await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(60), cut).await.unwrap_err();
        assert_eq!(expectations.pending(&owner), Some(DOUBT), "one may or may not have been done");
        tokio::time::advance(DOUBT).await;
        assert_eq!(expectations.pending(&owner), None);
    }
}
