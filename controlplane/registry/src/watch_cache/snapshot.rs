//! All objects of a resource at one revision, and how they are looked through. No time passes here.

use std::sync::Arc;

use coracle_store::Revision;

use super::{
    entry::Entry,
    objects::Objects,
    selection::{KeyScope, Selection},
};

/// All objects of a resource at one revision. Cheap to make, to clone and to hold for a short time.
#[derive(Clone)]
pub struct Snapshot {
    pub(super) revision: Revision,
    pub(super) objects: Objects,
}

impl Snapshot {
    /// The revision of this state.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.objects.get(key)
    }

    /// The objects whose key is at least `first`, in key order.
    pub fn from_key<'a>(&'a self, first: &str) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        self.objects.starting_at(first)
    }

    /// The objects of a selection, in key order.
    pub fn select<'a>(
        &'a self,
        selection: &'a Selection,
        prefix: &str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        self.select_from(selection, prefix, "")
    }

    /// The same, but for those whose key is before `first`.
    pub(super) fn select_from<'a>(
        &'a self,
        selection: &'a Selection,
        prefix: &str,
        first: &str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        let scope = first_key(&selection.scope, prefix);
        self.objects
            .candidates(selection, first.max(scope.as_str()))
            .take_while(move |entry| entry.key().starts_with(&scope))
            .filter(|entry| selection.selects(entry))
    }
}

/// The smallest key of a scope; all keys of the scope start with it.
pub(super) fn first_key(scope: &KeyScope, prefix: &str) -> String {
    match scope {
        KeyScope::Resource => prefix.to_owned(),
        KeyScope::Namespace(namespace) => format!("{prefix}{namespace}/"),
        KeyScope::Key(key) => key.clone(),
    }
}
