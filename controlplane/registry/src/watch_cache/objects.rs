//! The objects of a resource at one moment: by key, and by the fields that lists go by.
//!
//! All of it is persistent: a clone is a few pointers, and goes its own way from there.

use std::{ops::Bound, sync::Arc};

use imbl::{OrdMap, OrdSet};

use super::{
    entry::{ByKey, Entry},
    fields::FieldIndex,
    selection::Selection,
};
use crate::api_resource::Text;

/// Objects, each once.
#[derive(Clone)]
pub(super) struct Objects {
    by_key: OrdSet<ByKey>,
    indexes: Vec<Index>,
}

/// The objects by the value of one field, in key order for each.
#[derive(Clone)]
struct Index {
    name: Text,
    /// The place of the field among those that an entry has.
    at: usize,
    by_value: OrdMap<Arc<str>, OrdSet<ByKey>>,
}

impl Objects {
    /// None yet.
    pub(super) fn new(fields: Option<&FieldIndex>) -> Self {
        let listed = fields.into_iter().flat_map(FieldIndex::listed);
        let indexes = listed.map(|(at, name)| Index {
            name: name.clone(),
            at,
            by_value: OrdMap::new(),
        });
        Self {
            by_key: OrdSet::new(),
            indexes: indexes.collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.by_key.get(key).map(|entry| &entry.0)
    }

    /// Adds an object; returns what it takes the place of.
    pub(super) fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let before = self.by_key.insert(ByKey(Arc::clone(&entry)));
        let before = before.map(|before| before.0);
        for index in &mut self.indexes {
            index.replace(before.as_deref(), &entry);
        }
        before
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Arc<Entry>> {
        let removed = self.by_key.remove(key)?.0;
        for index in &mut self.indexes {
            index.remove(&removed);
        }
        Some(removed)
    }

    /// Those whose key is at least `first`, in key order.
    pub(super) fn starting_at<'a>(
        &'a self,
        first: &str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        starting_at(&self.by_key, first)
    }

    /// The same, without some that the selection cannot mean.
    pub(super) fn candidates<'a>(
        &'a self,
        selection: &Selection,
        first: &str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        let indexed = selection.fields.iter().find_map(|(name, value)| {
            let mut indexes = self.indexes.iter();
            Some((indexes.find(|index| index.name == *name)?, value))
        });
        let set = match indexed {
            Some((index, value)) => index.by_value.get(value.as_str()),
            None => Some(&self.by_key),
        };
        set.map(|set| starting_at(set, first)).into_iter().flatten()
    }
}

fn starting_at<'a>(
    set: &'a OrdSet<ByKey>,
    first: &str,
) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
    set.range::<_, str>((Bound::Included(first), Bound::Unbounded))
        .map(|entry| &entry.0)
}

impl Index {
    fn replace(&mut self, before: Option<&Entry>, entry: &Arc<Entry>) {
        if let Some(before) = before
            && self.value(before) != self.value(entry)
        {
            self.remove(before);
        }
        let Some(value) = self.value(entry) else {
            return;
        };
        let now = ByKey(Arc::clone(entry));
        if let Some(set) = self.by_value.get_mut(&**value) {
            set.insert(now);
        } else {
            self.by_value.insert(Arc::clone(value), OrdSet::unit(now));
        }
    }

    fn remove(&mut self, entry: &Entry) {
        let Some(value) = self.value(entry) else {
            return;
        };
        let Some(set) = self.by_value.get_mut(&**value) else {
            return;
        };
        set.remove(entry.key());
        if set.is_empty() {
            self.by_value.remove(&**value);
        }
    }

    fn value<'a>(&self, entry: &'a Entry) -> Option<&'a Arc<str>> {
        entry.fields().values().get(self.at)
    }
}
