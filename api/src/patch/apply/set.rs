//! Sets of field paths, in the form of `fieldsV1`.
//!
//! An element of a path is `f:<member>`, `k:{<keys>}` (list element by keys) or `v:<value>` (list
//! element by value).

use serde_json::{Map, Value};

/// A set of paths: a tree whose nodes say whether they belong to it themselves.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Set {
    pub(super) own: bool,
    pub(super) children: Branches,
}

/// The nodes below a node by path element, in order. Most nodes have few: a vector of few is the
/// smallest map there is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Branches(Vec<(String, Set)>);

impl Branches {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Set> {
        self.find(key).map(|at| &self.0[at].1)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Set> {
        self.find(key).map(|at| &mut self.0[at].1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Set)> {
        self.0.iter().map(|(key, set)| (key, set))
    }

    /// Moves all that comes after: not for one of very many after the other.
    pub(super) fn remove(&mut self, key: &str) {
        if let Some(at) = self.find(key) {
            self.0.remove(at);
        }
    }

    pub(super) fn retain(&mut self, mut stays: impl FnMut(&str, &mut Set) -> bool) {
        self.0.retain_mut(|(key, set)| stays(key, set));
    }

    fn find(&self, key: &str) -> Option<usize> {
        self.0
            .binary_search_by(|(own, _)| own.as_str().cmp(key))
            .ok()
    }

    fn sort(&mut self) {
        self.0.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
}

impl FromIterator<(String, Set)> for Branches {
    /// Of several with one key the last counts.
    fn from_iter<I: IntoIterator<Item = (String, Set)>>(nodes: I) -> Self {
        let mut branches = Self(nodes.into_iter().collect());
        branches.sort();
        branches.0.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                std::mem::swap(later, kept);
            }
            is_same
        });
        branches
    }
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
        let Value::Object(map) = fields else {
            return Self::default();
        };
        let children: Branches = map
            .iter()
            .filter(|(key, _)| ["f:", "k:", "v:"].iter().any(|kind| key.starts_with(kind)))
            .map(|(key, value)| (canonical(key), Self::read_node(value)))
            .collect();
        Self {
            own: children.is_empty() || map.contains_key("."),
            children,
        }
    }

    pub(super) fn write(&self) -> Value {
        let mut map = Map::new();
        if self.own && !self.children.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        map.extend(
            self.children
                .iter()
                .map(|(key, set)| (key.clone(), set.write())),
        );
        Value::Object(map)
    }

    /// Adds every path of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        self.own |= other.own;
        let mut missing = Vec::new();
        for (key, theirs) in other.children.iter() {
            match self.children.get_mut(key) {
                Some(mine) => mine.merge(theirs),
                None => missing.push((key.clone(), theirs.clone())),
            }
        }
        if !missing.is_empty() {
            self.children.0.append(&mut missing);
            self.children.sort();
        }
    }

    /// Removes the leaves of `other`: list elements and map members stay while anything in them
    /// does.
    pub(super) fn subtract(&mut self, other: &Self) {
        if other.children.is_empty() {
            self.own &= !other.own;
        }
        self.children.retain(|key, mine| {
            let Some(theirs) = other.children.get(key) else {
                return true;
            };
            mine.subtract(theirs);
            // An element of which every field went is no longer held.
            if mine.children.is_empty() && !theirs.children.is_empty() {
                mine.own = false;
            }
            !mine.is_empty()
        });
    }

    /// Removes what is not under a path of `existing`.
    pub(super) fn retain(&mut self, existing: &Self) {
        self.children.retain(|key, mine| {
            let Some(theirs) = existing.children.get(key) else {
                return false;
            };
            // A leaf of the object is a leaf of the set, whatever was in it before.
            if !theirs.children.is_empty() {
                mine.retain(theirs);
            }
            !mine.is_empty()
        });
    }

    /// The paths that both have.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let shared = self.children.iter().filter_map(|(key, mine)| {
            let both = mine.intersection(other.children.get(key)?);
            (!both.is_empty()).then(|| (key.clone(), both))
        });
        Self {
            own: self.own && other.own,
            children: shared.collect(),
        }
    }

    /// Each path of it.
    pub(super) fn paths(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        self.walk(&mut Vec::new(), &mut found);
        found
    }

    fn walk(&self, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        if self.own {
            found.push(path.clone());
        }
        for (key, child) in self.children.iter() {
            path.push(key.clone());
            child.walk(path, found);
            path.pop();
        }
    }

    /// Removes one path. What it leaves empty goes with [`Set::prune`].
    pub(super) fn remove(&mut self, path: &[String]) {
        match path.split_first() {
            None => self.own = false,
            Some((first, rest)) => {
                if let Some(child) = self.children.get_mut(first) {
                    child.remove(rest);
                }
            }
        }
    }

    /// Removes nodes without any path.
    pub(super) fn prune(&mut self) {
        self.children.retain(|_, child| {
            child.prune();
            !child.is_empty()
        });
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
