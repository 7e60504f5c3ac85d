//! Patches as kubectl computes them, and what comes of them here.
//!
//! Source: `CreateThreeWayMergePatch` and `diffMaps` of
//! `k8s.io/apimachinery/pkg/util/strategicpatch/patch.go`.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

fn pod_type() -> Type {
    table().by_gvk(&Gvk::new("", "v1", "Pod")).expect("Pod")
}

/// What of `new` is otherwise than in `old`, with the directives that kubectl gives; with
/// `deletions`, also what is gone.
fn difference(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    schema: Schema,
    deletions: bool,
) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, value) in new {
        let field = schema.field(key);
        match (old.get(key), value) {
            (Some(before), _) if before == value => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(
                    key.clone(),
                    Value::Object(difference(before, after, schema.of_value(key), deletions)),
                );
            }
            (Some(Value::Array(before)), Value::Array(after))
                if field.is_some_and(|f| f.has_patch_strategy("merge")) =>
            {
                list_difference(
                    &mut patch,
                    &field.expect("just seen"),
                    (before, after),
                    deletions,
                );
            }
            _ => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    if deletions {
        patch.extend(
            old.keys()
                .filter(|key| !new.contains_key(*key))
                .map(|key| (key.clone(), Value::Null)),
        );
    }
    patch
}

fn list_difference(
    patch: &mut Map<String, Value>,
    field: &Field,
    (old, new): (&[Value], &[Value]),
    deletions: bool,
) {
    let name = field.json_name;
    let Some(key) = field.patch_merge_key else {
        let missing = |from: &[Value], of: &[Value]| -> Vec<Value> {
            of.iter()
                .filter(|item| !from.contains(item))
                .cloned()
                .collect()
        };
        let (added, gone) = (missing(old, new), missing(new, old));
        if !added.is_empty() {
            patch.insert(name.to_owned(), added.into());
        }
        if deletions && !gone.is_empty() {
            patch.insert(format!("$deleteFromPrimitiveList/{name}"), gone.into());
        }
        patch.insert(format!("$setElementOrder/{name}"), new.into());
        return;
    };
    let retains = field.has_patch_strategy("retainKeys");
    let find = |list: &[Value], id: &Value| list.iter().find(|item| item[key] == *id).cloned();
    let mut changes = Vec::new();
    for after in new {
        match find(old, &after[key]) {
            Some(before) if before == *after => {}
            Some(before) => {
                let (before, after) = (
                    before.as_object().expect("a map"),
                    after.as_object().expect("a map"),
                );
                let mut change = difference(before, after, of_field(field), deletions);
                change.insert(key.to_owned(), after[key].clone());
                if retains {
                    change.insert("$retainKeys".to_owned(), after.keys().cloned().collect());
                }
                changes.push(Value::Object(change));
            }
            None => changes.push(after.clone()),
        }
    }
    if deletions {
        let gone = old
            .iter()
            .filter(|before| find(new, &before[key]).is_none());
        changes.extend(gone.map(|before| json!({key: before[key], "$patch": "delete"})));
    }
    let order = new.iter().map(|item| json!({key: item[key]}));
    patch.insert(format!("$setElementOrder/{name}"), order.collect());
    if !changes.is_empty() {
        patch.insert(name.to_owned(), changes.into());
    }
}

/// The patch of `kubectl apply`: deletions of what was applied before and is no more, and changes
/// against the live object.
fn three_way(before: &Value, after: &Value, live: &Value) -> Map<String, Value> {
    let [before, after, live] =
        [before, after, live].map(|object| object.as_object().expect("an object"));
    let schema = Schema::Object(pod_type());
    let changes = difference(live, after, schema, false);
    let deletions = only_deletions(difference(before, after, schema, true));
    match merge_patches(Value::Object(deletions), Value::Object(changes)) {
        Value::Object(patch) => patch,
        _ => Map::new(),
    }
}

/// Without what is added or changed.
fn only_deletions(patch: Map<String, Value>) -> Map<String, Value> {
    let mut kept = Map::new();
    for (key, value) in patch {
        let value = match value {
            Value::Null => Value::Null,
            Value::Object(map) => Value::Object(only_deletions(map)),
            Value::Array(items) if key.starts_with("$deleteFrom") => items.into(),
            Value::Array(items) if !key.starts_with('$') => {
                let gone = items.into_iter().filter_map(|item| match item {
                    Value::Object(map) if map.contains_key("$patch") => Some(Value::Object(map)),
                    Value::Object(map) => {
                        // The key of the element, and what goes from it.
                        let name = map.get("name")?.clone();
                        let mut inner = only_deletions(map);
                        (!inner.is_empty()).then(|| {
                            inner.insert("name".to_owned(), name);
                            Value::Object(inner)
                        })
                    }
                    _ => None,
                });
                gone.collect()
            }
            _ => continue,
        };
        if value != json!({}) && value != json!([]) {
            kept.insert(key, value);
        }
    }
    kept
}

/// Two patches as one: maps and lists of elements are joined, elements by name.
fn merge_patches(one: Value, two: Value) -> Value {
    match (one, two) {
        (Value::Object(mut one), Value::Object(two)) => {
            for (key, value) in two {
                let merged = match one.remove(&key) {
                    Some(old) if !key.starts_with('$') => merge_patches(old, value),
                    _ => value,
                };
                one.insert(key, merged);
            }
            Value::Object(one)
        }
        (Value::Array(one), Value::Array(two))
            if one
                .iter()
                .chain(&two)
                .all(|item| item.get("name").is_some()) =>
        {
            let mut rest = one;
            let mut out = Vec::new();
            for item in two {
                let at = rest.iter().position(|other| other["name"] == item["name"]);
                out.push(match at {
                    Some(at) => merge_patches(rest.remove(at), item),
                    None => item,
                });
            }
            out.extend(rest);
            out.into()
        }
        (_, two) => two,
    }
}

