//! What a schema may say.

use serde_json::{Value, json};

use super::shown;
use crate::rules;

/// What is told of a schema of the property `x`; its path is `p.properties[x]`.
fn told(schema: Value) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"x": schema}});
    shown(rules::check(&schema, "p", false).violations)
}

/// The same, without that path.
fn relative(schema: &Value) -> Vec<String> {
    let own = |line: String| line.replace("p.properties[x].", "");
    told(schema.clone()).into_iter().map(own).collect()
}

fn root(schema: Value, has_status: bool) -> Vec<String> {
    shown(rules::check(&schema, "p", has_status).violations)
}

#[test]
fn structural_schemas_are_taken() {
    for schema in [
        json!({"type": "string", "default": "a", "enum": ["a"]}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"x-kubernetes-int-or-string": true,
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "^a"}]}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-embedded-resource": true}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}}),
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"required": ["a"]}]}),
        json!({"type": "array", "items": {"type": "string"}, "default": ["a"]}),
    ] {
        assert_eq!(told(schema.clone()), Vec::<String>::new(), "{schema}");
    }
    let metadata = json!({"type": "object", "properties": {"metadata":
        {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}}});
    assert!(root(metadata, true).is_empty());
}

#[test]
fn what_is_not_structural_is_told() {
    for (schema, expect) in [
        (
            json!({}),
            "p.properties[x].type: Required value: must not be empty for specified object fields",
        ),
        (
            json!({"type": "array"}),
            "p.properties[x].items: Required value: must be specified",
        ),
        (
            json!({"type": "array", "items": {}}),
            "p.properties[x].items.type: Required value: must not be empty for specified array items",
        ),
        (
            json!({"type": "string", "anyOf": [{"type": "string"}]}),
            "p.properties[x].anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "string", "not": {"default": "a"}}),
            "p.properties[x].not.default: Forbidden: must be undefined to be structural",
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
            "p.properties[x].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ),
        (
            json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            "p.properties[x].type: Required value: must be object if x-kubernetes-embedded-resource is true",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            "p.properties[x].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ),
        (
            json!({"type": "string", "default": 1}),
            r#"p.properties[x].default: Invalid value: "integer":  in body must be of type string: "integer""#,
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}}),
            r#"p.properties[x].default: Invalid value: {"b":1}: must not have unknown fields"#,
        ),
        (
            json!({"type": "frob"}),
            r#"p.properties[x].type: Unsupported value: "frob": supported values: "array", "boolean", "integer", "number", "object", "string""#,
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
            "p.properties[x].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            "p.properties[x].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            json!({"type": "string", "$ref": "#/a"}),
            "p.properties[x].$ref: Forbidden: $ref is not supported",
        ),
        (
            json!({"type": "string", "x-kubernetes-list-type": "set"}),
            r#"p.properties[x].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#,
        ),
        (
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}),
            "p.properties[x].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
            "p.properties[x].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                "items": {"type": "object", "properties": {"n": {"type": "string"}}}}),
            "p.properties[x].items.properties[n].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ),
        (
            json!({"type": "object", "x-kubernetes-map-type": "some"}),
            r#"p.properties[x].x-kubernetes-map-type: Unsupported value: "some": supported values: "atomic", "granular""#,
        ),
        (
            json!({"type": "string", "x-kubernetes-validations": [{"rule": " "}]}),
            "p.properties[x].x-kubernetes-validations[0].rule: Required value: rule is not specified",
        ),
    ] {
        assert_eq!(told(schema.clone()), [expect], "{schema}");
    }
    let pattern = told(json!({"type": "string", "pattern": "["}));
    assert!(
        pattern[0].contains("must be a valid regular expression, but isn't"),
        "{pattern:?}"
    );
}

#[test]
fn the_root_is_an_object_of_its_own() {
    assert_eq!(
        root(json!({}), false),
        ["p.type: Required value: must not be empty at the root"]
    );
    assert_eq!(
        root(json!({"type": "object", "nullable": true}), false),
        ["p.nullable: Forbidden: nullable cannot be true at the root"]
    );
    let metadata = json!({"type": "object", "properties": {"metadata": {"type": "object",
        "properties": {"labels": {"type": "object"}}}}});
    assert_eq!(
        root(metadata, false),
        [
            "p.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
        ]
    );
    let alternatives = json!({"type": "object", "anyOf": [{"required": ["spec"]}]});
    assert!(root(alternatives.clone(), false).is_empty());
    assert!(root(alternatives, true)[0].contains("fields are allowed at the root of the schema"));
    let incomplete = json!({"type": "object", "allOf": [{"properties": {"a": {"maximum": 1}}}]});
    assert_eq!(
        root(incomplete, false),
        ["p.properties[a]: Required value: because it is defined in p.allOf[0].properties[a]"]
    );
}

#[test]
fn fields_are_found_by_their_paths() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "colour": {"type": "string"}, "list": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}}}}}});
    let found = |path: &str, brackets| {
        let found = rules::field_at(&schema, path, brackets);
        found.map(|field| format!("{}: {}", field.shown, field.schema["type"]))
    };
    let not = |why: &str| Err(why.to_owned());
    for (path, expect) in [
        (".spec.colour", Ok("spec.colour: \"string\"".to_owned())),
        (
            ".spec.labels.a",
            Ok("spec.labels[a]: \"string\"".to_owned()),
        ),
        ("spec", not("expected [ or . but got: spec")),
        (".spec.size", not("does not refer to a valid field")),
        (".spec.colour.x", not("does not refer to a valid field")),
        (".spec.", not("unexpected end of JSON path")),
        (".spec.list[0]", not("array notation is not allowed")),
    ] {
        assert_eq!(found(path, rules::Brackets::Forbidden), expect, "{path}");
    }
    for (path, expect) in [
        (
            r".spec.labels['a.b\'c']",
            Ok("spec.labels[a.b'c]: \"string\"".to_owned()),
        ),
        (
            ".spec.list[0]",
            not("expected single quoted string but got 0"),
        ),
        (".spec['colour'", not("unexpected end of JSON path")),
        (".spec['colour'.", not("expected ] but got .")),
        (
            r".spec['\x']",
            not(r"invalid string literal: invalid escape char \x"),
        ),
    ] {
        assert_eq!(found(path, rules::Brackets::Allowed), expect, "{path}");
    }
}

