//! What a reader has to look at again, for one that is slow or is started anew.
//!
//! An object counts once however often it has changed, nothing is missed, and informers wait for
//! nobody: the reader looks into their caches when he has time.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::{
    cache::{Change, Key},
    informer::Informer,
    informers::{Kind, listed},
};

/// Keys that wait for a reader. Clones are one: what one takes the others do not see.
#[derive(Debug, Clone, Default)]
pub struct Feed {
    pending: Arc<Pending>,
    synced: Vec<watch::Receiver<bool>>,
}

#[derive(Debug, Default)]
struct Pending {
    keys: Mutex<BTreeSet<Key>>,
    wake: Notify,
}

impl Feed {
    /// From now on has the `keys` of each change that `informer` sees. Quick and pure, as all that
    /// runs on its task.
    pub fn follow<K, I>(
        &mut self,
        informer: &mut Informer<K>,
        keys: impl Fn(&Change<'_, K>) -> I + Send + Sync + 'static,
    ) where
        K: Kind,
        I: IntoIterator<Item = Key>,
    {
        let this = Self {
            pending: Arc::clone(&self.pending),
            synced: Vec::new(),
        };
        informer.on_change(move |change| this.add(keys(change)));
        self.synced.push(informer.synced());
    }

    /// More to look at: everything, for a reader that begins anew.
    pub fn add(&self, keys: impl IntoIterator<Item = Key>) {
        let mut pending = self.pending.keys.lock();
        let before = pending.len();
        pending.extend(keys);
        if pending.len() > before {
            self.pending.wake.notify_one();
        }
    }

    /// Returns once the first lists are in the caches: before, what is not there may be all the
    /// same. Cancel-safe.
    pub async fn listed(&self) {
        listed(self.synced.clone()).await;
    }

    /// Returns once there is more than before. Cancel-safe.
    pub async fn changed(&self) {
        self.pending.wake.notified().await;
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.keys.lock().is_empty()
    }

    /// What waits, in order. Take first and look then: what changes meanwhile waits again.
    #[must_use]
    pub fn take(&self) -> BTreeSet<Key> {
        std::mem::take(&mut *self.pending.keys.lock())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, Client, client::Body};
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::informer::Selection;

    /// An informer of a server that has two objects, and changes one of them once.
    fn informer() -> Informer<ConfigMap> {
        let line = |kind: &str, name: &str, revision: &str, listed: bool| {
            let annotations = if listed {
                json!({"k8s.io/initial-events-end": "true"})
            } else {
                json!({})
            };
            let metadata = json!({"name": name, "namespace": "ns", "resourceVersion": revision, "annotations": annotations});
            let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata});
            json!({"type": kind, "object": object}).to_string() + "\n"
        };
        let first = [
            line("ADDED", "a", "1", false),
            line("ADDED", "b", "2", false),
            line("BOOKMARK", "", "3", true),
        ];
        let second = line("MODIFIED", "b", "4", false);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let answer = match query {
                query if query.contains("sendInitialEvents=true") => Some(first.concat()),
                query if query.contains("resourceVersion=3") => Some(second.clone()),
                _ => None,
            };
            async move {
                match answer {
                    Some(lines) => {
                        Ok::<_, Infallible>(http::Response::new(Body::from(lines.into_bytes())))
                    }
                    None => std::future::pending().await,
                }
            }
        });
        Informer::new(
            Api::all(Client::new(service, "default")),
            Selection::all(),
            |_| {},
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_finds_what_has_changed_once_when_he_has_time() {
        let (mut informer, mut feed) = (informer(), Feed::default());
        feed.follow(&mut informer, |change| {
            Some(Key::of(change.latest().as_ref()))
        });
        let (cache, shutdown) = (informer.cache(), CancellationToken::new());
        assert!(feed.listed().now_or_never().is_none() && feed.changed().now_or_never().is_none());
        let mut run = std::pin::pin!(informer.run(shutdown));
        let seen = async {
            feed.listed().await;
            while cache.revision() < 4 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { () = &mut run => panic!("it runs on"), () = seen => {} }
        feed.changed().await;
        let names = |feed: &Feed| {
            feed.take()
                .into_iter()
                .map(|key| key.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&feed), ["a", "b"], "b has changed twice");
        assert!(feed.is_empty() && feed.changed().now_or_never().is_none());
        feed.clone()
            .add(cache.all().iter().map(|object| Key::of(object.as_ref())));
        feed.changed().await;
        assert_eq!(names(&feed), ["a", "b"], "begun anew");
    }
}
