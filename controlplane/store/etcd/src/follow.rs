//! How far the watches are, and what brings them on.
//!
//! A watch learns of a revision by an event. Where the newest revision is somebody else's, outside
//! the prefix, none comes: a member that can be believed is asked how far it is, and from others an
//! event is made, by writing a key of our own.

use std::sync::{Arc, Weak};

use coracle_store::Revision;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Duration, Instant, timeout_at},
};

/// How far one watch is.
pub(crate) struct Follower {
    reached: watch::Sender<Revision>,
    /// The member is to be asked how far it is; without, it cannot be believed.
    pub(crate) ask: Option<Notify>,
}

impl Follower {
    pub(crate) fn new(from: Revision, tells_progress: bool) -> Arc<Self> {
        Arc::new(Self {
            reached: watch::Sender::new(from),
            ask: tells_progress.then(Notify::new),
        })
    }

    pub(crate) fn reach(&self, revision: Revision) {
        self.reached.send_if_modified(|reached| {
            let is_further = *reached < revision;
            if is_further {
                *reached = revision;
            }
            is_further
        });
    }
}

/// All that run.
#[derive(Default)]
pub(crate) struct Followers(Mutex<Vec<Weak<Follower>>>);

/// What brings the watches to a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// They are there, or were asked.
    Nothing,
    /// An event.
    Write,
}

impl Followers {
    pub(crate) fn add(&self, follower: &Arc<Follower>) {
        let mut followers = self.0.lock();
        followers.retain(|other| other.strong_count() > 0);
        followers.push(Arc::downgrade(follower));
    }

    fn behind(&self, revision: Revision) -> Vec<Arc<Follower>> {
        let followers = self.0.lock();
        followers
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|follower| *follower.reached.borrow() < revision)
            .collect()
    }

    /// Asks those that are behind `revision` and can be asked.
    pub(crate) fn ask(&self, revision: Revision) -> Need {
        let behind = self.behind(revision);
        let mut need = Need::Nothing;
        for follower in behind {
            match &follower.ask {
                Some(ask) => ask.notify_one(),
                None => need = Need::Write,
            }
        }
        need
    }

    /// Waits until all have come to `revision`, so long at most.
    pub(crate) async fn wait(&self, revision: Revision, most: Duration) {
        let deadline = Instant::now() + most;
        for follower in self.behind(revision) {
            let mut reached = follower.reached.subscribe();
            drop(follower);
            // One that has ended is not waited for either.
            let _in_time =
                timeout_at(deadline, reached.wait_for(|reached| *reached >= revision)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_behind_is_asked_or_written_to() {
        let followers = Followers::default();
        let asked = Follower::new(Revision(5), true);
        followers.add(&asked);
        assert_eq!(followers.ask(Revision(5)), Need::Nothing);
        assert_eq!(followers.ask(Revision(6)), Need::Nothing);
        let ask = asked.ask.as_ref().expect("it can be asked");
        tokio::time::timeout(Duration::from_secs(1), ask.notified())
            .await
            .expect("it was asked");
        let old = Follower::new(Revision(5), false);
        followers.add(&old);
        assert_eq!(followers.ask(Revision(6)), Need::Write);
        old.reach(Revision(7));
        old.reach(Revision(6));
        assert_eq!(followers.ask(Revision(7)), Need::Nothing);
        drop((asked, old));
        assert_eq!(followers.ask(Revision(100)), Need::Nothing);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_has_an_end() {
        let followers = Followers::default();
        let slow = Follower::new(Revision(1), false);
        followers.add(&slow);
        followers.wait(Revision(2), Duration::from_secs(1)).await;
        slow.reach(Revision(2));
        let wait = followers.wait(Revision(2), Duration::from_secs(3600));
        tokio::time::timeout(Duration::from_secs(1), wait)
            .await
            .expect("it is there");
    }
}
