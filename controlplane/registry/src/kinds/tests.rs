mod growth;
mod minimal;

use std::path::PathBuf;

use coracle_api::schema::Structural;
use proptest::prelude::{ProptestConfig, any, proptest};
use serde_json::{Value, json};

use super::*;
use crate::{
    api_resource::Text,
    resource::cache_config,
    testing::{created, defaulted, minimal::minimal as minimal_object},
};

#[test]
fn rows_have_as_many_cells_as_columns() {
    for strategy in all() {
        assert_eq!(
            strategy.row(&json!({}), 0).len(),
            strategy.columns().len(),
            "{}",
            strategy.resource().kind
        );
    }
}

#[test]
fn names_are_unique() {
    for (index, a) in all().iter().enumerate() {
        for b in &all()[index + 1..] {
            let (a, b) = (a.resource(), b.resource());
            assert_ne!(
                (a.group, a.version, a.plural),
                (b.group, b.version, b.plural)
            );
        }
    }
}

/// Their objects are those of another kind, with the same keys: a write would replace one of these.
#[test]
fn projections_are_only_read() {
    for kind in projections() {
        let info = kind.resource();
        let is_read = |verb: &&str| matches!(*verb, "get" | "list" | "watch");
        assert!(info.verbs.iter().all(is_read), "{:?}", info.verbs);
        assert!(info.subresources.is_empty() && info.categories.is_empty());
        let stored = kind.of();
        assert_eq!(info.scope, stored.resource().scope);
        assert!(all().iter().any(|one| {
            let (one, of) = (one.resource(), stored.resource());
            (one.group, one.version, one.plural) == (of.group, of.version, of.plural)
        }));
        assert!(by_resource(info.group, info.version, info.plural).is_none());
        for field in kind.selectable_fields() {
            assert!(stored.selectable_fields().contains(field), "{field}");
        }
        assert_eq!(kind.row(&json!({}), 0).len(), kind.columns().len());
    }
}

#[test]
fn projections_show_what_their_schema_says() {
    for kind in projections() {
        let schema = Structural::read(&kind.openapi_schema()).unwrap();
        let full = full_object(kind.of()).unwrap_or_else(|| minimal_object(kind.of()));
        let shown = kind.project(full.to_string().as_bytes()).unwrap();
        let shown: Value = serde_json::from_slice(&shown).unwrap();
        assert!(schema.validate(&shown).is_empty());
        let mut pruned = shown.clone();
        schema.prune(&mut pruned);
        assert_eq!(pruned, shown, "{}", kind.resource().kind);
    }
}

#[test]
fn short_names_belong_to_one_kind() {
    let mut seen = std::collections::BTreeMap::new();
    for info in all().iter().map(|strategy| strategy.resource()) {
        for name in info.short_names {
            // Another version or view of the same kind has the same names.
            assert_eq!(*seen.entry(name).or_insert(info.kind), info.kind, "{name}");
        }
    }
}

#[test]
fn unknown_resources_are_not_found() {
    assert!(by_resource("apps", "v1", "deployments").is_some());
    assert!(by_resource("apps", "v1", "pods").is_none());
}

/// The object that Kubernetes' own tests use for a kind: every field filled.
fn full_object(strategy: &dyn BuiltIn) -> Option<Value> {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden");
    let dir = std::env::var_os("CORACLE_GOLDEN").map_or(default, PathBuf::from);
    let info = strategy.resource();
    let group = if info.group.is_empty() {
        "core"
    } else {
        info.group
    };
    let file = dir
        .join("kubernetes-api")
        .join(format!("{group}.{}.{}.json", info.version, info.kind));
    serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()
}

/// Every hook, on a new object and on an update of it.
fn exercise(strategy: &dyn BuiltIn, object: &Value) {
    let once = defaulted(strategy, object.clone());
    assert_eq!(
        defaulted(strategy, once.clone()),
        once,
        "defaults of {} are idempotent",
        strategy.resource().kind
    );
    let stored = created(strategy, object.clone());
    let mut new = once;
    strategy.prepare_for_update(&mut new, &stored);
    strategy.prepare_for_status_update(&mut new, &stored);
    strategy.validate(&stored);
    strategy.validate_update(&new, &stored);
    strategy.validate_status_update(&new, &stored);
    strategy.warnings(&stored);
    strategy.deletion(&stored, None);
    for field in strategy.selectable_fields() {
        strategy.field(&stored, field);
    }
    assert_eq!(strategy.row(&stored, 0).len(), strategy.columns().len());
    strategy.row_conditions(&stored);
}

