//! Values against schemas.

use serde_json::{Value, json};

use super::shown;
use crate::Schema;

/// A schema of `spec.x`, a value of it, and what is told.
fn told(schema: Value, value: Value) -> Vec<String> {
    let schema = json!({"type": "object", "properties":
        {"spec": {"type": "object", "properties": {"x": schema}}}});
    let read = Schema::read(&schema).unwrap();
    shown(read.validate(&json!({"spec": {"x": value}})))
}

#[test]
fn values_are_told_as_upstream_tells_them() {
    for (schema, value, expect) in [
        (
            json!({"type": "integer"}),
            json!("string"),
            &[
                r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#,
            ][..],
        ),
        (json!({"type": "integer"}), json!(1.0), &[]),
        (
            json!({"type": "integer"}),
            json!(1.5),
            &[
                r#"spec.x: Invalid value: "number": spec.x in body must be of type integer: "number""#,
            ],
        ),
        (json!({"type": "number"}), json!(1), &[]),
        (
            json!({"type": "string"}),
            json!(null),
            &[r#"spec.x: Invalid value: "null": spec.x in body must be of type string: "null""#],
        ),
        (
            json!({"type": "string", "nullable": true}),
            json!(null),
            &[],
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!("80%"),
            &[],
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            &[
                r#"spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#,
            ],
        ),
        (
            json!({"type": "integer", "minimum": 1, "maximum": 10}),
            json!(20),
            &["spec.x: Invalid value: 20: spec.x in body should be less than or equal to 10"],
        ),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            &["spec.x: Invalid value: 1: spec.x in body should be greater than 1"],
        ),
        (
            json!({"type": "number", "maximum": 0.5}),
            json!(0.75),
            &["spec.x: Invalid value: 0.75: spec.x in body should be less than or equal to 0.5"],
        ),
        (
            json!({"type": "integer", "multipleOf": 5}),
            json!(7),
            &["spec.x: Invalid value: 7: spec.x in body should be a multiple of 5"],
        ),
        (
            json!({"type": "number", "multipleOf": 0.1}),
            json!(0.3),
            &[],
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("\u{e9}\u{e9}\u{e9}"),
            &["spec.x: Too long: at most 2"],
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("\u{e9}\u{e9}"),
            &[],
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            &[r#"spec.x: Invalid value: "a": spec.x in body should be at least 2 chars long"#],
        ),
        (
            json!({"type": "string", "pattern": "^b"}),
            json!("a"),
            &[r#"spec.x: Invalid value: "a": spec.x in body should match '^b'"#],
        ),
        (
            json!({"type": "string", "format": "ipv4"}),
            json!("a"),
            &[r#"spec.x: Invalid value: "a": spec.x in body must be of type ipv4: "a""#],
        ),
        (
            json!({"type": "string", "format": "unheard-of"}),
            json!("a"),
            &[],
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            &[r#"spec.x: Unsupported value: "c": supported values: "a", "b""#],
        ),
        (json!({"type": "integer", "enum": [1, 2]}), json!(2.0), &[]),
        (
            json!({"type": "array", "minItems": 1, "items": {"type": "string"}}),
            json!([]),
            &["spec.x: Invalid value: 0: spec.x in body should have at least 1 items"],
        ),
        (
            json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
            json!(["a", 1]),
            &[
                r#"spec.x[1]: Invalid value: "integer": spec.x[1] in body must be of type string: "integer""#,
                "spec.x: Too many: 2: must have at most 1 items",
            ],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2}),
            json!({"a": 1}),
            &[
                r#"spec.x.a: Invalid value: "integer": spec.x.a in body must be of type string: "integer""#,
            ],
        ),
        (
            json!({"type": "object", "minProperties": 2}),
            json!({"a": 1}),
            &["spec.x: Invalid value: 1: spec.x in body should have at least 2 properties"],
        ),
        (
            json!({"type": "object", "required": ["b", "a"], "properties": {"c": {"type": "string"}}}),
            json!({"c": 1}),
            &[
                r#"spec.x.c: Invalid value: "integer": spec.x.c in body must be of type string: "integer""#,
                "spec.x.b: Required value",
                "spec.x.a: Required value",
            ],
        ),
    ] {
        assert_eq!(
            told(schema.clone(), value.clone()),
            expect,
            "{schema} {value}"
        );
    }
}

#[test]
fn numbers_are_what_their_format_has() {
    let wrong = |what: &str, kind: &str, format: &str| {
        let detail = format!("{what} value must be of type {kind} with format {format} in spec.x");
        format!("<nil>: Invalid value: \"\": {detail}")
    };
    for (kind, format, value, is_one) in [
        ("integer", "int32", json!(2_147_483_647), true),
        ("integer", "int32", json!(2_147_483_648_i64), false),
        ("integer", "int32", json!(-2_147_483_649_i64), false),
        ("integer", "int32", json!(3e9), false),
        ("integer", "int64", json!(i64::MAX), true),
        ("integer", "int64", json!(u64::MAX), false),
        ("integer", "", json!(3_000_000_000_i64), true),
        ("number", "float", json!(3.4e38), true),
        ("number", "float", json!(3.5e38), false),
        ("number", "double", json!(3.5e38), true),
        ("number", "int32", json!(3_000_000_000_i64), true),
    ] {
        let mut schema = json!({"type": kind});
        if !format.is_empty() {
            schema["format"] = format.into();
        }
        let expect = match is_one {
            true => Vec::new(),
            false => vec![wrong("Checked", kind, format)],
        };
        assert_eq!(told(schema, value.clone()), expect, "{format} {value}");
    }
    let bounded = json!({"type": "integer", "format": "int32", "minimum": -3e9, "maximum": 3e9});
    let bounds = ["Minimum boundary", "Maximum boundary"];
    let expect = bounds.map(|what| wrong(what, "integer", "int32"));
    assert_eq!(told(bounded, json!(1)), expect);
}

#[test]
fn junctors_tell_the_best_alternative() {
    let with =
        |junctor: &str, alternatives: Value| json!({"type": "string", junctor: alternatives});
    for (schema, value, expect) in [
        (
            with("anyOf", json!([{"maxLength": 1}, {"pattern": "^a"}])),
            "abc",
            &[][..],
        ),
        (
            with("anyOf", json!([{"maxLength": 1}, {"pattern": "^a"}])),
            "bcd",
            &[
                r#"<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)"#,
                "spec.x: Too long: at most 1",
            ],
        ),
        (
            with("oneOf", json!([{"minLength": 1}, {"minLength": 2}])),
            "bcd",
            &[
                r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
            ],
        ),
        (
            with("oneOf", json!([{"maxLength": 1}, {"maxLength": 2}])),
            "bcd",
            &[
                r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid"#,
                "spec.x: Too long: at most 1",
            ],
        ),
        (
            with("allOf", json!([{"maxLength": 1}, {"minLength": 2}])),
            "bcd",
            &[
                "spec.x: Too long: at most 1",
                r#"<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf)"#,
            ],
        ),
        (
            json!({"type": "string", "not": {"pattern": "^b"}}),
            "bcd",
            &[r#"<nil>: Invalid value: "": "spec.x" must not validate the schema (not)"#],
        ),
    ] {
        assert_eq!(
            told(schema.clone(), value.into()),
            expect,
            "{schema} {value}"
        );
    }
}

#[test]
fn of_several_alternatives_the_one_with_most_that_fits_is_told() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "anyOf": [
        {"required": ["c"]},
        {"properties": {"a": {"maximum": 1}, "b": {"minLength": 1}}},
    ]});
    let found = told(schema, json!({"a": 2, "b": "x"}));
    let expect = "spec.x.a: Invalid value: 2: spec.x.a in body should be less than or equal to 1";
    assert_eq!(found[1..], [expect]);
}

