use serde_json::Map;

use super::*;
use crate::schema::{Schema, Structural};

fn widget() -> Gvk {
    Gvk::new("example.org", "v1", "Widget")
}

fn schema(spec: &Value) -> Schema {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    Schema::Structural(Structural::read(&schema).expect("structural"))
}

fn spec() -> Value {
    json!({"type": "object", "properties": {
        "size": {"type": "integer"},
        "mode": {"type": "string", "default": "fast"},
        "note": {"type": "string", "nullable": true},
        "limits": {"type": "object", "additionalProperties": {"type": "string"}},
        "steps": {"type": "array", "items": {"type": "object", "properties": {
            "name": {"type": "string"},
        }}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true},
    }})
}

fn decoded(body: &str, validation: FieldValidation) -> Result<Decoded, String> {
    let (json, schema) = (ContentType::Json, schema(&spec()));
    decode_along(&schema, body.as_bytes(), json, &widget(), validation).map_err(|s| s.message)
}

#[test]
fn what_the_schema_does_not_know_goes_and_the_rest_stays_as_it_is() {
    let body = r#"{"metadata": {"name": "a", "labels": {}, "generation": 0}, "data": 1,
        "spec": {"size": "large", "steps": [{"name": "", "x": 1}, null, 5], "mode": null,
            "note": null, "limits": {"cpu": null, "memory": "1"}, "free": {"y": null},
            "template": {"kind": "Pod", "metadata": {"name": "b", "x": 1}, "spec": {}}}}"#;
    let decoded = decoded(body, FieldValidation::Warn).expect("a widget");
    let spec = json!({"size": "large", "steps": [{"name": ""}, null, 5], "mode": null,
        "note": null, "limits": {"memory": "1"}, "free": {"y": null},
        "template": {"kind": "Pod", "metadata": {"name": "b"}}});
    let expect = json!({"apiVersion": "example.org/v1", "kind": "Widget",
        "metadata": {"name": "a"}, "spec": spec});
    assert_eq!(decoded.object, expect);
    let unknown = [
        "data",
        "spec.steps[0].x",
        "spec.template.metadata.x",
        "spec.template.spec",
    ];
    let unknown = unknown.map(|path| format!("unknown field {path:?}"));
    assert_eq!(decoded.warnings, unknown);
}

#[test]
fn strict_decoding_tells_what_stands_twice_then_metadata_then_the_rest() {
    let body = r#"{"z": 1, "metadata": {"x": 1, "labels": {"k": "1", "k": "2"}},
        "spec": {"y": {"a": 1, "a": 2}, "size": 1, "size": 2, "mode": null, "mode": "slow",
            "free": {"b": 1, "b": 2}, "gone": 1, "gone": 2}}"#;
    let twice = [
        "metadata.labels.k",
        "spec.y.a",
        "spec.size",
        "spec.mode",
        "spec.free.b",
        "spec.gone",
    ];
    let unknown = ["metadata.x", "spec.gone", "spec.y", "z"];
    let told: Vec<String> = (twice.iter().map(|path| format!("duplicate field {path:?}")))
        .chain(unknown.iter().map(|path| format!("unknown field {path:?}")))
        .collect();
    assert_eq!(
        decoded(body, FieldValidation::Strict).expect_err("strict"),
        format!(
            r#"Widget in version "v1" cannot be handled as a Widget: strict decoding error: {}"#,
            told.join(", ")
        )
    );
    let decoded = decoded(body, FieldValidation::Ignore).expect("a widget");
    assert_eq!(decoded.warnings, [""; 0]);
    let expect = json!({"size": 2, "mode": "slow", "free": {"b": 2}});
    assert_eq!(decoded.object["spec"], expect);
}

