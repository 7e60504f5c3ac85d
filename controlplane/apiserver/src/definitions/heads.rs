//! Definitions without their schemas, which are nearly all of them: each is read when it has
//! changed, not whenever one of them has.

use std::{collections::HashMap, sync::Arc};

use coracle_registry::{
    resource::Resource,
    watch_cache::{KeyScope, Selection},
};
use coracle_store::Revision;
use serde_json::Value;

/// As they were last seen, by name.
#[derive(Default)]
pub(super) struct Heads(HashMap<String, (Revision, Arc<Value>)>);

impl Heads {
    /// All as they are now, in the order of their names.
    pub(super) fn read(&mut self, definitions: &Resource) -> Vec<Arc<Value>> {
        let (snapshot, everything) = (
            definitions.cache.snapshot(),
            Selection::of(KeyScope::Resource),
        );
        let entries = snapshot.select(&everything, &definitions.prefix);
        self.renew(entries.map(|entry| {
            let read = || serde_json::from_slice(&entry.unmanaged()).ok();
            (entry.name(), entry.revision(), read)
        }))
    }

    /// The same of names and revisions, with how to read each.
    fn renew<'a, R>(&mut self, all: impl Iterator<Item = (&'a str, Revision, R)>) -> Vec<Arc<Value>>
    where
        R: FnOnce() -> Option<Value>,
    {
        let mut before = std::mem::take(&mut self.0);
        let mut heads = Vec::new();
        for (name, revision, read) in all {
            let known = before.remove(name).filter(|(seen, _)| *seen == revision);
            let head = known.map(|(_, head)| head);
            if let Some(head) = head.or_else(|| Some(Arc::new(without_schemas(read()?)))) {
                let now = (revision, Arc::clone(&head));
                self.0.insert(name.to_owned(), now);
                heads.push(head);
            }
        }
        heads
    }
}

fn without_schemas(mut definition: Value) -> Value {
    if let Some(spec) = definition["spec"].as_object_mut() {
        spec.remove("versions");
    }
    definition
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_not_changed_is_not_read_again() {
        let read = |name: &str| json!({"name": name, "spec": {"group": "a", "versions": [1]}});
        let mut heads = Heads::default();
        let all = [("a", Revision(1)), ("b", Revision(2))];
        let first = heads.renew(
            all.map(|(name, at)| (name, at, || Some(read(name))))
                .into_iter(),
        );
        assert_eq!(*first[0], json!({"name": "a", "spec": {"group": "a"}}));
        let all = [("a", Revision(1)), ("b", Revision(3)), ("c", Revision(4))];
        let all = all.map(|(name, at)| (name, at, move || (name != "a").then(|| read("new"))));
        let second = heads.renew(all.into_iter());
        assert!(Arc::ptr_eq(&first[0], &second[0]));
        assert_eq!((&second[1]["name"], second.len()), (&json!("new"), 3));
        assert!(
            heads
                .renew(std::iter::empty::<(&str, Revision, fn() -> Option<Value>)>())
                .is_empty()
        );
        assert!(heads.0.is_empty());
    }
}
