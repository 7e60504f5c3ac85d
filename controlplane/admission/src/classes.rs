//! All classes of a kind of which one may be the default, as of now.

use std::sync::Arc;

use coracle_api::status::Status;
use coracle_registry::{
    resource::Registry,
    store::{Store, cache_status},
    watch_cache::KeyScope,
};
use serde_json::Value;

use crate::parts::Parts;

pub(crate) struct Classes {
    store: Store,
    registry: Arc<Registry>,
    group: &'static str,
    plural: &'static str,
}

impl Classes {
    /// Those of `plural`, in version v1.
    pub(crate) fn new(parts: &Parts, group: &'static str, plural: &'static str) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
            group,
            plural,
        }
    }

    /// # Errors
    /// The cache does not come to what the store has.
    pub(crate) async fn all(&self) -> Result<Vec<Value>, Status> {
        let Some(classes) = self.registry.get(self.group, "v1", self.plural) else {
            return Ok(Vec::new());
        };
        // No look into the store finds a default: the cache must know of the last.
        self.store.cache.catch_up().await.map_err(cache_status)?;
        Ok(classes.objects(KeyScope::Resource))
    }
}
