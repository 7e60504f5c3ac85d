//! What a schema does to objects.

use serde_json::json;

use super::*;

fn schema() -> Arc<Structural> {
    let port = json!({"x-kubernetes-int-or-string": true});
    let spec = json!({
        "type": "object", "required": ["size"],
        "properties": {
            "size": {"type": "integer"},
            "mode": {"type": "string", "default": "fast"},
            "note": {"type": "string", "nullable": true, "default": "none"},
            "limits": {"type": "object", "additionalProperties": {"type": "string"}},
            "steps": {"type": "array", "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "port": port, "times": {"type": "integer", "default": 1},
            }}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object"}}},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true},
        },
    });
    Structural::read(
        &json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}),
    )
    .unwrap()
}

#[test]
fn what_is_not_known_is_pruned() {
    let mut object = json!({
        "apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "a"}, "data": 1,
        "spec": {"size": 1, "colour": "red", "limits": {"cpu": "1"}, "steps": [{"name": "a", "x": 1}],
            "free": {"y": 1, "known": {"z": 1}}, "template": {"kind": "Pod", "metadata": {"a": 1}, "spec": {}}},
    });
    schema().prune(&mut object);
    let expect = json!({"size": 1, "limits": {"cpu": "1"}, "steps": [{"name": "a"}], "free": {"y": 1, "known": {}},
        "template": {"kind": "Pod", "metadata": {}}});
    assert_eq!(object["spec"], expect);
    assert_eq!(object["metadata"], json!({"name": "a"}));
}

#[test]
fn what_is_absent_is_defaulted() {
    let mut object =
        json!({"metadata": {}, "spec": {"steps": [{}, {"times": 3}], "mode": null, "note": null}});
    schema().default(&mut object);
    let expect = json!({"steps": [{"times": 1}, {"times": 3}], "mode": "fast", "note": null});
    assert_eq!(object["spec"], expect);
    let once = object.clone();
    schema().default(&mut object);
    assert_eq!(object, once);
}

#[test]
fn a_default_in_a_list_does_not_grow_without_bound() {
    let mode = json!({"type": "string", "default": "x".repeat(1000)});
    let items = json!({"type": "object", "properties": {"mode": mode}});
    let list = json!({"type": "array", "items": items});
    let schema = json!({"type": "object", "properties": {"list": list}});
    let schema = Structural::read(&schema).unwrap();
    let defaulted = |count: usize| {
        let mut object = json!({"list": vec![json!({}); count]});
        schema.default(&mut object);
        let list = object["list"].as_array().unwrap();
        list.iter().filter(|one| one["mode"].is_string()).count()
    };
    assert_eq!(defaulted(1000), 1000);
    // What has not all of them is more than a store takes.
    let some = defaulted(20_000);
    assert!((3000..5000).contains(&some), "{some}");
}

#[test]
fn what_does_not_fit_is_told() {
    for (spec, expect) in [
        (
            json!({"size": 1, "steps": [{"port": 80}, {"port": "http"}], "note": null}),
            "",
        ),
        (json!({}), "spec.size: Required value"),
        (
            json!({"size": "1"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 1, "steps": [{"port": true}]}),
            "spec.steps[0].port: Invalid value: \"boolean\": spec.steps[0].port in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"size": 1, "limits": {"cpu": 1}}),
            "spec.limits.cpu: Invalid value: \"integer\": spec.limits.cpu in body must be of type string: \"integer\"",
        ),
    ] {
        let errors = schema().validate(&json!({"metadata": {"name": 1}, "spec": spec}));
        let told = if errors.is_empty() {
            String::new()
        } else {
            errors.to_string()
        };
        assert_eq!(told, expect, "{spec}");
    }
}

#[test]
fn an_update_is_told_of_what_it_changes() {
    let with =
        |size: &str, name: i64| json!({"metadata": {}, "spec": {"size": size, "mode": name}});
    let told = |new, old| schema().validate_update(&new, &old).len();
    assert_eq!(told(with("1", 1), with("1", 1)), 0);
    assert_eq!(told(with("1", 2), with("1", 1)), 1);
    assert_eq!(told(with("2", 2), with("1", 1)), 2);
}

#[test]
fn what_is_not_structural_is_refused() {
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep = json!({"type": "array", "items": deep});
    }
    for (schema, expect) in [
        (json!(1), "must be an object"),
        (
            json!({"type": "object", "properties": {"a": {}}}),
            "must have a type",
        ),
        (json!({"type": "file"}), "has a type that there is not"),
        (json!({"$ref": "#/definitions/x"}), "$ref is forbidden"),
        (deep, "is nested too deep"),
    ] {
        assert_eq!(
            Structural::read(&schema).unwrap_err().what,
            expect,
            "{schema}"
        );
    }
}
