//! Lists of type `set` and `map`: no element, or key, is there twice.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype/validation.go` at v1.37.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::{
    schema::{Additional, ListKind, Node, Schema},
    violation::{Violations, Wrong, child},
};

impl Schema {
    /// Elements of sets, and keys of maps that are lists, that are there more than once.
    #[must_use]
    pub fn validate_lists(&self, object: &Value) -> Violations {
        let mut found = Violations::default();
        self.root.check_lists(object, "", &mut found);
        found
    }
}

impl Node {
    fn check_lists(&self, value: &Value, path: &str, found: &mut Violations) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    if let Some(node) = self.properties.get(name) {
                        node.check_lists(value, &child(path, name), found);
                    } else if let Additional::Of(node) = &self.additional {
                        node.check_lists(value, &format!("{path}[{name}]"), found);
                    }
                }
            }
            Value::Array(list) => {
                match &self.list {
                    ListKind::Set => tell_twice(list.iter().cloned(), path, found),
                    ListKind::Map(keys) => check_keys(keys, list, path, found),
                    ListKind::Atomic => {}
                }
                let Some(items) = &self.items else { return };
                for (at, item) in list.iter().enumerate() {
                    items.check_lists(item, &format!("{path}[{at}]"), found);
                }
            }
            _ => {}
        }
    }
}

fn check_keys(keys: &[String], list: &[Value], path: &str, found: &mut Violations) {
    let is_other = |item: &Value| !item.is_null() && !item.is_object();
    if let Some(at) = list.iter().position(is_other) {
        let what = "must be an object for an array of list-type map";
        return found.invalid(&format!("{path}[{at}]"), &list[at], what);
    }
    let key = |item: &Value| {
        let named = |name: &String| Some((name.clone(), item.get(name)?.clone()));
        Value::Object(keys.iter().filter_map(named).collect::<Map<_, _>>())
    };
    tell_twice(list.iter().map(key), path, found);
}

/// The first repetition of each is told.
fn tell_twice(values: impl Iterator<Item = Value>, path: &str, found: &mut Violations) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (at, value) in values.enumerate() {
        let times = seen.entry(json!(value).to_string()).or_default();
        *times += 1;
        if *times == 2 {
            found.add(&format!("{path}[{at}]"), Wrong::Duplicate { value });
        }
    }
}
