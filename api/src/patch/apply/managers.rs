//! The entries of `metadata.managedFields`.

use serde_json::{Map, Value, json};

use super::{Conflict, manager::Manager, others::Others, set::Set, typed::clashes};
use crate::{
    meta,
    schema::{Shape, Typed},
};

/// Updaters of one object beyond which the oldest are merged into one.
const MAX_UPDATERS: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// All owners of an object.
#[derive(Debug, Default)]
pub(super) struct Managers(Vec<(Manager, Set)>);

impl Managers {
    pub(super) fn read(object: &Value) -> Self {
        let entries = meta::get_array(object, &["metadata", "managedFields"])
            .iter()
            .filter_map(|entry| {
                let text = |key: &str| meta::get_str(entry, &[key]).to_owned();
                let applies = match entry.get("operation").and_then(Value::as_str)? {
                    "Apply" => true,
                    "Update" => false,
                    _ => return None,
                };
                let manager = Manager {
                    name: text("manager"),
                    applies,
                    subresource: text("subresource"),
                    api_version: text("apiVersion"),
                    time: text("time"),
                };
                Some((manager, Set::read(entry.get("fieldsV1")?)))
            });
        Self(entries.collect())
    }

    pub(super) fn write(mut self, object: &mut Value) {
        self.0.retain(|(_, set)| !set.is_empty());
        self.0.sort_by(|(a, _), (b, _)| {
            b.applies
                .cmp(&a.applies)
                .then_with(|| a.time.cmp(&b.time))
                .then_with(|| a.name.cmp(&b.name))
        });
        self.cap();
        if self.0.is_empty() {
            meta::remove(object, &["metadata", "managedFields"]);
            return;
        }
        let entries: Vec<Value> = self
            .0
            .iter()
            .map(|(manager, set)| write_entry(manager, set))
            .collect();
        meta::set(object, &["metadata", "managedFields"], entries);
    }

    /// Merges the oldest updaters into one, so that the list stays short.
    fn cap(&mut self) {
        let updaters = self.0.iter().filter(|(m, _)| !m.applies).count();
        if updaters <= MAX_UPDATERS {
            return;
        }
        let first = self.0.len() - updaters;
        let mut old: Vec<(Manager, Set)> = self
            .0
            .drain(first..=first + updaters - MAX_UPDATERS)
            .collect();
        let Some((mut manager, mut set)) = old.pop() else {
            return;
        };
        old.iter().for_each(|(_, theirs)| set.merge(theirs));
        ANCIENT.clone_into(&mut manager.name);
        self.0.insert(first, (manager, set));
    }

    pub(super) fn set_of(&self, manager: &Manager) -> Set {
        self.0
            .iter()
            .find(|(m, _)| m == manager)
            .map(|(_, set)| set.clone())
            .unwrap_or_default()
    }

    pub(super) fn union_of_others(&self, me: &Manager) -> Set {
        let mut out = Set::default();
        self.0
            .iter()
            .filter(|(m, _)| m != me)
            .for_each(|(_, set)| out.merge(set));
        out
    }

    /// In which version an applier has applied the last time.
    pub(super) fn version_of(&self, manager: &Manager) -> Option<&str> {
        let mut all = self.0.iter();
        let found = all.find(|(m, _)| m == manager);
        found.map(|(m, _)| m.api_version.as_str())
    }

    /// The versions of others than this manager and this version, each once.
    pub(super) fn versions_of_others(&self, me: &Manager, own: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (manager, _) in self.0.iter().filter(|(m, _)| m != me) {
            let version = &manager.api_version;
            if version != own && !found.contains(version) {
                found.push(version.clone());
            }
        }
        found
    }

    /// What others own in one version.
    pub(super) fn union_of_others_in(&self, me: &Manager, version: &str) -> Set {
        let mut out = Set::default();
        self.0
            .iter()
            .filter(|(m, _)| m != me && m.api_version == version)
            .for_each(|(_, set)| out.merge(set));
        out
    }

    /// Forgets the others of versions that are there no more.
    pub(super) fn forget_gone(&mut self, me: &Manager, others: &Others) {
        self.0.retain(|(m, _)| m == me || !others.is_gone(m));
    }

    /// What others own and an apply would change.
    pub(super) fn conflicts<T: Typed>(
        &self,
        (me, named): (&Manager, &Set),
        (live, merged): (&Value, &Value),
        shape: Shape<T>,
        others: &Others,
    ) -> Vec<Conflict> {
        let mut out = Vec::new();
        for (manager, set) in self.0.iter().filter(|(m, _)| m != me) {
            if others.has(manager) {
                others.conflicts(manager, set, &mut out);
                continue;
            }
            let mut found = |path: &[String]| {
                out.push(Conflict {
                    manager: manager.clone(),
                    path: path.to_vec(),
                })
            };
            clashes(
                set,
                named,
                (Some(live), Some(merged)),
                shape,
                &mut Vec::new(),
                &mut found,
            );
        }
        out.sort_by(|a, b| a.manager.name.cmp(&b.manager.name));
        out
    }

    /// Takes fields from their owners.
    pub(super) fn take(&mut self, conflicts: &[Conflict]) {
        for conflict in conflicts {
            if let Some((_, set)) = self.0.iter_mut().find(|(m, _)| *m == conflict.manager) {
                set.remove(&conflict.path);
            }
        }
        self.0.iter_mut().for_each(|(_, set)| set.prune());
    }

    /// Takes changed fields from everybody but `me`.
    pub(super) fn lose(&mut self, me: &Manager, changed: &Set, others: &Others) {
        let all = self.0.iter_mut().filter(|(m, _)| m != me);
        all.for_each(|(manager, set)| match others.has(manager) {
            true => others.take_changed(manager, set),
            false => set.subtract(changed),
        });
    }

    /// Forgets fields that the object no longer has.
    pub(super) fn keep_existing(&mut self, existing: &Set, others: &Others) {
        self.0
            .iter_mut()
            .for_each(|(manager, set)| match others.has(manager) {
                true => others.keep_existing(manager, set),
                false => set.retain(existing),
            });
    }

    /// Sets what a manager owns; without `time` its entry keeps the time it had.
    pub(super) fn put(
        &mut self,
        mut manager: Manager,
        set: Set,
        time: Option<&str>,
        api_version: &str,
    ) {
        api_version.clone_into(&mut manager.api_version);
        if let Some(entry) = self.0.iter_mut().find(|(m, _)| *m == manager) {
            if time.is_none() {
                manager.time.clone_from(&entry.0.time);
            }
            *entry = (manager, set);
        } else {
            self.0.push((manager, set));
        }
    }
}

fn write_entry(manager: &Manager, set: &Set) -> Value {
    let mut entry = Map::new();
    entry.insert("manager".to_owned(), manager.name.as_str().into());
    entry.insert(
        "operation".to_owned(),
        (if manager.applies { "Apply" } else { "Update" }).into(),
    );
    entry.insert("apiVersion".to_owned(), manager.api_version.as_str().into());
    if !manager.time.is_empty() {
        entry.insert("time".to_owned(), manager.time.as_str().into());
    }
    entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), set.write());
    if !manager.subresource.is_empty() {
        entry.insert(
            "subresource".to_owned(),
            manager.subresource.as_str().into(),
        );
    }
    Value::Object(entry)
}
