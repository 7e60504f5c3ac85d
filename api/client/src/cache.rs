//! Objects of one kind as last seen in a watch: a plain synchronous map that says what an event
//! changed.
//!
//! No I/O and no tasks here; [`crate::informer`] feeds it. Objects are shared by `Arc` and never
//! changed in place. What is asked for again and again has an [`Index`], so that nobody looks
//! through a namespace for a few objects of it.

mod index;
pub mod labels;
mod objects;
pub mod owner;

use std::{fmt, sync::Arc};

use kube::Resource;
use parking_lot::RwLock;

pub use self::index::{By, Index, controlled_by, orphans_of};
use self::{index::Indexes, objects::Objects};
use crate::reflector::{Event, number};

/// Namespace and name of an object; the namespace is empty for cluster-wide kinds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for cluster-wide kinds.
    pub namespace: String,
    /// Unique within the namespace.
    pub name: String,
}

impl Key {
    /// From its two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of `object`.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        )
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What one event did to one object.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// It was not there before.
    Added(&'a Arc<K>),
    /// It was there before, in another version.
    Updated {
        /// As it was.
        old: &'a Arc<K>,
        /// As it is.
        new: &'a Arc<K>,
    },
    /// It is gone; as it was last seen.
    Deleted(&'a Arc<K>),
}

impl<'a, K> Change<'a, K> {
    /// The object as it is now, or as it was before it went.
    pub fn latest(&self) -> &'a Arc<K> {
        match self {
            Change::Added(object)
            | Change::Updated { new: object, .. }
            | Change::Deleted(object) => object,
        }
    }
}

/// The objects of one kind, by namespace and name.
pub struct Cache<K> {
    content: RwLock<Content<K>>,
}

struct Content<K> {
    objects: Objects<K>,
    indexes: Indexes<K>,
    /// Everything up to it is here.
    revision: u64,
}

impl<K> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("objects", &self.content.read().objects.len())
            .finish_non_exhaustive()
    }
}

impl<K: Resource> Default for Cache<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Resource> Cache<K> {
    /// Without objects.
    #[must_use]
    pub fn new() -> Self {
        Self {
            content: RwLock::new(Content {
                objects: Objects::default(),
                indexes: Indexes::default(),
                revision: 0,
            }),
        }
    }

    /// Keeps an index from now on. One of that name that is there already is shared.
    pub fn index(self: &Arc<Self>, index: Index<K>) -> By<K> {
        let mut content = self.content.write();
        let Content {
            objects, indexes, ..
        } = &mut *content;
        let slot = indexes.add(index, objects.all());
        By::new(Arc::clone(self), slot)
    }

