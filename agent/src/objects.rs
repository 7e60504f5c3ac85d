//! ConfigMaps and Secrets that pods on this node use, fetched when needed and kept for a while.
//!
//! Concurrent requests for one object are one request. An answer of `None` (the object does not
//! exist) is kept no longer than any other. Whoever starts a pod asks for a fresh copy; who
//! refreshes volumes is content with an old one.

use std::{collections::HashMap, fmt::Debug, sync::Arc, time::Duration};

use coracle_client::errors::is_unreachable;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::Api;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

const FETCH_LIMIT: Duration = Duration::from_secs(10);
/// A copy this young is as good as a new one, so pods that start together share their requests.
pub(crate) const FRESH: Duration = Duration::from_millis(300);
/// A copy that nobody asked for in so long is dropped.
const KEEP: Duration = Duration::from_secs(3600);
/// How often such copies are looked for: each look passes all that are kept.
const SWEEP: Duration = Duration::from_secs(60);

/// An object could not be fetched (that it does not exist is no error).
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("failed to get {kind} {namespace}/{name}")]
    Request {
        kind: &'static str,
        namespace: String,
        name: String,
        source: Box<kube::Error>,
    },
    #[error("failed to get {kind} {namespace}/{name}: timed out waiting for the API server")]
    Timeout {
        kind: &'static str,
        namespace: String,
        name: String,
    },
}

struct Slot<T> {
    fetched: Option<(Instant, Option<Arc<T>>)>,
}

/// Of namespace and name.
type SlotOf<T> = Arc<tokio::sync::Mutex<Slot<T>>>;

struct Slots<T>(Mutex<SlotMap<T>>);

struct SlotMap<T> {
    by_name: HashMap<(String, String), SlotOf<T>>,
    swept: Instant,
}

impl<T> Slots<T> {
    fn new() -> Self {
        Self(Mutex::new(SlotMap {
            by_name: HashMap::new(),
            swept: Instant::now(),
        }))
    }

    fn of(&self, namespace: &str, name: &str) -> SlotOf<T> {
        let mut slots = self.0.lock();
        if slots.swept.elapsed() >= SWEEP {
            slots.swept = Instant::now();
            // Who holds a slot is fetching it; all others that nobody asked for in a while may go.
            slots.by_name.retain(|_, slot| {
                slot.try_lock().map_or(true, |slot| {
                    slot.fetched
                        .as_ref()
                        .is_none_or(|(at, _)| at.elapsed() < KEEP)
                })
            });
        }
        let key = (namespace.to_owned(), name.to_owned());
        let empty = || Arc::new(tokio::sync::Mutex::new(Slot { fetched: None }));
        Arc::clone(slots.by_name.entry(key).or_insert_with(empty))
    }
}

/// The cache.
pub(crate) struct Objects {
    client: kube::Client,
    config_maps: Slots<ConfigMap>,
    secrets: Slots<Secret>,
}

impl Objects {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self {
            client,
            config_maps: Slots::new(),
            secrets: Slots::new(),
        }
    }

    /// For what is not kept.
    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// A ConfigMap no older than `max_age`; `None` if there is none.
    pub(crate) async fn config_map(
        &self,
        namespace: &str,
        name: &str,
        max_age: Duration,
    ) -> Result<Option<Arc<ConfigMap>>, FetchError> {
        self.get(&self.config_maps, "configmap", namespace, name, max_age)
            .await
    }

    /// A Secret no older than `max_age`; `None` if there is none.
    pub(crate) async fn secret(
        &self,
        namespace: &str,
        name: &str,
        max_age: Duration,
    ) -> Result<Option<Arc<Secret>>, FetchError> {
        self.get(&self.secrets, "secret", namespace, name, max_age)
            .await
    }

    async fn get<T>(
        &self,
        slots: &Slots<T>,
        kind: &'static str,
        namespace: &str,
        name: &str,
        max_age: Duration,
    ) -> Result<Option<Arc<T>>, FetchError>
    where
        T: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let slot = slots.of(namespace, name);
        let mut slot = slot.lock().await;
        if let Some((_, object)) = slot
            .fetched
            .as_ref()
            .filter(|(at, _)| at.elapsed() <= max_age)
        {
            return Ok(object.clone());
        }
        let api: Api<T> = Api::namespaced(self.client.clone(), namespace);
        let asked = Instant::now();
        let answer = tokio::time::timeout(FETCH_LIMIT, api.get_opt(name)).await;
        let is_answered = answer.as_ref().is_ok_and(|answer| match answer {
            Ok(_) => true,
            Err(error) => !is_unreachable(error),
        });
        // Without the control plane an old copy is better than none; a refusal is an answer.
        if !is_answered && let Some((_, object)) = &slot.fetched {
            return Ok(object.clone());
        }
        let object = match answer {
            Ok(Ok(object)) => object.map(Arc::new),
            Ok(Err(source)) => {
                return Err(FetchError::Request {
                    kind,
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    source: Box::new(source),
                });
            }
            Err(_) => {
                return Err(FetchError::Timeout {
                    kind,
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                });
            }
        };
        slot.fetched = Some((asked, object.clone()));
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn copies_that_nobody_asks_for_are_looked_for_once_a_minute() {
        let slots = Slots::<ConfigMap>::new();
        let kept = |slots: &Slots<ConfigMap>| slots.0.lock().by_name.len();
        slots.of("ns", "old").lock().await.fetched = Some((Instant::now(), None));
        tokio::time::advance(KEEP).await;
        slots.of("ns", "new").lock().await.fetched = Some((Instant::now(), None));
        assert_eq!(kept(&slots), 1, "the old one has gone with this look");
        slots.of("ns", "new").lock().await.fetched =
            Some((Instant::now().checked_sub(KEEP).expect("time"), None));
        slots.of("ns", "other");
        assert_eq!(kept(&slots), 2, "not looked for again so soon");
        tokio::time::advance(SWEEP).await;
        let fetching = slots.of("ns", "fetching");
        assert_eq!(kept(&slots), 2, "now it has gone");
        drop(fetching);
    }
}
