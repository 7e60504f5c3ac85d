//! Selectors and what they select, each found by a pair of labels that both have.
//!
//! Nearly every selector asks for a key with a value, or with one of several. Objects are indexed
//! by all their pairs and selectors by those of one key, so that neither is compared with a whole
//! namespace. A selector without a pair says what objects lack, or asks for a key whatever its
//! value: it selects most of a namespace, and is compared with all of its own.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Debug},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    Resource,
    api::ObjectMeta,
    core::{Selector, SelectorExt},
};

use super::{By, Cache, Index};

/// A pair of labels that everything a selector selects has.
pub type Pair<'a> = (&'a str, &'a str);

/// Pairs of which everything that `selector` selects has one; none if it asks for none.
#[must_use]
pub fn pairs_of(selector: &LabelSelector) -> Vec<Pair<'_>> {
    let mut exact = selector.match_labels.iter().flatten();
    if let Some((key, value)) = exact.next() {
        return vec![(key, value)];
    }
    let one_of = selector
        .match_expressions
        .iter()
        .flatten()
        .filter(|asked| asked.operator == "In");
    let pairs = one_of.map(|asked| {
        let values: BTreeSet<&str> = asked.values.iter().flatten().map(String::as_str).collect();
        let pairs = values.into_iter().map(|value| (asked.key.as_str(), value));
        pairs.collect::<Vec<_>>()
    });
    pairs.min_by_key(Vec::len).unwrap_or_default()
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

    /// The objects of `namespace` that pass `is_selected`, all of which have one of `pairs`, which
    /// are of one key, in order of name.
    pub fn get(
        &self,
        namespace: &str,
        pairs: &[Pair<'_>],
        mut is_selected: impl FnMut(&K) -> bool,
    ) -> Vec<Arc<K>> {
        let keys: Vec<String> = pairs
            .iter()
            .map(|pair| pair_key(namespace, Some(*pair)))
            .collect();
        match keys.as_slice() {
            [] => self.cache.in_namespace(namespace, is_selected),
            [key] => self.by_label.filter(key, is_selected),
            keys => {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let mut found = self.by_label.get_any(&keys);
                found.retain(|object| is_selected(object));
                found.sort_by(|one, other| one.meta().name.cmp(&other.meta().name));
                found
            }
        }
    }

    /// The objects of `namespace` that `selector` selects, in order of name: all for an empty one,
    /// and none without a selector or for one that is not valid.
    #[must_use]
    pub fn by(&self, namespace: &str, selector: Option<&LabelSelector>) -> Vec<Arc<K>> {
        let parsed = selector.and_then(|selector| Selector::try_from(selector.clone()).ok());
        let Some(parsed) = parsed else {
            return Vec::new();
        };
        let none = BTreeMap::new();
        let pairs = selector.map(pairs_of).unwrap_or_default();
        self.get(namespace, &pairs, |object| {
            parsed.matches(object.meta().labels.as_ref().unwrap_or(&none))
        })
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

/// The selector of an object; made for those kinds that say it in another form.
pub type SelectorOf<S> = fn(&S) -> Option<Cow<'_, LabelSelector>>;

/// Objects that select others by their labels, found from what they select.
pub struct Selecting<S> {
    by_pair: By<S>,
    selector: SelectorOf<S>,
}

impl<S: Resource + 'static> Selecting<S> {
    /// Keeps the index from now on; `selector` is the one of an object.
    #[must_use]
    pub fn of(cache: &Arc<Cache<S>>, selector: SelectorOf<S>) -> Self {
        let by_pair = Index::new("selects", move |object: &S, put| {
            let namespace = object.meta().namespace.as_deref().unwrap_or_default();
            let selector = selector(object);
            let pairs = selector.as_deref().map(pairs_of).unwrap_or_default();
            for pair in &pairs {
                put(&pair_key(namespace, Some(*pair)));
            }
            if pairs.is_empty() {
                put(&pair_key(namespace, None));
            }
        });
        Self {
            by_pair: cache.index(by_pair),
            selector,
        }
    }

    /// What selects an object with this metadata.
    #[must_use]
    pub fn get(&self, meta: &ObjectMeta) -> Vec<Arc<S>> {
        let (namespace, none) = (meta.namespace.as_deref(), BTreeMap::new());
        let labels = meta.labels.as_ref().unwrap_or(&none);
        let mut found = selecting(&self.by_pair, namespace.unwrap_or_default(), labels);
        found.retain(|object| {
            let selector = (self.selector)(object).map(Cow::into_owned);
            let parsed = selector.and_then(|selector| Selector::try_from(selector).ok());
            parsed.is_some_and(|selector| selector.matches(labels))
        });
        found
    }
}

impl<S> Debug for Selecting<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selecting").finish_non_exhaustive()
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
    use k8s_openapi::api::{core::v1::ConfigMap, networking::v1::NetworkPolicy};
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
    fn pairs_of_one_key_stand_for_the_whole_selector() {
        let any = |values: Value| json!({"key": "a", "operator": "In", "values": values});
        let wide = json!({"key": "b", "operator": "In", "values": ["1", "2", "3"]});
        let table = [
            (
                json!({"matchLabels": {"b": "2", "a": "1"}}),
                &[("a", "1")][..],
            ),
            (
                json!({"matchExpressions": [any(json!(["1"]))]}),
                &[("a", "1")],
            ),
            (
                json!({"matchExpressions": [wide, any(json!(["2", "1", "2"]))]}),
                &[("a", "1"), ("a", "2")],
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
                &[],
            ),
            (json!({}), &[]),
        ];
        for (selector, expected) in table {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(pairs_of(&parsed), expected, "{selector}");
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
            names(&selected.get("ns", &[("app", "web")], |_| true)),
            ["a", "b"]
        );
        assert_eq!(
            names(&selected.get("ns", &[("app", "db"), ("app", "web")], |_| true)),
            ["a", "b", "c"]
        );
        assert_eq!(names(&selected.get("ns", &[], |_| true)), ["a", "b", "c"]);
        filled(&cache, &[object("ns", "a", json!({"tier": "front"}))]);
        assert_eq!(
            names(&selected.get("ns", &[("app", "web")], |_| true)),
            ["b"]
        );
    }

    #[test]
    fn an_object_finds_what_selects_it() {
        let cache = Arc::new(Cache::<NetworkPolicy>::new());
        let selecting = Selecting::of(&cache, |policy: &NetworkPolicy| {
            let selector = policy.spec.as_ref()?.pod_selector.as_ref();
            selector.map(Cow::Borrowed)
        });
        let of = |ns: &str, name: &str, selector: Value| json!({"metadata": {"namespace": ns, "name": name}, "spec": {"podSelector": selector}});
        let exists = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
        filled(
            &cache,
            &[
                of("ns", "web", json!({"matchLabels": {"app": "web"}})),
                of(
                    "ns",
                    "front",
                    json!({"matchLabels": {"app": "web", "tier": "front"}}),
                ),
                of(
                    "ns",
                    "back",
                    json!({"matchLabels": {"app": "web", "tier": "back"}}),
                ),
                of("ns", "db", json!({"matchLabels": {"app": "db"}})),
                of(
                    "ns",
                    "one-of",
                    json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}),
                ),
                of("ns", "any", exists("app")),
                of("ns", "other-key", exists("zone")),
                of("ns", "all", json!({})),
                of("ns", "none", Value::Null),
                of("other", "web", json!({"matchLabels": {"app": "web"}})),
            ],
        );
        let found = |labels: Value| {
            let meta = json!({"namespace": "ns", "labels": labels});
            names(&selecting.get(&serde_json::from_value(meta).unwrap()))
        };
        let labels = json!({"app": "web", "tier": "front"});
        assert_eq!(found(labels), ["all", "any", "front", "one-of", "web"]);
        assert_eq!(found(Value::Null), ["all"]);
    }

    #[test]
    fn selectors_select_all_when_empty_and_none_when_absent() {
        let cache = Arc::new(Cache::<ConfigMap>::new());
        let selected = Selected::of(&cache);
        let object = |name: &str, labels: Value| json!({"metadata": {"namespace": "ns", "name": name, "labels": labels}});
        filled(
            &cache,
            &[object("a", json!({"a": "b"})), object("b", Value::Null)],
        );
        let table = [
            (json!({}), &["a", "b"][..]),
            (Value::Null, &[]),
            (json!({"matchLabels": {"a": "b"}}), &["a"]),
            (json!({"matchLabels": {"a": "c"}}), &[]),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
                &["b"],
            ),
        ];
        for (selector, expected) in table {
            let parsed: Option<LabelSelector> = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(
                names(&selected.by("ns", parsed.as_ref())),
                expected,
                "{selector}"
            );
        }
    }
}