#[test]
fn what_nobody_checks_is_found() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "format": "postcode"}, "b": {"type": "integer", "format": "int32"},
        "c": {"type": "array", "items": {"type": "string", "format": "date-time"}}}});
    let found: Vec<String> = rules::unknown_formats(&schema).into_iter().collect();
    assert_eq!(found, ["postcode"]);
    assert!(!rules::has_validations(&schema));
    let ruled = json!({"type": "object", "properties": {"a": {"type": "string",
        "x-kubernetes-validations": [{"rule": "self != ''"}]}}});
    assert!(rules::has_validations(&ruled));
}

#[test]
fn what_is_nested_without_end_is_refused() {
    let mut schema = json!({"type": "string"});
    for _ in 0..70 {
        schema = json!({"type": "array", "items": schema});
    }
    assert_eq!(
        root(schema, false),
        ["p: Forbidden: must not be nested deeper than 64 levels"]
    );
}

#[test]
fn alternatives_only_say_what_values_are() {
    let alternatives = |one: Value| json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [one]});
    for (one, expect) in [
        (
            json!({"properties": {"a": {"maxLength": 3}}, "required": ["a"]}),
            vec![],
        ),
        (
            json!({"additionalProperties": {"maxLength": 3}}),
            vec!["additionalProperties: Forbidden: must be undefined to be structural"],
        ),
        (
            json!({"title": "a", "description": "b", "nullable": true}),
            vec![
                "description: Forbidden: must be empty to be structural",
                "nullable: Forbidden: must be false to be structural",
                "title: Forbidden: must be empty to be structural",
            ],
        ),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            vec!["x-kubernetes-preserve-unknown-fields: Forbidden: must be false to be structural"],
        ),
        (
            json!({"x-kubernetes-validations": [{"rule": "true"}]}),
            vec!["x-kubernetes-validations: Forbidden: must be empty to be structural"],
        ),
        (
            json!({"properties": {"metadata": {"required": ["name"]}}}),
            vec!["properties[metadata]: Forbidden: must not be specified in a nested context"],
        ),
    ] {
        let found = relative(&alternatives(one.clone()));
        let expect: Vec<String> = expect
            .iter()
            .map(|line| format!("anyOf[0].{line}"))
            .collect();
        let nested: Vec<&String> = found
            .iter()
            .filter(|line| line.starts_with("anyOf"))
            .collect();
        assert_eq!(nested, expect.iter().collect::<Vec<_>>(), "{one}");
    }
}

#[test]
fn the_deeper_of_two_paths_is_told_first() {
    // By their texts, in which a dot is before a colon.
    let schema = json!({"items": {"$comment": "no type"}, "properties": {"a": {}}});
    assert_eq!(
        relative(&schema),
        [
            "items.type: Required value: must not be empty for specified array items",
            "properties[a].type: Required value: must not be empty for specified object fields",
            "type: Required value: must not be empty for specified object fields",
        ]
    );
    let metadata =
        json!({"type": "object", "properties": {"metadata": {"type": "string", "maxLength": 1}}});
    assert_eq!(
        shown(rules::check(&metadata, "p", false).violations),
        [
            "p.properties[metadata].type: Invalid value: \"string\": must be object",
            "p.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ]
    );
}

#[test]
fn rules_are_compiled_beside_what_else_is_wrong() {
    let odd = json!({"type": "string", "uniqueItems": true});
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "object", "properties": {"odd": odd}}, "ab": {"type": "string"}}});
    let checked = rules::check(&schema, "p", false);
    assert_eq!(checked.violations.iter().count(), 1);
    for (path, is_sound) in [
        ("p", false),
        ("p.properties[a]", false),
        ("p.properties[a].properties[odd]", false),
        ("p.properties[ab]", true),
    ] {
        assert_eq!(checked.is_sound(path), is_sound, "{path}");
    }
    let untyped = json!({"type": "object", "properties": {"a": {}}});
    assert!(!rules::check(&untyped, "p", false).is_sound("p.properties[b]"));
}

#[test]
fn what_would_be_too_large_in_every_object_or_process_is_refused() {
    let many = |count: usize, one: Value| {
        let all = (0..count).map(|at| (format!("p{at}"), one.clone()));
        root(
            json!({"type": "object", "properties": Value::Object(all.collect())}),
            false,
        )
    };
    let text = json!({"type": "string", "default": "x".repeat(1000)});
    assert_eq!(many(60, text.clone()), Vec::<String>::new());
    assert_eq!(
        many(70, text),
        ["p: Forbidden: all defaults together take 70140 bytes; they may take 65536"]
    );
    let pattern = json!({"type": "string", "pattern": "\\pL{60}"});
    assert_eq!(many(8, pattern.clone()), Vec::<String>::new());
    let told = many(9, pattern);
    assert_eq!(told.len(), 1);
    assert!(
        told[0].ends_with(
            "all patterns together take more than 33554432 bytes when they are compiled"
        ),
        "{told:?}"
    );
}
