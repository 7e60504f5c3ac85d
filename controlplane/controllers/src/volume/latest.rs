//! Objects of a kind as they are: what the informer shows, and own writes that it does not show
//! yet.
//!
//! Two claims that come at once must not be given one volume; the second write would fail, and be
//! tried again. With this the second claim is given another volume at once. For one worker: what
//! others write is seen when the informer shows it, and each write is of the version that was read.
//!
//! Source: `storeObjectUpdate` in `pkg/controller/volume/persistentvolume/pv_controller_base.go` at
//! v1.37.

use std::{collections::HashMap, sync::Arc};

use kube::Client;
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    cache::{Cache, Key},
    controller::ReconcileError,
    informers::Kind,
    writes::{Scope, Write},
};

/// The objects of a kind, and the way to write one of them.
pub(super) struct Latest<K> {
    client: Client,
    cache: Arc<Cache<K>>,
    written: Mutex<HashMap<Key, Arc<K>>>,
}

impl<K: Kind> Latest<K>
where
    K::Scope: Scope<K>,
{
    pub(super) fn new(client: Client, cache: Arc<Cache<K>>) -> Self {
        Self {
            client,
            cache,
            written: Mutex::default(),
        }
    }

    /// One object.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<K>> {
        let own = self.unseen().get(key).cloned();
        own.or_else(|| self.cache.get(key))
    }

    /// All objects that pass `keep`.
    pub(super) fn filter(&self, keep: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let own = self.unseen().clone();
        let mut shown = self.cache.filter(|_| true);
        for object in &mut shown {
            if let Some(own) = own.get(&Key::of(object.as_ref())) {
                *object = own.clone();
            }
        }
        shown.retain(|object| keep(object));
        shown
    }

    /// Merges a patch into the object, if it is still as it was read, and the same for its status.
    /// What it is then; `None` if it is gone. Without a patch it is what it was.
    ///
    /// # Errors
    /// The write's; a conflict if somebody else was quicker.
    pub(super) async fn patch(
        &self,
        object: &Arc<K>,
        patch: Option<Value>,
        call: &'static str,
    ) -> Result<Option<Arc<K>>, ReconcileError> {
        let Some(patch) = patch else {
            return Ok(Some(object.clone()));
        };
        let write = Write::to(&self.client, object.as_ref(), call).if_unchanged();
        let written = if patch.get("status").is_some() {
            write.patch_status(patch).await?
        } else {
            write.patch(patch).await?
        };
        Ok(written.map(|written| self.note(written)))
    }

    fn note(&self, written: K) -> Arc<K> {
        let written = Arc::new(written);
        let key = Key::of(written.as_ref());
        self.unseen().insert(key, written.clone());
        written
    }

    /// Without what the informer has come to by now.
    fn unseen(&self) -> parking_lot::MutexGuard<'_, HashMap<Key, Arc<K>>> {
        let mut written = self.written.lock();
        let shown = self.cache.revision();
        written.retain(|_, object| revision(object.as_ref()) > shown);
        written
    }
}

fn revision<K: Kind>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}
