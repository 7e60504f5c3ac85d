//! Selectors and what they select, each found by a pair of labels that both have.
//!
//! Nearly every selector asks for a key with a value. Objects are indexed by all their pairs and
//! selectors by one of theirs, so that neither is compared with a whole namespace; a selector
//! without a pair is compared with all of its own.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;

use super::{By, Cache, Index};

/// A pair of labels that everything a selector selects has.
pub type Pair<'a> = (&'a str, &'a str);

/// A pair that `selector` asks for; `None` if it asks for none alone.
#[must_use]
pub fn pair_of(selector: &LabelSelector) -> Option<Pair<'_>> {
    let exact = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let one_of = selector
        .match_expressions
        .iter()
        .flatten()
        .filter(|asked| asked.operator == "In");
    let one_of = one_of.filter_map(|asked| match asked.values.as_deref() {
        Some([only]) => Some((asked.key.as_str(), only.as_str())),
        _ => None,
    });
    exact.chain(one_of).next()
}

/// The key of an index for what has, or asks for, `pair` in `namespace`; without one, for what asks
/// for none.
#[must_use]
pub fn pair_key(namespace: &str, pair: Option<Pair<'_>>) -> String {
    match pair {
        Some((key, value)) => format!("{namespace}/{key}={value}"),
        None => format!("{namespace}/"),
    }
}

/// Objects by each of their labels, for [`Selected`].
#[must_use]
pub fn by_label<K: Resource>() -> Index<K> {
    Index::new("label", |object: &K, put| {
        let namespace = object.meta().namespace.as_deref().unwrap_or_default();
        for (key, value) in object.meta().labels.iter().flatten() {
            put(&pair_key(namespace, Some((key, value))));
        }
    })
}

/// Objects as selectors see them. Cheap to clone.
#[derive(Debug)]
pub struct Selected<K> {
    cache: Arc<Cache<K>>,
    by_label: By<K>,
}

impl<K: Resource> Selected<K> {
    /// Keeps the index from now on.
    #[must_use]
    pub fn of(cache: &Arc<Cache<K>>) -> Self {
        Self {
            cache: Arc::clone(cache),
            by_label: cache.index(by_label()),
        }
    }

    /// The objects of `namespace` that pass `is_selected`, all of which have `pair`, in order of
    /// name.
    pub fn get(
        &self,
        namespace: &str,
        pair: Option<Pair<'_>>,
        is_selected: impl FnMut(&K) -> bool,
    ) -> Vec<Arc<K>> {
        match pair {
            Some(_) => self
                .by_label
                .filter(&pair_key(namespace, pair), is_selected),
            None => self.cache.in_namespace(namespace, is_selected),
        }
    }
}

impl<K> Clone for Selected<K> {
    fn clone(&self) -> Self {
        Self {
            cache: Arc::clone(&self.cache),
            by_label: self.by_label.clone(),
        }
    }
}

/// With an index by [`pair_key`]: what may select an object with these labels.
#[must_use]
pub fn selecting<S>(
    by_pair: &By<S>,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Vec<Arc<S>> {
    let pairs = labels
        .iter()
        .map(|(key, value)| pair_key(namespace, Some((key, value))));
    let keys: Vec<String> = std::iter::once(pair_key(namespace, None))
        .chain(pairs)
        .collect();
    by_pair.get_any(&keys.iter().map(String::as_str).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::ConfigMap};
    use serde_json::{Value, json};

    use super::*;
    use crate::{cache::Writer, reflector::Event};

    fn filled<K: Resource + serde::de::DeserializeOwned>(cache: &Arc<Cache<K>>, objects: &[Value]) {
        let mut writer = Writer::new();
        for object in objects {
            writer.apply(
                cache,
                Event::Apply(serde_json::from_value(object.clone()).unwrap()),
                |_| {},
            );
        }
    }

    fn names<K: Resource>(found: &[Arc<K>]) -> Vec<String> {
        found
            .iter()
            .filter_map(|object| object.meta().name.clone())
            .collect()
    }

    #[test]
    fn a_pair_stands_for_the_whole_selector() {
        let table = [
            (
                json!({"matchLabels": {"b": "2", "a": "1"}}),
                Some(("a", "1")),
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}),
                Some(("a", "1")),
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}),
                None,
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
                None,
            ),
            (json!({}), None),
        ];
        for (selector, expected) in table {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(pair_of(&parsed), expected, "{selector}");
        }
    }

    #[test]
    fn objects_are_found_by_pair_and_without_one_by_namespace() {
        let cache = Arc::new(Cache::<ConfigMap>::new());
        let selected = Selected::of(&cache);
        let object = |ns: &str, name: &str, labels: Value| json!({"metadata": {"namespace": ns, "name": name, "labels": labels}});
        filled(
            &cache,
            &[
                object("ns", "a", json!({"app": "web", "tier": "front"})),
                object("ns", "b", json!({"app": "web"})),
                object("ns", "c", json!({"app": "db"})),
                object("other", "d", json!({"app": "web"})),
            ],
        );
        assert_eq!(
            names(&selected.get("ns", Some(("app", "web")), |_| true)),
            ["a", "b"]
        );
        assert_eq!(names(&selected.get("ns", None, |_| true)), ["a", "b", "c"]);
        filled(&cache, &[object("ns", "a", json!({"tier": "front"}))]);
        assert_eq!(
            names(&selected.get("ns", Some(("app", "web")), |_| true)),
            ["b"]
        );
    }

    #[test]
    fn an_object_finds_what_may_select_it() {
        let cache = Arc::new(Cache::<ReplicaSet>::new());
        let by_pair = cache.index(Index::new("selects", |rs: &ReplicaSet, put| {
            put(&pair_key(
                rs.metadata.namespace.as_deref().unwrap_or_default(),
                pair_of(&rs.spec.selector),
            ));
        }));
        let of = |ns: &str, name: &str, selector: Value| json!({"metadata": {"namespace": ns, "name": name}, "spec": {"selector": selector}});
        filled(
            &cache,
            &[
                of("ns", "web", json!({"matchLabels": {"app": "web"}})),
                of("ns", "db", json!({"matchLabels": {"app": "db"}})),
                of(
                    "ns",
                    "any",
                    json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
                ),
                of("other", "web", json!({"matchLabels": {"app": "web"}})),
            ],
        );
        let labels = [
            ("app".to_owned(), "web".to_owned()),
            ("tier".to_owned(), "front".to_owned()),
        ]
        .into();
        assert_eq!(names(&selecting(&by_pair, "ns", &labels)), ["any", "web"]);
    }
}
