//! Sets of field paths, in the form of `fieldsV1`.
//!
//! An element of a path is `f:<member>`, `k:{<keys>}` (list element by keys) or `v:<value>` (list element by value).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A set of paths: a tree whose nodes say whether they belong to it themselves.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Set {
    pub(super) own: bool,
    pub(super) children: BTreeMap<String, Set>,
}

impl Set {
    pub(super) fn is_empty(&self) -> bool {
        !self.own && self.children.is_empty()
    }

    /// Reads `fieldsV1`. What is no path is dropped.
    pub(super) fn read(fields: &Value) -> Self {
        let mut root = Self::read_node(fields);
        root.own = false;
        root
    }

    fn read_node(fields: &Value) -> Self {
        let Value::Object(map) = fields else { return Self::default() };
        let children: BTreeMap<String, Self> = map
            .iter()
            .filter(|(key, _)| ["f:", "k:", "v:"].iter().any(|kind| key.starts_with(kind)))
            .map(|(key, value)| (canonical(key), Self::read_node(value)))
            .collect();
        Self { own: children.is_empty() || map.contains_key("."), children }
    }

    pub(super) fn write(&self) -> Value {
        let mut map = Map::new();
        if self.own && !self.children.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        map.extend(self.children.iter().map(|(key, set)| (key.clone(), set.write())));
        Value::Object(map)
    }

    /// Adds every path of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        self.own |= other.own;
        for (key, theirs) in &other.children {
            self.children.entry(key.clone()).or_default().merge(theirs);
        }
    }

    /// Removes the leaves of `other`: list elements and map members stay while anything in them does.
    pub(super) fn subtract(&mut self, other: &Self) {
        if other.children.is_empty() {
            self.own &= !other.own;
        }
        for (key, theirs) in &other.children {
            if let Some(mine) = self.children.get_mut(key) {
                mine.subtract(theirs);
                // An element of which every field went is no longer held.
                if mine.children.is_empty() && !theirs.children.is_empty() {
                    mine.own = false;
                }
                if mine.is_empty() {
                    self.children.remove(key);
                }
            }
        }
    }

    /// Removes what is not under a path of `existing`.
    pub(super) fn retain(&mut self, existing: &Self) {
        self.children.retain(|key, mine| {
            let Some(theirs) = existing.children.get(key) else { return false };
            // A leaf of the object is a leaf of the set, whatever was in it before.
            if !theirs.children.is_empty() {
                mine.retain(theirs);
            }
            !mine.is_empty()
        });
    }

    /// Removes one path.
    pub(super) fn remove(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else {
            self.own = false;
            return;
        };
        if let Some(child) = self.children.get_mut(first) {
            child.remove(rest);
            if child.is_empty() {
                self.children.remove(first);
            }
        }
    }
}

/// Keys and values in one spelling, so that they can be compared as text.
fn canonical(key: &str) -> String {
    let (kind, text) = key.split_at(2);
    match kind {
        "k:" | "v:" => match serde_json::from_str::<Value>(text) {
            Ok(value) => format!("{kind}{value}"),
            Err(_) => key.to_owned(),
        },
        _ => key.to_owned(),
    }
}

/// A path as upstream prints it: `.spec.containers[name="a"].image`.
pub(super) fn print_path(path: &[String]) -> String {
    let mut out = String::new();
    for element in path {
        let (kind, text) = element.split_at(2);
        match kind {
            "k:" => {
                let keys: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                out.push_str(&format!("[{}]", keys.join(",")));
            }
            "v:" => out.push_str(&format!("[={text}]")),
            _ => out.push_str(&format!(".{text}")),
        }
    }
    out
}
