//! Objects of one kind as the API server has them, and as they will be once it has what was
//! decided.
//!
//! ```text
//! seen --assume--> assumed --a newer version is seen, or restore--> seen
//! ```
//! An assumption is of the version that it was made from. Whatever is seen after that one ends it:
//! what was decided is in it, or cannot be written any more.
//!
//! Source: `pkg/scheduler/util/assumecache/assume_cache.go` at v1.37.

use std::{collections::HashMap, sync::Arc};

use coracle_client::cache::Key;
use kube::Resource;

/// Keeps what was seen of each object of a kind, and what is assumed of it.
#[derive(Debug)]
pub(crate) struct AssumeCache<K>(HashMap<Key, Known<K>>);

#[derive(Debug)]
struct Known<K> {
    seen: Arc<K>,
    assumed: Option<Arc<K>>,
}

/// Why an object cannot be assumed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AssumeError {
    /// It is not there.
    #[error("{kind} {name:?} is gone")]
    Gone { kind: String, name: String },
    /// A newer one has been seen.
    #[error("{kind} {name:?} is out of sync (stored: {seen}, assumed: {assumed})")]
    Outdated {
        kind: String,
        name: String,
        seen: u64,
        assumed: u64,
    },
}

impl<K> Default for AssumeCache<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Resource<DynamicType = ()>> AssumeCache<K> {
    /// The object as it will be.
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<K>> {
        let known = self.0.get(key)?;
        Some(known.assumed.as_ref().unwrap_or(&known.seen))
    }

    /// The object as the API server has it.
    pub(crate) fn seen(&self, key: &Key) -> Option<&Arc<K>> {
        self.0.get(key).map(|known| &known.seen)
    }

    /// Takes over what the API server has. Returns what it had before; an old version changes
    /// nothing.
    pub(super) fn observe(&mut self, new: Arc<K>) -> Option<Arc<K>> {
        let key = Key::of(&*new);
        let old = self.0.get(&key).map(|known| known.seen.clone());
        if old
            .as_ref()
            .is_none_or(|old| version(&**old) < version(&*new))
        {
            let known = Known {
                seen: new,
                assumed: None,
            };
            self.0.insert(key, known);
        }
        old
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Takes an object for what was decided of it, until a newer one is seen.
    ///
    /// # Errors
    /// It is gone, or has changed since the decision.
    pub(super) fn assume(&mut self, object: Arc<K>) -> Result<(), AssumeError> {
        let key = Key::of(&*object);
        let kind = || K::kind(&()).into_owned();
        let Some(known) = self.0.get_mut(&key) else {
            let name = key.to_string();
            return Err(AssumeError::Gone { kind: kind(), name });
        };
        let (seen, assumed) = (version(&*known.seen), version(&*object));
        if assumed < seen {
            return Err(AssumeError::Outdated {
                kind: kind(),
                name: key.to_string(),
                seen,
                assumed,
            });
        }
        known.assumed = Some(object);
        Ok(())
    }

    /// Takes an assumption back, if it still holds: it may be somebody else's by now.
    pub(super) fn restore(&mut self, assumed: &Arc<K>) {
        let Some(known) = self.0.get_mut(&Key::of(&**assumed)) else {
            return;
        };
        let holds = |now: &Arc<K>| Arc::ptr_eq(now, assumed);
        if known.assumed.as_ref().is_some_and(holds) {
            known.assumed = None;
        }
    }
}

/// Of an object; versions of one kind are in the order in which they were written.
pub(crate) fn version<K: Resource>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolume;
    use serde_json::json;

    use super::*;

    fn volume(version: &str, phase: &str) -> Arc<PersistentVolume> {
        let metadata = json!({"name": "v", "resourceVersion": version});
        let object = json!({"metadata": metadata, "status": {"phase": phase}});
        Arc::new(serde_json::from_value(object).expect("a volume"))
    }

    fn phase(volume: Option<&Arc<PersistentVolume>>) -> Option<&str> {
        volume?.status.as_ref()?.phase.as_deref()
    }

    #[test]
    fn what_is_assumed_holds_until_something_newer_is_seen() {
        let (mut cache, key) = (AssumeCache::default(), Key::new("", "v"));
        cache.observe(volume("5", "seen"));
        let assumed = volume("5", "assumed");
        cache.assume(assumed.clone()).expect("it is there");
        assert_eq!(
            (phase(cache.get(&key)), phase(cache.seen(&key))),
            (Some("assumed"), Some("seen"))
        );
        // The same again, as after a list.
        cache.observe(volume("5", "seen"));
        assert_eq!(phase(cache.get(&key)), Some("assumed"));
        cache.observe(volume("6", "newer"));
        assert_eq!(phase(cache.get(&key)), Some("newer"));
        cache.restore(&assumed);
        assert_eq!(phase(cache.get(&key)), Some("newer"));
    }

    #[test]
    fn an_assumption_can_be_taken_back() {
        let (mut cache, key) = (AssumeCache::default(), Key::new("", "v"));
        cache.observe(volume("5", "seen"));
        let (first, second) = (volume("5", "first"), volume("5", "second"));
        cache.assume(first.clone()).expect("it is there");
        cache.assume(second.clone()).expect("it is there");
        // Not by whose assumption it is not.
        cache.restore(&first);
        assert_eq!(phase(cache.get(&key)), Some("second"));
        cache.restore(&second);
        assert_eq!(phase(cache.get(&key)), Some("seen"));
    }

    #[test]
    fn what_is_gone_or_has_changed_is_not_assumed() {
        let (mut cache, key) = (AssumeCache::default(), Key::new("", "v"));
        let told = |cache: &mut AssumeCache<_>| {
            let error = cache.assume(volume("5", "assumed")).expect_err("no");
            error.to_string()
        };
        assert_eq!(told(&mut cache), "PersistentVolume \"v\" is gone");
        cache.observe(volume("6", "seen"));
        assert_eq!(
            told(&mut cache),
            "PersistentVolume \"v\" is out of sync (stored: 6, assumed: 5)"
        );
        cache.remove(&key);
        assert_eq!(phase(cache.get(&key)), None);
    }
}