#[test]
fn metadata_has_its_types_and_so_has_that_of_objects_within() {
    let table = [
        (
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
        (
            r#"{"metadata":5}"#,
            "json: cannot unmarshal number into Go value of type v1.ObjectMeta",
        ),
        (
            r#"{"spec":{"template":{"metadata":{"name":1}}}}"#,
            r#"spec.template.metadata: Invalid value: {"name":1}: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"#,
        ),
        (
            r#"{"spec":{"template":{"kind":5}}}"#,
            "spec.template.kind: Invalid value: 5: must be a string",
        ),
    ];
    for (body, why) in table {
        let expect = format!(r#"Widget in version "v1" cannot be handled as a Widget: {why}"#);
        assert_eq!(decoded(body, FieldValidation::Warn), Err(expect), "{body}");
    }
    for body in [
        r#"{"metadata":null}"#,
        r#"{"metadata":{"creationTimestamp":null}}"#,
    ] {
        let decoded = decoded(body, FieldValidation::Strict).expect("a widget");
        assert_eq!(decoded.object["metadata"], json!({}));
    }
}

#[test]
fn yaml_is_the_same_and_protobuf_is_refused() {
    let schema = schema(&spec());
    let read = |body: &str, content| {
        let warn = FieldValidation::Warn;
        decode_along(&schema, body.as_bytes(), content, &widget(), warn)
    };
    let body = "spec:\n  size: 1\n  limits:\n    80: a\n  x: 1\n";
    let found = read(body, ContentType::Yaml).expect("a widget");
    assert_eq!(
        found.object["spec"],
        json!({"size": 1, "limits": {"80": "a"}})
    );
    assert_eq!(found.warnings, [r#"unknown field "spec.x""#]);
    assert_eq!(
        read("k8s", ContentType::Protobuf).map_err(|s| s.code),
        Err(415)
    );
}

/// What reading, pruning and coercing one after the other make of a value; `None` if it is refused.
fn one_after_the_other(
    schema: &Value,
    value: &Value,
    path: &str,
    unknown: &mut Vec<String>,
) -> Option<Value> {
    let joined = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    let flag = |name: &str| schema[name] == true;
    let is_object = path.is_empty() || flag("x-kubernetes-embedded-resource");
    Some(match value {
        Value::Object(map) => {
            let mut out = Map::new();
            for (name, value) in map {
                let kept = match name.as_str() {
                    "metadata" if is_object => Some(metadata(value, &joined(name), unknown)?),
                    "kind" | "apiVersion" if is_object => {
                        (path.is_empty() || value.is_string()).then_some(())?;
                        Some(value.clone())
                    }
                    name => {
                        let known = schema["properties"]
                            .get(name)
                            .or_else(|| schema.get("additionalProperties"));
                        match known {
                            Some(Value::Bool(true)) => Some(value.clone()),
                            Some(known) => {
                                let inner =
                                    one_after_the_other(known, value, &joined(name), unknown)?;
                                let stays = known["nullable"] == true
                                    || known.get("default").is_some_and(|d| !d.is_null());
                                (stays || !inner.is_null()).then_some(inner)
                            }
                            None if flag("x-kubernetes-preserve-unknown-fields") => {
                                Some(value.clone())
                            }
                            None => {
                                unknown.push(joined(name));
                                None
                            }
                        }
                    }
                };
                out.extend(kept.map(|kept| (name.clone(), kept)));
            }
            Value::Object(out)
        }
        Value::Array(list) => match schema.get("items") {
            Some(items) => list
                .iter()
                .enumerate()
                .map(|(at, value)| {
                    one_after_the_other(items, value, &format!("{path}[{at}]"), unknown)
                })
                .collect::<Option<_>>()?,
            None => value.clone(),
        },
        single => single.clone(),
    })
}

fn metadata(value: &Value, path: &str, unknown: &mut Vec<String>) -> Option<Value> {
    let name = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let ty = table().by_name(name).expect("metadata");
    let decoded = decode_value(value, ty, FieldValidation::Warn).ok()?;
    let found = decoded.warnings.iter().map(|warning| {
        let field = warning.trim_start_matches("unknown field \"");
        format!("{path}.{}", field.trim_end_matches('"'))
    });
    unknown.extend(found);
    Some(decoded.object)
}

fn schemas() -> impl Strategy<Value = Value> {
    let single = (
        proptest::sample::select(vec!["string", "integer", "boolean", "object", "array"]),
        any::<bool>(),
        proptest::option::of(Just("d")),
    );
    let leaf = single.prop_map(|(kind, nullable, default)| {
        let mut leaf = json!({"type": kind, "nullable": nullable});
        if let Some(default) = default {
            leaf["default"] = default.into();
        }
        leaf
    });
    leaf.prop_recursive(4, 24, 4, |inner| {
        let properties = proptest::collection::btree_map("[a-c]", inner.clone(), 0..4);
        let object = (properties, any::<bool>(), any::<bool>()).prop_map(|(of, keeps, embeds)| {
            json!({"type": "object", "properties": of,
                "x-kubernetes-preserve-unknown-fields": keeps,
                "x-kubernetes-embedded-resource": embeds})
        });
        let items = inner
            .clone()
            .prop_map(|each| json!({"type": "array", "items": each}));
        let each = inner.prop_map(|each| json!({"type": "object", "additionalProperties": each}));
        let any = Just(json!({"type": "object", "additionalProperties": true}));
        prop_oneof![4 => object, 2 => items, 1 => each, 1 => any]
    })
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "[x-z]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        let names = ["a", "b", "c", "d", "metadata", "kind", "name", "labels"];
        let names = proptest::sample::select(names.map(str::to_owned).to_vec());
        let object = proptest::collection::btree_map(names, inner.clone(), 0..5);
        let list = proptest::collection::vec(inner, 0..4);
        prop_oneof![3 => object.prop_map(|map| json!(map)), 1 => list.prop_map(Value::from)]
    })
}

proptest! {
    #[test]
    fn one_pass_gives_what_one_after_the_other_gives(of in schemas(), value in values()) {
        let whole = json!({"type": "object", "properties": {"spec": of}});
        let mut object = json!({"apiVersion": "example.org/v1", "kind": "Widget", "spec": value});
        object["metadata"] = object["spec"].get("metadata").cloned().unwrap_or(json!({}));
        let mut unknown = Vec::new();
        let expect = one_after_the_other(&whole, &object, "", &mut unknown);
        unknown.sort_by_key(|path| if path.starts_with("metadata.") {
            String::new()
        } else {
            path.clone()
        });
        let unknown: Vec<String> =
            unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
        let found = decode_along(
            &schema(&of),
            object.to_string().as_bytes(),
            ContentType::Json,
            &widget(),
            FieldValidation::Warn,
        );
        match (found, expect) {
            (Ok(found), Some(expect)) => {
                // Pruning what is stored finds nothing left to do.
                let Schema::Structural(schema) = schema(&of) else { unreachable!() };
                let mut again = found.object.clone();
                schema.prune(&mut again);
                prop_assert_eq!(&again, &found.object);
                prop_assert_eq!(found.object, expect);
                prop_assert_eq!(found.warnings, unknown);
            }
            (Err(refused), None) => prop_assert_eq!(refused.code, 400),
            (found, expect) => prop_assert!(false, "{:?} is not {:?}", found, expect),
        }
    }
}
