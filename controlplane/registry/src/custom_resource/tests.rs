//! What the strategy makes of objects.

use coracle_api::schema::Structural;
use serde_json::json;

use super::*;

fn column(name: &'static str, kind: &'static str, path: &str) -> PrinterColumn {
    let column = Column {
        name: name.into(),
        kind: kind.into(),
        format: "".into(),
        description: "".into(),
        priority: 0,
    };
    PrinterColumn {
        column,
        path: JsonPath::parse(path).unwrap(),
    }
}

fn widgets(subresources: Vec<Subresource>, columns: Vec<PrinterColumn>) -> CustomResourceStrategy {
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer", "default": 1}}});
    let schema =
        json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}});
    let version = CustomResourceVersion {
        name: "v1".into(),
        served: true,
        deprecated: "".into(),
        subresources,
        scale: None,
        schema: Structural::read(&schema).unwrap(),
        columns,
        selectable_fields: Vec::new(),
    };
    CustomResourceStrategy::new(&version, &RuleMetrics::default())
}

#[test]
fn status_is_apart_if_it_is_a_subresource() {
    let sent = json!({"metadata": {}, "spec": {"size": 1}, "status": {"a": 1}});
    for (subresources, status) in [
        (vec![], json!({"a": 1})),
        (vec![Subresource::Status], Value::Null),
    ] {
        let mut object = sent.clone();
        widgets(subresources, vec![]).prepare_for_create(&mut object);
        assert_eq!(
            (&object["status"], &object["metadata"]["generation"]),
            (&status, &json!(1))
        );
    }
}

#[test]
fn generation_counts_what_is_not_apart() {
    let old =
        json!({"metadata": {"generation": 1}, "spec": {"size": 1}, "status": {"a": 1}, "data": 1});
    let with = |path: &str, value: Value| {
        let mut new = old.clone();
        *new.pointer_mut(path).unwrap() = value;
        new
    };
    for (new, apart, inside) in [
        (with("/spec/size", json!(2)), 2, 2),
        (with("/status/a", json!(2)), 1, 2),
        (with("/metadata", json!({"labels": {"a": "b"}})), 1, 1),
        (with("/data", json!(2)), 2, 2),
        (
            json!({"metadata": {}, "spec": {"size": 1}, "status": {"a": 1}}),
            2,
            2,
        ),
    ] {
        for (subresources, expect) in [(vec![Subresource::Status], apart), (vec![], inside)] {
            let mut changed = new.clone();
            widgets(subresources, vec![]).prepare_for_update(&mut changed, &old);
            assert_eq!(changed["metadata"]["generation"], expect, "{new}");
        }
    }
}

#[test]
fn rows_show_what_columns_say() {
    let object = json!({"metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {"size": 3, "on": true, "tags": ["x", "y"]}});
    let columns = vec![
        column("Size", "integer", ".spec.size"),
        column("On", "boolean", ".spec.on"),
        column("Tags", "string", ".spec.tags[*]"),
        column("Wrong", "integer", ".spec.tags"),
        column("None", "string", ".spec.none"),
        column("Since", "date", ".metadata.creationTimestamp"),
    ];
    let strategy = widgets(vec![], columns);
    assert_eq!(
        Value::from(strategy.row(&object, 300)),
        json!(["a", 3, true, "x,y", null, null, "5m"])
    );
    assert_eq!(strategy.columns().len(), 7);
    assert_eq!(
        Value::from(widgets(vec![], vec![]).row(&object, 300)),
        json!(["a", "5m"])
    );
}

/// What is wrong with an object that has this one within.
fn told_of(within: &Value) -> Vec<String> {
    let within_it = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {
        "one": within_it, "list": {"type": "array", "items": within_it}}});
    let version = CustomResourceVersion {
        schema: Structural::read(&schema).unwrap(),
        ..version_of_nothing()
    };
    let strategy = CustomResourceStrategy::new(&version, &RuleMetrics::default());
    let object = json!({"metadata": {}, "one": within});
    let errors = strategy.validate(&object);
    // As in an update, whatever was there before.
    let again = strategy.validate_update(&object, &object);
    assert_eq!(errors.len(), again.len(), "{errors} {again}");
    let listed = json!({"metadata": {}, "list": [within]});
    assert_eq!(errors.len(), strategy.validate(&listed).len());
    errors.iter().map(ToString::to_string).collect()
}

fn version_of_nothing() -> CustomResourceVersion {
    CustomResourceVersion {
        name: "v1".into(),
        served: true,
        deprecated: "".into(),
        subresources: Vec::new(),
        scale: None,
        schema: Structural::read(&json!({"type": "object"})).unwrap(),
        columns: Vec::new(),
        selectable_fields: Vec::new(),
    }
}

#[test]
fn objects_within_have_kinds_and_metadata_as_any_other() {
    let of = |metadata: Value| json!({"apiVersion": "foo/v1", "kind": "Foo", "metadata": metadata});
    let long = "a".repeat(64);
    for good in [
        json!({"apiVersion": "foo/v1", "kind": "Foo"}),
        of(json!({})),
        of(json!({"namespace": "kube-system"})),
        of(json!({"name": "foo", "labels": {"a": "b"}, "finalizers": ["e.org/f"]})),
        of(json!({"name": "Any Name", "generateName": "..", "generation": 3})),
    ] {
        assert_eq!(told_of(&good), [""; 0], "{good}");
    }
    for (bad, paths) in [
        (json!({}), &["apiVersion", "kind"][..]),
        (
            json!({"apiVersion": "foo/v1", "kind": "foo.bar-com"}),
            &["kind"],
        ),
        (of(json!({"name": ".."})), &["metadata.name"]),
        (
            of(json!({"name": "a/b%"})),
            &["metadata.name", "metadata.name"],
        ),
        (
            of(json!({"generateName": "a/"})),
            &["metadata.generateName"],
        ),
        (of(json!({"namespace": "$$$"})), &["metadata.namespace"]),
        (of(json!({"generation": -1})), &["metadata.generation"]),
        (
            of(json!({"labels": {"#": "#"}})),
            &["metadata.labels", "metadata.labels"],
        ),
        (of(json!({"labels": {"a": long}})), &["metadata.labels"]),
        (
            of(json!({"annotations": {"#": "#"}})),
            &["metadata.annotations"],
        ),
        (
            of(
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "", "name": "n", "uid": "u"}]}),
            ),
            &["metadata.ownerReferences[0].kind"],
        ),
        (
            of(json!({"finalizers": ["a b"]})),
            &["metadata.finalizers[0]", "metadata.finalizers[0]"],
        ),
    ] {
        let told = told_of(&bad);
        let found: Vec<&str> = told
            .iter()
            .map(|one| one.split(": ").next().unwrap())
            .collect();
        let expect: Vec<String> = paths.iter().map(|path| format!("one.{path}")).collect();
        assert_eq!(found, expect, "{bad}: {told:?}");
    }
    let told = told_of(&json!({"apiVersion": "foo/v1", "kind": "foo_bar"}));
    let why =
        "one.kind: Invalid value: \"foo_bar\": may have mixed case, but should otherwise match: ";
    assert!(told[0].starts_with(why), "{told:?}");
}
