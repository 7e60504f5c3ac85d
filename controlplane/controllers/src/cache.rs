//! Objects of one kind as last seen in a watch: a plain synchronous map that says what an event changed.
//!
//! No I/O and no tasks here; [`crate::informer`] feeds it. Objects are shared by `Arc` and never changed in place.

use std::{collections::BTreeMap, fmt, sync::Arc};

use kube::{Resource, runtime::watcher::Event};
use parking_lot::RwLock;

/// Namespace and name of an object; the namespace is empty for cluster-wide kinds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(crate) fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What one event did to one object.
#[derive(Debug)]
pub(crate) enum Change<'a, K> {
    Added(&'a Arc<K>),
    Updated { old: &'a Arc<K>, new: &'a Arc<K> },
    Deleted(&'a Arc<K>),
}

impl<'a, K> Change<'a, K> {
    /// The object as it is now, or as it was before it went.
    pub(crate) fn latest(&self) -> &'a Arc<K> {
        match self {
            Change::Added(object) | Change::Updated { new: object, .. } | Change::Deleted(object) => object,
        }
    }
}

type Objects<K> = BTreeMap<String, BTreeMap<String, Arc<K>>>;

/// The objects of one kind, by namespace and name.
pub(crate) struct Cache<K> {
    objects: RwLock<Objects<K>>,
}

impl<K: Resource> Cache<K> {
    pub(crate) fn new() -> Self {
        Self { objects: RwLock::new(BTreeMap::new()) }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.read().get(&key.namespace)?.get(&key.name).cloned()
    }

    /// Objects of one namespace that pass `keep`, in order of name.
    pub(crate) fn in_namespace(&self, namespace: &str, mut keep: impl FnMut(&K) -> bool) -> Vec<Arc<K>> {
        let objects = self.objects.read();
        objects
            .get(namespace)
            .map(|named| named.values().filter(|object| keep(object)).cloned().collect())
            .unwrap_or_default()
    }

    /// All objects that pass `keep`, in order of key.
    pub(crate) fn filter(&self, mut keep: impl FnMut(&K) -> bool) -> Vec<Arc<K>> {
        let objects = self.objects.read();
        objects.values().flat_map(BTreeMap::values).filter(|object| keep(object)).cloned().collect()
    }

    /// All objects.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.filter(|_| true)
    }
}

/// Applies watch events to a [`Cache`]; one a cache.
pub(crate) struct Writer<K> {
    /// What an initial list has brought so far.
    pending: Option<Objects<K>>,
}

impl<K: Resource> Writer<K> {
    pub(crate) fn new() -> Self {
        Self { pending: None }
    }

    /// Applies one event and reports each object that changed. The cache is up to date when `report` runs.
    pub(crate) fn apply(&mut self, cache: &Cache<K>, event: Event<K>, mut report: impl FnMut(Change<'_, K>)) {
        match event {
            Event::Init => self.pending = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                let pending = self.pending.get_or_insert_with(BTreeMap::new);
                insert(pending, Arc::new(object));
            }
            Event::InitDone => replace(cache, self.pending.take().unwrap_or_default(), report),
            Event::Apply(object) => {
                let new = Arc::new(object);
                let old = insert(&mut cache.objects.write(), new.clone());
                match &old {
                    None => report(Change::Added(&new)),
                    Some(old) => compare(old, &new, &mut report),
                }
            }
            Event::Delete(object) => {
                let gone = Arc::new(object);
                remove(&mut cache.objects.write(), &Key::of(gone.as_ref()));
                report(Change::Deleted(&gone));
            }
        }
    }
}

/// Swaps the whole content for a fresh list and reports the difference.
fn replace<K: Resource>(cache: &Cache<K>, fresh: Objects<K>, mut report: impl FnMut(Change<'_, K>)) {
    let stale = std::mem::replace(&mut *cache.objects.write(), fresh.clone());
    for (namespace, named) in &stale {
        for (name, old) in named {
            if !fresh.get(namespace).is_some_and(|named| named.contains_key(name)) {
                report(Change::Deleted(old));
            }
        }
    }
    for (namespace, named) in &fresh {
        for (name, new) in named {
            match stale.get(namespace).and_then(|named| named.get(name)) {
                None => report(Change::Added(new)),
                Some(old) => compare(old, new, &mut report),
            }
        }
    }
}

/// Reports what became of an object. A namesake is another object: the one before it has gone.
fn compare<K: Resource>(old: &Arc<K>, new: &Arc<K>, report: &mut impl FnMut(Change<'_, K>)) {
    if old.meta().uid != new.meta().uid {
        report(Change::Deleted(old));
        report(Change::Added(new));
    } else if !same_version(old.as_ref(), new.as_ref()) {
        report(Change::Updated { old, new });
    }
}

fn same_version<K: Resource>(a: &K, b: &K) -> bool {
    a.meta().resource_version.is_some() && a.meta().resource_version == b.meta().resource_version
}

fn insert<K: Resource>(objects: &mut Objects<K>, object: Arc<K>) -> Option<Arc<K>> {
    let key = Key::of(object.as_ref());
    objects.entry(key.namespace).or_default().insert(key.name, object)
}

fn remove<K>(objects: &mut Objects<K>, key: &Key) {
    if let Some(named) = objects.get_mut(&key.namespace) {
        named.remove(&key.name);
        if named.is_empty() {
            objects.remove(&key.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ObjectMeta;

    use super::*;

    fn object(name: &str, version: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                namespace: Some("ns".into()),
                name: Some(name.into()),
                resource_version: Some(version.into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    fn changes(events: Vec<Event<ConfigMap>>) -> Vec<String> {
        let (cache, mut writer, mut seen) = (Cache::new(), Writer::new(), Vec::new());
        for event in events {
            writer.apply(&cache, event, |change| {
                let kind = match change {
                    Change::Added(_) => "added",
                    Change::Updated { .. } => "updated",
                    Change::Deleted(_) => "deleted",
                };
                seen.push(format!("{kind} {}", change.latest().metadata.name.as_deref().unwrap()));
            });
        }
        seen
    }

    #[test]
    fn relist_reports_only_what_differs() {
        let events = vec![
            Event::Init,
            Event::InitApply(object("a", "1")),
            Event::InitApply(object("b", "2")),
            Event::InitApply(object("c", "3")),
            Event::InitDone,
            Event::Init,
            Event::InitApply(object("a", "1")),
            Event::InitApply(object("b", "5")),
            Event::InitApply(object("d", "6")),
            Event::InitDone,
        ];
        assert_eq!(changes(events), ["added a", "added b", "added c", "deleted c", "updated b", "added d"]);
    }

    #[test]
    fn a_namesake_is_another_object() {
        let namesake = |version| {
            let mut object = object("a", version);
            object.metadata.uid = Some(format!("uid of {version}"));
            object
        };
        let relisted = vec![
            Event::Init,
            Event::InitApply(namesake("1")),
            Event::InitDone,
            Event::Init,
            Event::InitApply(namesake("9")),
            Event::InitDone,
        ];
        assert_eq!(changes(relisted), ["added a", "deleted a", "added a"]);
        let watched = vec![Event::Apply(namesake("1")), Event::Apply(namesake("9"))];
        assert_eq!(changes(watched), ["added a", "deleted a", "added a"]);
    }

    #[test]
    fn repeated_version_is_no_change() {
        let events = vec![
            Event::Apply(object("a", "1")),
            Event::Apply(object("a", "1")),
            Event::Apply(object("a", "2")),
            Event::Delete(object("a", "3")),
        ];
        assert_eq!(changes(events), ["added a", "updated a", "deleted a"]);
    }
}
