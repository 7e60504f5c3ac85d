//! The objects of a cache by namespace and name.
//!
//! The names are kept apart from the objects: a tree is some hundred lines of code for each type
//! that it holds, so there is one of places instead of one of each kind.

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
};

use kube::Resource;

/// The index of an object among those of all namespaces; one that is free is used again.
type Place = usize;

/// Objects of one kind.
#[derive(Debug)]
pub(super) struct Objects<K> {
    /// By namespace and name; no namespace is empty.
    names: BTreeMap<String, BTreeMap<String, Place>>,
    places: Vec<Option<Arc<K>>>,
    free: Vec<Place>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self {
            names: BTreeMap::new(),
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<K> Clone for Objects<K> {
    fn clone(&self) -> Self {
        Self {
            names: self.names.clone(),
            places: self.places.clone(),
            free: self.free.clone(),
        }
    }
}

impl<K> Objects<K> {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        let place = *self.names.get(namespace)?.get(name)?;
        self.places[place].as_ref()
    }

    pub(super) fn has_any_in(&self, namespace: &str) -> bool {
        self.names.contains_key(namespace)
    }

    /// Those of a namespace, in order of name.
    pub(super) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<K>> {
        self.at(self.names.get(namespace))
    }

    /// All, in order of namespace and name.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.at(self.names.values())
    }

    fn at<'a>(
        &'a self,
        names: impl IntoIterator<Item = &'a BTreeMap<String, Place>>,
    ) -> impl Iterator<Item = &'a Arc<K>> {
        let places = names.into_iter().flat_map(BTreeMap::values);
        places.filter_map(|place| self.places[*place].as_ref())
    }

    /// Returns what was there under the same name.
    pub(super) fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let named = self.names.get_mut(namespace)?;
        let place = named.remove(name)?;
        if named.is_empty() {
            self.names.remove(namespace);
        }
        self.free.push(place);
        self.places[place].take()
    }

    /// Returns what was there under the same name.
    fn put(&mut self, namespace: String, name: String, object: Arc<K>) -> Option<Arc<K>> {
        match self.names.entry(namespace).or_default().entry(name) {
            btree_map::Entry::Occupied(known) => self.places[*known.get()].replace(object),
            btree_map::Entry::Vacant(unknown) => {
                let place = self.free.pop().unwrap_or(self.places.len());
                unknown.insert(place);
                if place == self.places.len() {
                    self.places.push(Some(object));
                } else {
                    self.places[place] = Some(object);
                }
                None
            }
        }
    }
}

impl<K: Resource> Objects<K> {
    /// Returns what was there under the same name.
    pub(super) fn insert(&mut self, object: Arc<K>) -> Option<Arc<K>> {
        let meta = object.meta();
        let namespace = meta.namespace.clone().unwrap_or_default();
        let name = meta.name.clone().unwrap_or_default();
        self.put(namespace, name, object)
    }

    /// What is there under the name of `object`.
    pub(super) fn namesake(&self, object: &K) -> Option<&Arc<K>> {
        let meta = object.meta();
        self.get(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ConfigMap;
    use proptest::prelude::*;

    use super::*;

    fn object(namespace: u8, name: u8, version: usize) -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some(namespace.to_string());
        object.metadata.name = Some(name.to_string());
        object.metadata.resource_version = Some(version.to_string());
        Arc::new(object)
    }

    proptest! {
        #[test]
        fn is_a_map(steps in prop::collection::vec((0_u8..3, 0_u8..4, any::<bool>()), 0..60)) {
            let (mut objects, mut model) = (Objects::default(), BTreeMap::new());
            for (version, (namespace, name, puts)) in steps.into_iter().enumerate() {
                let key = (namespace.to_string(), name.to_string());
                let new = object(namespace, name, version);
                if puts {
                    prop_assert_eq!(objects.insert(Arc::clone(&new)), model.insert(key, new));
                } else {
                    prop_assert_eq!(objects.remove(&key.0, &key.1), model.remove(&key));
                }
                prop_assert_eq!(objects.len(), model.len());
                prop_assert!(objects.all().eq(model.values()));
                for namespace in ["0", "1", "2"] {
                    let there = model.iter().filter(|((of, _), _)| of == namespace);
                    prop_assert!(objects.in_namespace(namespace).eq(there.map(|(_, object)| object)));
                    let any = objects.in_namespace(namespace).next().is_some();
                    prop_assert_eq!(objects.has_any_in(namespace), any);
                }
            }
        }
    }
}