#[test]
fn nothing_is_in_a_set_or_a_map_twice() {
    let lists = |schema: Value, value: Value| {
        let schema = json!({"type": "object", "properties": {"x": schema}});
        shown(
            Schema::read(&schema)
                .unwrap()
                .validate_lists(&json!({"x": value})),
        )
    };
    let set =
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let expect = [r#"x[1]: Duplicate value: "a""#];
    assert_eq!(lists(set.clone(), json!(["a", "a", "a", "b"])), expect);
    assert!(lists(set, json!(["a", "b"])).is_empty());
    let map = |keys: Value| {
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
            "items": {"type": "object"}})
    };
    assert_eq!(
        lists(
            map(json!(["n"])),
            json!([{"n": 1, "v": 1}, {"n": 1, "v": 2}, {"n": 2}])
        ),
        [r#"x[1]: Duplicate value: {"n":1}"#]
    );
    assert_eq!(
        lists(map(json!(["n"])), json!([{}, {}])),
        ["x[1]: Duplicate value: {}"]
    );
    assert!(
        lists(
            map(json!(["n", "p"])),
            json!([{"n": 1, "p": 1}, {"n": 1, "p": 2}])
        )
        .is_empty()
    );
    assert_eq!(
        lists(map(json!(["n"])), json!(["a"])),
        [r#"x[0]: Invalid value: "a": must be an object for an array of list-type map"#]
    );
}

#[test]
fn much_that_is_wrong_is_counted() {
    let schema = json!({"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}});
    let many: Vec<u32> = (0..1000).collect();
    let found = Schema::read(&schema).unwrap().validate(&json!({"x": many}));
    assert_eq!((found.iter().count(), found.more()), (100, 900));
}

#[test]
fn a_schema_is_not_read_without_end() {
    let mut schema = json!({"type": "string"});
    for _ in 0..70 {
        schema = json!({"type": "array", "items": schema});
    }
    assert!(Schema::read(&schema).is_err());
}

#[test]
fn objects_within_say_what_they_are() {
    let schema = json!({"type": "object", "properties": {"x": {"type": "object",
        "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
    let read = Schema::read(&schema).unwrap();
    for (value, expect) in [
        (json!({"apiVersion": "v1", "kind": "Pod"}), &[][..]),
        (
            json!({"apiVersion": "a/b/c", "kind": ""}),
            &[
                r#"x.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
                "x.kind: Required value",
            ],
        ),
        (
            json!({"kind": 1}),
            &[
                "x.apiVersion: Required value",
                "x.kind: Invalid value: 1: must be a string",
            ],
        ),
    ] {
        assert_eq!(
            shown(read.validate_embedded(&json!({"x": value}))),
            expect,
            "{value}"
        );
    }
}

#[test]
fn what_is_told_is_bounded_in_bytes() {
    let choices: Vec<String> = (0..20_000)
        .map(|at| format!("choice-number-{at:05}"))
        .collect();
    let items = json!({"type": "string", "enum": choices.clone()});
    let schema = Schema::read(&json!({"type": "array", "items": items})).unwrap();
    let found = schema.validate(&json!(vec!["other"; 50]));
    assert_eq!((found.iter().count(), found.more()), (3, 47));
    // They are not gone through one by one: a list of so many would take minutes.
    assert!(schema.validate(&json!(choices)).is_empty());
    assert!(!schema.validate(&json!([1])).is_empty());
}

#[test]
fn alternatives_multiply_the_labour() {
    let one = json!({"type": "integer", "anyOf": [{"minimum": 1}, {"allOf": [{"maximum": 2}]}]});
    let schema = Schema::read(&json!({"type": "array", "items": one})).unwrap();
    assert_eq!(schema.labour(&json!([1, 2, 3])), 3 * 4);
    let plain = Schema::read(&json!({"type": "array", "items": {"type": "integer"}})).unwrap();
    assert_eq!(plain.labour(&json!([1, 2, 3])), 0);
}
