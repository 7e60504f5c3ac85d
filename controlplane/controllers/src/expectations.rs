//! Remembers which creations and deletions a controller has asked for but not yet seen in its watch.
//!
//! A controller that counts pods from its cache must not act again before the cache shows its last action, or it
//! creates too many. What is never seen expires, so that a lost event delays a controller but never stops it.
//!
//! Source: `pkg/controller/controller_utils.go` (UIDTrackingControllerExpectations) at v1.37.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cache::Key;

/// After this time the cache is believed whatever was expected.
const EXPIRY: Duration = Duration::from_secs(300);

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
    since: Instant,
}

impl Expectations {
    /// Whether everything asked for has been seen, or has had time enough.
    pub(crate) fn satisfied(&self, owner: &Key) -> bool {
        let owners = self.owners.lock();
        owners.get(owner).is_none_or(|outstanding| {
            (outstanding.creations == 0 && outstanding.deletions.is_empty()) || outstanding.since.elapsed() > EXPIRY
        })
    }

    /// Called before `creations` creates and the deletes of the pods with `deletions` uids are sent.
    pub(crate) fn expect(&self, owner: &Key, creations: usize, deletions: HashSet<String>) {
        self.owners.lock().insert(owner.clone(), Outstanding { creations, deletions, since: Instant::now() });
    }

    /// A create was seen, or failed and never will be.
    pub(crate) fn creation_observed(&self, owner: &Key) {
        if let Some(outstanding) = self.owners.lock().get_mut(owner) {
            outstanding.creations = outstanding.creations.saturating_sub(1);
        }
    }

    /// A delete was seen, or failed and never will be.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn owner_waits_until_everything_asked_for_is_seen() {
        let (expectations, owner) = (Expectations::default(), Key::new("ns", "rs"));
        assert!(expectations.satisfied(&owner));
        expectations.expect(&owner, 2, ["u".to_owned()].into());
        for step in 0..3 {
            assert!(!expectations.satisfied(&owner), "step {step}");
            match step {
                2 => expectations.deletion_observed(&owner, "u"),
                _ => expectations.creation_observed(&owner),
            }
        }
        assert!(expectations.satisfied(&owner));
    }

    #[tokio::test(start_paused = true)]
    async fn expectation_never_met_expires() {
        let (expectations, owner) = (Expectations::default(), Key::new("ns", "rs"));
        expectations.expect(&owner, 1, HashSet::new());
        tokio::time::advance(EXPIRY + Duration::from_secs(1)).await;
        assert!(expectations.satisfied(&owner));
    }
}
