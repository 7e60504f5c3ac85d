//! Indexes of a cache: the objects that have something in common, found without looking at the
//! others.
//!
//! Changed under the cache's lock together with its objects, so both say the same at any time.

use std::{cmp::Ordering, collections::HashMap, fmt, sync::Arc};

use kube::Resource;

use super::{Cache, Key, owner::controller_of};

/// What an index is and which keys it has for an object: none, one or several.
pub struct Index<K> {
    name: &'static str,
    keys: Keys<K>,
}

/// Calls what it is given with each key of an object.
type Keys<K> = Box<dyn Fn(&K, &mut dyn FnMut(&str)) + Send + Sync>;

impl<K: Resource> Index<K> {
    /// `keys` calls what it is given with each key of the object. Pure; `name` says which index it
    /// is.
    pub fn new(
        name: &'static str,
        keys: impl Fn(&K, &mut dyn FnMut(&str)) + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            keys: Box::new(keys),
        }
    }

    /// By the keys of other objects that `of` gives: their texts.
    pub fn by_key<I: IntoIterator<Item = Key>>(
        name: &'static str,
        of: impl Fn(&K) -> I + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |object, put| {
            of(object).into_iter().for_each(|key| put(&key.to_string()));
        })
    }

    /// By the object's controller: [`controlled_by`], [`orphans_of`].
    ///
    /// Source: `AddPodControllerIndexer` in `pkg/controller/controller_utils.go` at v1.37.
    #[must_use]
    pub fn by_controller() -> Self {
        Self::new("controller", |object: &K, put| {
            let meta = object.meta();
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            put(&controlled_by(
                namespace,
                controller_of(meta).map_or("", |owner| &owner.uid),
            ));
        })
    }
}

/// The key of [`Index::by_controller`] for what the object with `uid` controls in its `namespace`.
/// With the namespace, for anybody may write a uid of another one into a reference.
#[must_use]
pub fn controlled_by(namespace: &str, uid: &str) -> String {
    format!("{namespace}/{uid}")
}

impl<K: Resource> By<K> {
    /// With [`Index::by_controller`]: what the object with `uid` controls in its `namespace`, and
    /// after these what nobody controls there.
    #[must_use]
    pub fn controlled_or_orphaned(&self, namespace: &str, uid: &str) -> Vec<Arc<K>> {
        self.get_any(&[&controlled_by(namespace, uid), &orphans_of(namespace)])
    }
}

/// The key of [`Index::by_controller`] for the objects of a namespace that nobody controls.
#[must_use]
pub fn orphans_of(namespace: &str) -> String {
    controlled_by(namespace, "")
}

impl<K> fmt::Debug for Index<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Reads a cache by one of its indexes. Cheap to clone.
pub struct By<K> {
    cache: Arc<Cache<K>>,
    slot: usize,
}

impl<K> By<K> {
    pub(super) fn new(cache: Arc<Cache<K>>, slot: usize) -> Self {
        Self { cache, slot }
    }

    /// The objects with this key, in order of namespace and name.
    #[must_use]
    pub fn get(&self, key: &str) -> Vec<Arc<K>> {
        self.filter(key, |_| true)
    }

    /// The objects with this key that pass `keep`, in the same order.
    #[must_use]
    pub fn filter(&self, key: &str, mut keep: impl FnMut(&K) -> bool) -> Vec<Arc<K>> {
        let content = self.cache.content.read();
        content
            .indexes
            .get(self.slot, key)
            .iter()
            .filter(|object| keep(object))
            .cloned()
            .collect()
    }

    /// How many objects have this key.
    #[must_use]
    pub fn count(&self, key: &str) -> usize {
        self.cache.content.read().indexes.get(self.slot, key).len()
    }

    /// The objects with any of these keys, in order of the keys: in one look, so that one that goes
    /// from a key to another is there, and once. An object that has several of them is there as
    /// often.
    #[must_use]
    pub fn get_any(&self, keys: &[&str]) -> Vec<Arc<K>> {
        let content = self.cache.content.read();
        keys.iter()
            .flat_map(|key| content.indexes.get(self.slot, key))
            .cloned()
            .collect()
    }
}

impl<K> Clone for By<K> {
    fn clone(&self) -> Self {
        Self {
            cache: Arc::clone(&self.cache),
            slot: self.slot,
        }
    }
}

impl<K> fmt::Debug for By<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("By")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

/// The objects of one key, sorted.
type Entries<K> = HashMap<Box<str>, Vec<Arc<K>>>;

/// All indexes of one cache.
pub(super) struct Indexes<K>(Vec<(Index<K>, Entries<K>)>);

impl<K> Default for Indexes<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K> Indexes<K> {
    fn get(&self, slot: usize, key: &str) -> &[Arc<K>] {
        self.0[slot].1.get(key).map_or(&[], Vec::as_slice)
    }
}

impl<K: Resource> Indexes<K> {
    /// Where the index of that name is; filled with `present` if it is new.
    pub(super) fn add<'a>(
        &mut self,
        index: Index<K>,
        present: impl Iterator<Item = &'a Arc<K>>,
    ) -> usize
    where
        K: 'a,
    {
        if let Some(slot) = self
            .0
            .iter()
            .position(|(known, _)| known.name == index.name)
        {
            return slot;
        }
        let mut entries = Entries::new();
        present.for_each(|object| insert(&index, &mut entries, object));
        self.0.push((index, entries));
        self.0.len() - 1
    }

    pub(super) fn insert(&mut self, object: &Arc<K>) {
        self.0
            .iter_mut()
            .for_each(|(index, entries)| insert(index, entries, object));
    }

    /// `object` as it was when it was inserted.
    pub(super) fn remove(&mut self, object: &Arc<K>) {
        for (index, entries) in &mut self.0 {
            (index.keys)(object, &mut |key| {
                let Some(same) = entries.get_mut(key) else {
                    return;
                };
                if let Ok(at) = same.binary_search_by(|other| order(other, object)) {
                    same.remove(at);
                }
                if same.is_empty() {
                    entries.remove(key);
                }
            });
        }
    }

    pub(super) fn rebuild<'a>(&mut self, objects: impl Iterator<Item = &'a Arc<K>>)
    where
        K: 'a,
    {
        self.0.iter_mut().for_each(|(_, entries)| entries.clear());
        objects.for_each(|object| self.insert(object));
    }
}

fn insert<K: Resource>(index: &Index<K>, entries: &mut Entries<K>, object: &Arc<K>) {
    (index.keys)(object, &mut |key| match entries.get_mut(key) {
        Some(same) => match same.binary_search_by(|other| order(other, object)) {
            Ok(at) => same[at] = Arc::clone(object),
            Err(at) => same.insert(at, Arc::clone(object)),
        },
        None => {
            entries.insert(key.into(), vec![Arc::clone(object)]);
        }
    });
}

fn order<K: Resource>(a: &Arc<K>, b: &Arc<K>) -> Ordering {
    let (a, b) = (a.meta(), b.meta());
    (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name))
}