    /// The newest revision that shows here, with all before it; 0 before the first list. The server
    /// counts all kinds together, so a write shows once this is not less than what it was answered
    /// with.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.content.read().revision
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.content
            .read()
            .objects
            .get(&key.namespace, &key.name)
            .cloned()
    }

    /// Objects of one namespace that pass `keep`, in order of name.
    pub fn in_namespace(&self, namespace: &str, mut keep: impl FnMut(&K) -> bool) -> Vec<Arc<K>> {
        let content = self.content.read();
        content
            .objects
            .in_namespace(namespace)
            .filter(|object| keep(object))
            .cloned()
            .collect()
    }

    /// Whether there is any object in this namespace.
    #[must_use]
    pub fn has_any_in(&self, namespace: &str) -> bool {
        self.content.read().objects.has_any_in(namespace)
    }

    /// All objects that pass `keep`, in order of key.
    pub fn filter(&self, mut keep: impl FnMut(&K) -> bool) -> Vec<Arc<K>> {
        let content = self.content.read();
        content
            .objects
            .all()
            .filter(|object| keep(object))
            .cloned()
            .collect()
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<K>> {
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

    /// Applies one event and reports each object that changed. The cache is up to date when
    /// `report` runs.
    pub(crate) fn apply(
        &mut self,
        cache: &Cache<K>,
        event: Event<K>,
        mut report: impl FnMut(Change<'_, K>),
    ) {
        match event {
            Event::Init => self.pending = Some(Objects::default()),
            Event::InitApply(object) => {
                let pending = self.pending.get_or_insert_default();
                pending.insert(Arc::new(object));
            }
            Event::InitDone => replace(cache, self.pending.take().unwrap_or_default(), report),
            Event::Apply(object) => {
                let new = Arc::new(object);
                let old = cache.content.write().put(new.clone());
                match &old {
                    None => report(Change::Added(&new)),
                    Some(old) => compare(old, &new, &mut report),
                }
            }
            Event::Delete(object) => {
                let gone = Arc::new(object);
                cache.content.write().remove(&gone);
                report(Change::Deleted(&gone));
            }
            Event::Progress(revision) => {
                let mut content = cache.content.write();
                content.revision = content.revision.max(revision);
            }
        }
    }
}

/// Swaps the whole content for a fresh list and reports the difference.
fn replace<K: Resource>(
    cache: &Cache<K>,
    fresh: Objects<K>,
    mut report: impl FnMut(Change<'_, K>),
) {
    let stale = cache.content.write().replace(fresh.clone());
    for old in stale.all() {
        if fresh.namesake(old).is_none() {
            report(Change::Deleted(old));
        }
    }
    for new in fresh.all() {
        match stale.namesake(new) {
            None => report(Change::Added(new)),
            Some(old) => compare(old, new, &mut report),
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

impl<K: Resource> Content<K> {
    /// Returns what was there under the same name.
    fn put(&mut self, new: Arc<K>) -> Option<Arc<K>> {
        self.advance(&new);
        let old = self.objects.insert(new.clone());
        if let Some(old) = &old {
            self.indexes.remove(old);
        }
        self.indexes.insert(&new);
        old
    }

    fn remove(&mut self, gone: &Arc<K>) {
        self.advance(gone);
        let key = Key::of(gone.as_ref());
        let gone = self.objects.remove(&key.namespace, &key.name);
        if let Some(gone) = gone {
            self.indexes.remove(&gone);
        }
    }

    fn advance(&mut self, changed: &Arc<K>) {
        let revision = changed.meta().resource_version.as_deref().and_then(number);
        self.revision = self.revision.max(revision.unwrap_or_default());
    }

    fn replace(&mut self, fresh: Objects<K>) -> Objects<K> {
        self.indexes.rebuild(fresh.all());
        std::mem::replace(&mut self.objects, fresh)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::OwnerReference,
    };
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
                seen.push(format!(
                    "{kind} {}",
                    change.latest().metadata.name.as_deref().unwrap()
                ));
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
        assert_eq!(
            changes(events),
            [
                "added a",
                "added b",
                "added c",
                "deleted c",
                "updated b",
                "added d"
            ]
        );
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

    fn owned(name: &str, version: &str, of: Option<&str>) -> ConfigMap {
        let mut object = object(name, version);
        let owner = |uid: &str| OwnerReference {
            uid: uid.into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        object.metadata.owner_references = of.map(|uid| vec![owner(uid)]);
        object
    }

    #[test]
    fn an_index_follows_objects_from_owner_to_owner() {
        let (cache, mut writer) = (Arc::new(Cache::new()), Writer::new());
        let mut apply = |event| writer.apply(&cache, event, |_| {});
        apply(Event::Apply(owned("before", "1", Some("u"))));
        let by = cache.index(Index::by_controller());
        apply(Event::Apply(owned("b", "2", Some("u"))));
        apply(Event::Apply(owned("a", "3", Some("u"))));
        apply(Event::Apply(owned("orphan", "4", None)));
        let all = |key: String| -> Vec<String> {
            by.get(&key)
                .into_iter()
                .filter_map(|object| object.metadata.name.clone())
                .collect()
        };
        let names = |uid: &str| all(controlled_by("ns", uid));
        assert_eq!(names("u"), ["a", "b", "before"], "in order of name");
        assert!(
            all(controlled_by("another", "u")).is_empty(),
            "a reference reaches no other namespace"
        );
        assert_eq!(all(orphans_of("ns")), ["orphan"]);
        let claimable = by.controlled_or_orphaned("ns", "u");
        let claimable: Vec<_> = claimable
            .iter()
            .filter_map(|object| object.metadata.name.clone())
            .collect();
        assert_eq!(claimable, ["a", "b", "before", "orphan"]);
        apply(Event::Apply(owned("a", "5", None)));
        apply(Event::Delete(owned("b", "6", Some("another by now"))));
        assert_eq!(names("u"), ["before"]);
        assert_eq!(all(orphans_of("ns")), ["a", "orphan"]);
        let listed = vec![
            Event::Init,
            Event::InitApply(owned("new", "9", Some("v"))),
            Event::InitDone,
        ];
        listed.into_iter().for_each(&mut apply);
        assert_eq!((names("u"), names("v")), (vec![], vec!["new".to_owned()]));
        assert_eq!(
            cache.index(Index::by_controller()).get("ns/v").len(),
            1,
            "shared by name"
        );
    }
}
