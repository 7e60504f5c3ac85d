//! What this server has written and the cache has not come to yet.
//!
//! Where the store is another process, the answer to a write may be here before its event. Who
//! changes the object next would begin with what it was before, and lose a race against himself: a
//! whole transaction, made durable, for nothing. So what was written is kept until the cache has
//! it. Not for readers: what they see comes in the store's order.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use coracle_store::{KeyValue, Revision};
use parking_lot::Mutex;

use super::WatchCache;

/// Bytes of values that are kept. What has no place costs its next writer the race, as without
/// this.
const MOST_BYTES: usize = 4 << 20;

/// The newest write of each key, until the cache has it.
#[derive(Debug, Default)]
pub(super) struct OwnWrites(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    newest: HashMap<Arc<str>, (Revision, Bytes)>,
    /// What is to be forgotten, about in the order of revisions.
    order: VecDeque<(Revision, Arc<str>)>,
    bytes: usize,
}

impl Kept {
    /// Forgets what the cache has.
    fn forget(&mut self, applied: Revision) {
        while let Some((revision, key)) = self.order.pop_front_if(|(at, _)| *at <= applied) {
            let is_newest = self
                .newest
                .get(&key)
                .is_some_and(|(newest, _)| *newest == revision);
            if is_newest && let Some((_, value)) = self.newest.remove(&key) {
                self.bytes -= value.len();
            }
        }
    }

    fn keep(&mut self, key: &Arc<str>, value: &Bytes, revision: Revision) {
        let is_older = |(newest, _): &(Revision, Bytes)| *newest >= revision;
        if self.bytes + value.len() > MOST_BYTES || self.newest.get(key).is_some_and(is_older) {
            return;
        }
        self.bytes += value.len();
        self.order.push_back((revision, Arc::clone(key)));
        let before = self
            .newest
            .insert(Arc::clone(key), (revision, value.clone()));
        self.bytes -= before.map_or(0, |(_, value)| value.len());
    }
}

impl WatchCache {
    /// Keeps what was written at `revision` until the cache has come there.
    pub(crate) fn keep_written(&self, key: &Arc<str>, value: &Bytes, revision: Revision) {
        let applied = self.revision();
        let mut kept = self.own_writes.0.lock();
        kept.forget(applied);
        if applied < revision {
            kept.keep(key, value, revision);
        }
    }

    /// Whether this server has written under `key` what the cache does not have yet.
    pub fn is_behind(&self, key: &str) -> bool {
        let applied = self.revision();
        let kept = self.own_writes.0.lock();
        let newest = kept.newest.get(key);
        newest.is_some_and(|(revision, _)| applied < *revision)
    }

    /// What this server has written under `key` and the cache does not have yet. What others have
    /// written since is not known here.
    pub(crate) fn written_ahead(&self, key: &str) -> Option<KeyValue> {
        let applied = self.revision();
        let kept = self.own_writes.0.lock();
        let (key, (revision, value)) = kept.newest.get_key_value(key)?;
        (applied < *revision).then(|| KeyValue {
            key: Arc::clone(key),
            value: value.clone(),
            create_revision: *revision,
            mod_revision: *revision,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: usize) -> Bytes {
        Bytes::from(vec![b' '; bytes])
    }

    fn revision_of(kept: &Kept, key: &str) -> Option<u64> {
        kept.newest.get(key).map(|(revision, _)| revision.0)
    }

    #[test]
    fn the_newest_write_is_kept_until_the_cache_has_it() {
        let (mut kept, key) = (Kept::default(), Arc::from("/registry/pods/a"));
        kept.keep(&key, &value(10), Revision(5));
        kept.keep(&key, &value(20), Revision(7));
        // An answer that was overtaken.
        kept.keep(&key, &value(30), Revision(6));
        kept.forget(Revision(5));
        assert_eq!((revision_of(&kept, &key), kept.bytes), (Some(7), 20));
        kept.forget(Revision(7));
        assert_eq!((revision_of(&kept, &key), kept.bytes), (None, 0));
        assert!(kept.order.is_empty());
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let mut kept = Kept::default();
        for number in 1..10 {
            let key = Arc::from(format!("/registry/pods/{number}"));
            kept.keep(&key, &value(MOST_BYTES / 3), Revision(number));
        }
        assert_eq!(kept.newest.len(), 3);
        assert!(kept.bytes <= MOST_BYTES);
        kept.forget(Revision(9));
        assert_eq!(kept.bytes, 0);
    }
}
