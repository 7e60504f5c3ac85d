//! How old the cache may be, for those who need not have the newest.

use std::time::Duration;

use tokio::time::Instant;

use super::WatchCache;

/// How long ago the store may have been asked for the cache to count as current, where asking takes
/// a way over the network.
pub(super) const FRESH: Duration = Duration::from_secs(1);

impl WatchCache {
    /// Whether [`WatchCache::catch_up`] would return at once; of a store that others write to as
    /// well, whether one that began within the last second has returned. What was written through
    /// this server is in the cache in either case.
    pub fn is_current(&self) -> bool {
        let Some(revision) = self.backend.known_revision() else {
            return self.was_asked_within(FRESH);
        };
        if self.shared.applied() < revision {
            self.shared.source.pull(&self.shared, revision);
        }
        self.shared.applied() >= revision
    }

    /// Whether the cache had everything that the store had acknowledged at some moment that is no
    /// longer ago than this.
    pub fn was_current_within(&self, longest: Duration) -> bool {
        let known = self.backend.known_revision();
        if known.is_some_and(|revision| self.shared.applied() >= revision) {
            *self.asked.lock() = Some(Instant::now());
            return true;
        }
        self.was_asked_within(longest)
    }

    fn was_asked_within(&self, longest: Duration) -> bool {
        let asked = *self.asked.lock();
        asked.is_some_and(|asked| asked.elapsed() < longest)
    }
}