#[test]
fn every_hook_takes_an_object_with_all_fields() {
    let mut count = 0;
    for strategy in all() {
        if let Some(object) = full_object(*strategy) {
            exercise(*strategy, &object);
            count += 1;
        }
    }
    eprintln!("{count} of {} kinds had golden objects", all().len());
    // Definitions are apiextensions-apiserver's, which has none.
    assert!(
        count == 0 || count == all().len() - 1,
        "Kubernetes' own tests have an object of every kind"
    );
}

#[test]
fn the_cache_sees_every_field_that_selectors_name() {
    let object = json!({
        "type": "t", "reason": "r", "reportingComponent": "c", "metadata": {"name": "n"},
        "source": {"component": ""},
        "involvedObject": {"kind": "k", "namespace": "ns", "name": "n", "uid": "u",
            "apiVersion": "v", "resourceVersion": "1", "fieldPath": "f"},
        "spec": {"nodeName": "n", "restartPolicy": "Never", "schedulerName": "s",
            "serviceAccountName": "a", "hostNetwork": true, "unschedulable": true,
            "signerName": "s", "podName": "p", "driver": "d", "clusterIP": "10.0.0.1", "type": "t"},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "nominatedNodeName": "n",
            "replicas": 3, "succeeded": 2},
    });
    let mut seen = 0;
    let stored = all().iter().filter(|kind| kind.view().is_none());
    for kind in stored.filter(|kind| !kind.selectable_fields().is_empty()) {
        let fields = kind.selectable_fields().iter().copied().map(Text::Borrowed);
        let config = cache_config(&kind.resource().into(), (*kind).into(), &fields.collect());
        let values = config
            .index
            .unwrap()
            .values_in(object.to_string().as_bytes())
            .unwrap();
        for (field, value) in kind.selectable_fields().iter().zip(values) {
            let plural = kind.resource().plural;
            assert_ne!(value, "", "{plural} {field}");
            assert_eq!(value, kind.field(&object, field), "{plural} {field}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn every_view_keeps_an_object_with_all_fields() {
    for strategy in all() {
        let (Some(view), Some(object)) = (strategy.view(), full_object(*strategy)) else {
            continue;
        };
        let object = defaulted(*strategy, object);
        let shown = (view.conversion.from_stored)((view.conversion.to_stored)(object.clone()));
        let without_notes = |mut object: Value| {
            object["metadata"]["annotations"] = Value::Null;
            object
        };
        assert_eq!(
            without_notes(shown),
            without_notes(object),
            "{}",
            strategy.resource().kind
        );
    }
}

#[test]
fn every_hook_takes_an_empty_object() {
    for strategy in all() {
        exercise(*strategy, &json!({"metadata": {}}));
    }
}

/// Leaves out parts of a value, as clients do.
fn thinned(value: &Value, choices: &mut impl Iterator<Item = u8>) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter_map(|(key, value)| {
                if choices.next()? % 4 == 0 {
                    return None;
                }
                Some((key.clone(), thinned(value, choices)))
            })
            .collect(),
        Value::Array(list) => list.iter().map(|value| thinned(value, choices)).collect(),
        other => match choices.next() {
            Some(0) => match other {
                Value::String(_) => "".into(),
                Value::Number(_) => 0.into(),
                other => other.clone(),
            },
            _ => other.clone(),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_hook_takes_any_part_of_an_object(seed in proptest::collection::vec(any::<u8>(), 64..256)) {
        for strategy in all() {
            let Some(object) = full_object(*strategy) else { continue };
            let mut choices = seed.iter().copied().cycle();
            let mut object = thinned(&object, &mut choices);
            object["metadata"] = json!({"name": "a", "namespace": "b"});
            exercise(*strategy, &object);
        }
    }
}
