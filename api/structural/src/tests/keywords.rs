//! Keywords beside one another: each branch of upstream's `validation.go`, retold.

use serde_json::{Value, json};

use super::shown;
use crate::rules;

/// What is told of a schema of the property `x`, without the path to it.
fn told(schema: &Value) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"x": schema}});
    let all = shown(rules::check(&schema, "p", false).violations);
    let own = |line: String| line.replace("p.properties[x].", "");
    all.into_iter().map(own).collect()
}

fn check(cases: &[(Value, &[&str])]) {
    for (schema, expect) in cases {
        assert_eq!(told(schema), *expect, "{schema}");
    }
}

#[test]
fn some_keywords_no_schema_has() {
    let text = json!({"type": "string"});
    check(&[
        (
            json!({"type": "string", "id": "a"}),
            &["id: Forbidden: id is not supported"],
        ),
        (
            json!({"type": "string", "$ref": "#/a"}),
            &["$ref: Forbidden: $ref is not supported"],
        ),
        (
            json!({"type": "object", "patternProperties": {"a": text}}),
            &["patternProperties: Forbidden: patternProperties is not supported"],
        ),
        (
            json!({"type": "array", "items": text, "additionalItems": text}),
            &["additionalItems: Forbidden: additionalItems is not supported"],
        ),
        (
            json!({"type": "object", "definitions": {"a": text}}),
            &["definitions: Forbidden: definitions is not supported"],
        ),
        (
            json!({"type": "object", "dependencies": {"a": ["b"]}}),
            &["dependencies: Forbidden: dependencies is not supported"],
        ),
        (
            json!({"type": "array", "items": [text]}),
            &["items: Forbidden: items must be a schema object and not an array"],
        ),
        // With one of them a schema is not structural at all: no more of that is told.
        (
            json!({"$ref": "#/a"}),
            &["$ref: Forbidden: $ref is not supported"],
        ),
        (
            json!({"type": "null"}),
            &[
                "type: Unsupported value: \"null\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
                "type: Forbidden: type cannot be set to null, use nullable as an alternative",
            ],
        ),
        (
            json!({"x-kubernetes-preserve-unknown-fields": false}),
            &[
                "x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ],
        ),
    ]);
    let schema = json!({"type": "object", "$schema": "http://json-schema.org/schema#"});
    assert_eq!(
        shown(rules::check(&schema, "p", false).violations),
        [r#"p: Invalid value: "": OpenAPIV3Schema 'schema' is not supported"#]
    );
}

#[test]
fn maps_are_maps_and_structs_are_structs() {
    let fields = json!({"a": {"type": "string"}});
    check(&[
        (
            json!({"type": "object", "properties": fields, "additionalProperties": {"type": "string"}}),
            &[
                "additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        ),
        (
            json!({"type": "object", "properties": fields, "additionalProperties": true}),
            &[],
        ),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-map-type": "atomic"}),
            &["type: Required value: must be object if x-kubernetes-map-type is specified"],
        ),
        (
            json!({"type": "string", "x-kubernetes-map-type": "granular"}),
            &[
                "type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified",
            ],
        ),
        (
            json!({"type": "object", "x-kubernetes-map-type": "some"}),
            &[
                "x-kubernetes-map-type: Unsupported value: \"some\": supported values: \"atomic\", \"granular\"",
            ],
        ),
    ]);
}

#[test]
fn lists_say_what_tells_their_elements_apart() {
    let text = json!({"type": "string"});
    let sets =
        |items: Value| json!({"type": "array", "x-kubernetes-list-type": "set", "items": items});
    check(&[
        (
            json!({"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-list-type": "atomic"}),
            &["type: Required value: must be array if x-kubernetes-list-type is specified"],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "some", "items": text}),
            &[
                "x-kubernetes-list-type: Unsupported value: \"some\": supported values: \"atomic\", \"set\", \"map\"",
            ],
        ),
        (sets(text.clone()), &[]),
        (
            sets(json!({"type": "array", "items": text, "x-kubernetes-list-type": "atomic"})),
            &[],
        ),
        (
            sets(json!({"type": "array", "items": text, "x-kubernetes-list-type": "set"})),
            &[
                "items.x-kubernetes-list-type: Invalid value: \"set\": must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        ),
        (
            sets(json!({"type": "object", "x-kubernetes-map-type": "granular"})),
            &[
                "items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        ),
        (
            sets(json!({"type": "object", "x-kubernetes-map-type": "atomic"})),
            &[],
        ),
        (
            sets(json!({"type": "string", "nullable": true})),
            &["items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set"],
        ),
    ]);
}

#[test]
fn keys_of_lists_are_fields_that_are_there() {
    let map = |keys: Value, items: Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items});
    let item =
        |field: Value| json!({"type": "object", "required": ["a"], "properties": {"a": field}});
    let text = json!({"type": "string"});
    check(&[
        (map(json!(["a"]), item(text.clone())), &[]),
        (
            json!({"type": "array", "items": text, "x-kubernetes-list-map-keys": ["a"]}),
            &[
                "x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
            ],
        ),
        (
            json!({"type": "array", "items": text, "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["a"]}),
            &[
                "x-kubernetes-list-type: Invalid value: \"set\": must be map if x-kubernetes-list-map-keys is non-empty",
            ],
        ),
        (
            map(json!([]), item(text.clone())),
            &[
                "x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}),
            &[
                "items: Required value: must be specified",
                "items: Required value: must have a schema if x-kubernetes-list-type is map",
            ],
        ),
        (
            map(json!(["a"]), text.clone()),
            &[
                "items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map",
            ],
        ),
        (
            map(json!(["a", "b"]), item(text.clone())),
            &[
                "x-kubernetes-list-map-keys: Invalid value: [\"a\",\"b\"]: entries must all be names of item properties",
            ],
        ),
        (
            map(json!(["a", "a"]), item(text.clone())),
            &[
                "x-kubernetes-list-map-keys: Invalid value: [\"a\",\"a\"]: must not contain duplicate entries",
            ],
        ),
        (
            map(json!(["a"]), item(json!({"type": "object"}))),
            &[
                "items.properties[a].type: Invalid value: \"object\": must be a scalar type if parent array's x-kubernetes-list-type is map",
            ],
        ),
        (
            map(
                json!(["a"]),
                item(json!({"type": "string", "nullable": true})),
            ),
            &[
                "items.properties[a].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ],
        ),
        (
            map(
                json!(["b"]),
                json!({"type": "object", "nullable": true, "properties": {"b": {"type": "string", "default": "x"}}}),
            ),
            &["items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is map"],
        ),
    ]);
}

#[test]
fn rules_have_texts() {
    let ruled = |rule: Value| json!({"type": "string", "x-kubernetes-validations": [rule]});
    let at = "x-kubernetes-validations[0]";
    for (rule, expect) in [
        (json!({"rule": "true", "message": "a"}), vec![]),
        (
            json!({"rule": " "}),
            vec!["rule: Required value: rule is not specified"],
        ),
        (
            json!({"rule": "true", "message": " "}),
            vec!["message: Invalid value: \" \": message must be non-empty if specified"],
        ),
        (
            json!({"rule": "true", "message": "a\nb"}),
            vec!["message: Invalid value: \"a\\nb\": message must not contain line breaks"],
        ),
        (
            json!({"rule": "true\n|| false"}),
            vec!["message: Required value: message must be specified if rule contains line breaks"],
        ),
        (
            json!({"rule": "true", "messageExpression": " "}),
            vec![
                "messageExpression: Required value: messageExpression must be non-empty if specified",
            ],
        ),
        (
            json!({"rule": "true", "reason": "Odd"}),
            vec![
                "reason: Unsupported value: \"Odd\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
            ],
        ),
        (
            json!({"rule": "true", "fieldPath": " "}),
            vec!["fieldPath: Invalid value: \" \": fieldPath must be non-empty if specified"],
        ),
        (
            json!({"rule": "true", "fieldPath": ".a\n"}),
            vec!["fieldPath: Invalid value: \".a\\n\": fieldPath must not contain line breaks"],
        ),
    ] {
        let expect: Vec<String> = expect.iter().map(|line| format!("{at}.{line}")).collect();
        assert_eq!(told(&ruled(rule.clone())), expect, "{rule}");
    }
}

#[test]
fn what_every_object_has_is_no_place_for_defaults() {
    let meta = |fields: Value| json!({"type": "object", "properties": fields});
    let of = |schema: Value| shown(rules::check(&schema, "p", false).violations);
    assert_eq!(
        of(meta(json!({"kind": {"type": "string", "default": "A"}}))),
        ["p.properties[kind].default: Forbidden: must not be set in top-level kind"]
    );
    let name =
        json!({"type": "object", "properties": {"name": {"type": "string", "default": "a"}}});
    assert_eq!(
        of(meta(json!({"metadata": name}))),
        [
            "p.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata"
        ]
    );
    let labels =
        json!({"type": "object", "additionalProperties": {"type": "string", "default": "a"}});
    let within = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
        "metadata": {"type": "object", "properties": {"labels": labels}}}});
    assert_eq!(
        told(&within),
        [
            "properties[metadata].properties[labels].additionalProperties.default: Forbidden: must not be set inside additionalProperties applying to object metadata"
        ]
    );
    let nested = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
        "metadata": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
    assert_eq!(
        told(&nested),
        [
            "properties[metadata].x-kubernetes-embedded-resource: Forbidden: must not be used inside of resource meta"
        ]
    );
}
