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
    CustomResourceStrategy::new(&CustomResourceVersion {
        name: "v1".into(),
        served: true,
        deprecated: "".into(),
        subresources,
        scale: None,
        schema: Structural::read(&schema).unwrap(),
        columns,
        selectable_fields: Vec::new(),
    })
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
