//! Which objects have changed since their reader has looked last.
//!
//! For a reader that is slow, or is started again: an object counts once however often it has changed, nothing is missed,
//! and the informer waits for nobody.

use std::{collections::HashSet, fmt, sync::Arc};

use kube::Resource;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::cache::{Cache, Key};

/// An object by its key: as it is now, or `None` if it is gone.
pub type Seen<K> = (Key, Option<Arc<K>>);

/// What waits for the reader, in order of the first change.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    keys: Mutex<(Vec<Key>, HashSet<Key>)>,
    wake: Notify,
}

impl Pending {
    pub(crate) fn add(&self, key: Key) {
        let mut keys = self.keys.lock();
        let (order, known) = &mut *keys;
        if known.insert(key.clone()) {
            order.push(key);
        }
        drop(keys);
        self.wake.notify_one();
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }
}

/// One reader's view of an informer.
pub struct Feed<K> {
    cache: Arc<Cache<K>>,
    pending: Arc<Pending>,
    synced: watch::Receiver<bool>,
}

impl<K: Resource> Feed<K> {
    pub(crate) fn new(cache: Arc<Cache<K>>, pending: Arc<Pending>, synced: watch::Receiver<bool>) -> Self {
        Self { cache, pending, synced }
    }

    /// Returns once something has changed, or the first list is complete. Cancel-safe.
    pub async fn changed(&self) {
        self.pending.wake.notified().await;
    }

    /// Returns once the first list is complete. Cancel-safe.
    pub async fn listed(&self) {
        if self.synced.clone().wait_for(|synced| *synced).await.is_err() {
            // The informer has ended, and with it soon its readers.
            std::future::pending::<()>().await;
        }
    }

    /// What has changed since the last call, and whether this and what was taken before is all there is: before, what was
    /// not told may be there all the same.
    #[must_use]
    pub fn take(&self) -> (Vec<Seen<K>>, bool) {
        // Asked first: what was listed by then is among the keys.
        let is_complete = *self.synced.borrow();
        let (order, _) = std::mem::take(&mut *self.pending.keys.lock());
        let seen = order.into_iter().map(|key| {
            let object = self.cache.get(&key);
            (key, object)
        });
        (seen.collect(), is_complete)
    }

    /// For a reader that begins anew: all objects count as changed.
    pub fn restart(&self) {
        self.cache.all().iter().for_each(|object| self.pending.add(Key::of(object.as_ref())));
        self.pending.wake();
    }

    /// The objects.
    #[must_use]
    pub fn cache(&self) -> &Arc<Cache<K>> {
        &self.cache
    }
}

impl<K> Clone for Feed<K> {
    /// The same reader: what one takes the other does not see.
    fn clone(&self) -> Self {
        Self { cache: Arc::clone(&self.cache), pending: Arc::clone(&self.pending), synced: self.synced.clone() }
    }
}

impl<K> fmt::Debug for Feed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("pending", &self.pending).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ObjectMeta;

    use super::*;
    use crate::{cache::Writer, reflector::Event};

    fn object(name: &str) -> ConfigMap {
        let metadata = ObjectMeta { name: Some(name.into()), namespace: Some("ns".into()), ..ObjectMeta::default() };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    #[test]
    fn a_reader_that_begins_anew_sees_everything_and_each_object_once() {
        let (cache, pending, synced) =
            (Arc::new(Cache::<ConfigMap>::new()), Arc::new(Pending::default()), watch::Sender::new(false));
        let feed = Feed::new(Arc::clone(&cache), Arc::clone(&pending), synced.subscribe());
        let mut writer = Writer::new();
        let mut tell = |event| {
            writer.apply(&cache, event, |change| pending.add(Key::of(change.latest().as_ref())));
        };
        let names = |seen: &[Seen<ConfigMap>]| -> Vec<String> {
            seen.iter()
                .map(|(key, object)| format!("{}{}", key.name, if object.is_some() { "" } else { " gone" }))
                .collect()
        };
        assert!(feed.changed().now_or_never().is_none());
        for name in ["b", "a", "b"] {
            tell(Event::Apply(object(name)));
        }
        assert!(feed.changed().now_or_never().is_some());
        let (seen, is_complete) = feed.take();
        assert_eq!((names(&seen), is_complete), (vec!["b".to_owned(), "a".to_owned()], false));
        synced.send_replace(true);
        tell(Event::Delete(object("a")));
        let (seen, is_complete) = feed.take();
        assert_eq!((names(&seen), is_complete), (vec!["a gone".to_owned()], true));
        feed.restart();
        assert!(feed.changed().now_or_never().is_some());
        assert_eq!(names(&feed.take().0), ["b"]);
    }
}