/// What a user may write of a pod; the letters of names and keys are from this range.
fn manifests(letters: &'static str) -> impl Strategy<Value = Value> {
    let env = proptest::sample::subsequence(vec!["K", "L", "M"], 0..=3).prop_shuffle();
    let container = (proptest::option::of("[x-z]"), env, "[0-2]");
    let named = proptest::collection::btree_map(letters, container, 1..4);
    let volume = prop_oneof![
        Just(json!({"emptyDir": {}})),
        "[p-q]".prop_map(|p| json!({"hostPath": {"path": p}}))
    ];
    let volumes = proptest::collection::btree_map(letters, volume, 0..3);
    let finalizers = proptest::collection::btree_set(letters, 0..4);
    let labels = proptest::collection::btree_map(letters, "[0-2]", 0..3);
    (named, volumes, finalizers, labels, any::<bool>()).prop_map(
        |(containers, volumes, finalizers, labels, flip)| {
            let mut containers: Vec<Value> = containers
                .into_iter()
                .map(|(name, parts)| container_of(&name, parts))
                .collect();
            if flip {
                containers.reverse();
            }
            let volumes: Vec<Value> = volumes.into_iter().map(named_volume).collect();
            json!({
                "metadata": {"name": "p", "labels": labels, "finalizers": finalizers},
                "spec": {"containers": containers, "volumes": volumes, "nodeSelector": {"a": "b"}},
            })
        },
    )
}

fn container_of(name: &str, (image, env, value): (Option<String>, Vec<&str>, String)) -> Value {
    let env: Vec<Value> = env
        .into_iter()
        .map(|name| json!({"name": name, "value": value}))
        .collect();
    let mut container = json!({"name": name, "env": env, "args": [value]});
    if let Some(image) = image {
        container["image"] = image.into();
    }
    container
}

fn named_volume((name, mut volume): (String, Value)) -> Value {
    volume["name"] = name.into();
    volume
}

fn names(object: &Value, list: &str) -> Vec<String> {
    let items = object["spec"][list]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    items
        .iter()
        .map(|item| item["name"].as_str().expect("a name").to_owned())
        .collect()
}

proptest! {
    #[test]
    fn kubectls_patch_makes_the_old_manifest_the_new_one(old in manifests("[a-d]"), new in manifests("[a-d]")) {
        let (before, after) = (old.as_object().expect("a map"), new.as_object().expect("a map"));
        let patch = difference(before, after, Schema::Object(pod_type()), true);
        prop_assert_eq!(apply_value(pod_type(), &old, patch).expect("a patch"), new);
    }

    #[test]
    fn kubectl_apply_gives_what_is_wanted_and_leaves_what_others_added(
        before in manifests("[a-d]"), after in manifests("[a-d]"), others in manifests("[s-v]")
    ) {
        // What is live: what was applied before, and containers, volumes, labels and finalizers of
        // others.
        let mut live = before.clone();
        for list in ["containers", "volumes"] {
            let added = others["spec"][list].as_array().expect("a list").clone();
            live["spec"][list].as_array_mut().expect("a list").extend(added);
        }
        let added = others["metadata"]["finalizers"].as_array().expect("a list").clone();
        live["metadata"]["finalizers"].as_array_mut().expect("a list").extend(added.clone());
        let labels = others["metadata"]["labels"].as_object().expect("a map").clone();
        live["metadata"]["labels"].as_object_mut().expect("a map").extend(labels.clone());

        let patch = three_way(&before, &after, &live);
        let result = apply_value(pod_type(), &live, patch.clone()).expect("a patch");
        for list in ["containers", "volumes"] {
            let wanted = names(&after, list);
            let theirs = names(&others, list);
            let found = names(&result, list);
            let own: Vec<&String> = found.iter().filter(|name| !theirs.contains(name)).collect();
            prop_assert_eq!(own, wanted.iter().collect::<Vec<_>>(), "{} by {:?}", list, patch);
            prop_assert_eq!(found.len(), wanted.len() + theirs.len());
            let elements: BTreeMap<&str, &Value> = result["spec"][list].as_array().expect("a list").iter()
                .map(|item| (item["name"].as_str().expect("a name"), item)).collect();
            for item in after["spec"][list].as_array().expect("a list") {
                prop_assert_eq!(elements[item["name"].as_str().expect("a name")], item, "by {:?}", patch);
            }
        }
        let mut labels = labels;
        labels.extend(after["metadata"]["labels"].as_object().expect("a map").clone());
        prop_assert_eq!(&result["metadata"]["labels"], &Value::Object(labels));
        for finalizer in after["metadata"]["finalizers"].as_array().expect("a list").iter().chain(&added) {
            prop_assert!(result["metadata"]["finalizers"].as_array().expect("a list").contains(finalizer));
        }
        // And once it is so, there is nothing to do.
        let again = apply_value(pod_type(), &result, three_way(&after, &after, &result)).expect("a patch");
        prop_assert_eq!(again, result);
    }
}
