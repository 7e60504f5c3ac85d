//! Rules of definitions, and objects against rules. After upstream's `validation_test.go` of CEL,
//! retold.

use serde_json::{Value, json};

use super::*;

fn spec(schema: Value) -> Value {
    json!({"type": "object", "properties": {"spec": schema}})
}

fn ruled(mut schema: Value, rule: Value) -> Value {
    let rule = if rule.is_string() {
        json!({"rule": rule})
    } else {
        rule
    };
    schema["x-kubernetes-validations"] = json!([rule]);
    schema
}

fn sizes() -> Value {
    json!({"type": "object", "properties": {
        "size": {"type": "integer"}, "least": {"type": "integer"},
        "name": {"type": "string", "maxLength": 20},
        "labels": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string", "maxLength": 9}}}})
}

fn refused(schema: &Value) -> String {
    let errors = definition_errors(schema, "p", |_| true);
    if errors.is_empty() {
        return String::new();
    }
    errors.to_string()
}

fn read(schema: &Value) -> Option<Rules> {
    Rules::read(schema, &RuleMetrics::default())
}

fn broken(schema: &Value, new: &Value, old: Option<&Value>) -> String {
    assert_eq!(refused(schema), "");
    let errors = read(schema).unwrap().check(new, old);
    if errors.is_empty() {
        return String::new();
    }
    errors.to_string()
}

#[test]
fn definitions_say_what_can_be_evaluated() {
    let at = "p.properties[spec].x-kubernetes-validations[0]";
    let shown = |rule: &str, message: &str| {
        format!(
            r#"{{"Rule":"{rule}","Message":"","MessageExpression":"{message}","Reason":null,"FieldPath":"","OptionalOldSelf":null}}"#
        )
    };
    for (rule, expect) in [
        (json!("self.size >= self.least"), String::new()),
        (
            json!("self.size"),
            format!(
                "{at}.rule: Invalid value: {}: cel expression must evaluate to a bool",
                shown("self.size", "")
            ),
        ),
        (
            json!("self.sise > 1"),
            format!(
                "{at}.rule: Invalid value: {}: compilation failed: ERROR: <input>:1:5: undefined field 'sise'\n | self.sise > 1\n | ....^",
                shown("self.sise > 1", "")
            ),
        ),
        (
            json!({"rule": "true", "messageExpression": "self.size"}),
            format!(
                "{at}.messageExpression: Invalid value: {}: messageExpression must evaluate to a string",
                shown("true", "self.size")
            ),
        ),
        (
            json!({"rule": "true", "messageExpression": "'a"}),
            format!(
                "{at}.messageExpression: Invalid value: {}: messageExpression compilation failed: ERROR: <input>:1:1: Syntax error: token recognition error at: ''a'\n | 'a\n | ^",
                shown("true", "'a")
            ),
        ),
        (
            json!({"rule": "self.size > 0", "optionalOldSelf": true}),
            format!(
                "{at}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
            ),
        ),
        (
            json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true}),
            String::new(),
        ),
        (json!({"rule": "true", "fieldPath": ".size"}), String::new()),
        (
            json!({"rule": "true", "fieldPath": ".labels['a.b']"}),
            String::new(),
        ),
        (
            json!({"rule": "true", "fieldPath": ".sise"}),
            format!("{at}.fieldPath: Invalid value: \".sise\": fieldPath must be a valid path"),
        ),
        (
            json!({"rule": "true", "fieldPath": "size"}),
            format!("{at}.fieldPath: Invalid value: \"size\": fieldPath must be a valid path"),
        ),
    ] {
        let found = refused(&spec(ruled(sizes(), rule.clone())));
        assert!(
            found == expect || (rule["messageExpression"] == "'a" && found.starts_with(&expect)),
            "{rule}\n{found}\n{expect}"
        );
    }
}

#[test]
fn what_may_cost_too_much_is_refused() {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let rule = "self.all(x, self.all(y, x == y))";
    let factor = "exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    let at = "p.properties[spec].x-kubernetes-validations[0].rule";
    assert_eq!(
        refused(&spec(ruled(texts, json!(rule)))),
        format!(
            "[{at}: Forbidden: estimated rule cost {factor}, {at}: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema, p: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema {factor}]"
        )
    );
    let bounded =
        json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}});
    assert_eq!(refused(&spec(ruled(bounded, json!(rule)))), "");
    // A rule on elements costs as often as there are elements.
    let each = ruled(json!({"type": "string"}), json!("self.contains('abc')"));
    let list = |most: Value| spec(json!({"type": "array", "maxItems": most, "items": each}));
    assert_eq!(refused(&list(json!(1))), "");
    let found = refused(&list(json!(100)));
    assert!(found.contains("p.properties[spec].items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of"), "{found}");
}

#[test]
fn rules_about_changes_stand_where_elements_are_known() {
    let item = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "maxLength": 9}}});
    let mut list = json!({"type": "array", "maxItems": 9, "items": ruled(item, json!("self.name == oldSelf.name"))});
    assert_eq!(
        refused(&spec(list.clone())),
        "p.properties[spec].items.x-kubernetes-validations[0].rule: Invalid value: \"self.name == oldSelf.name\": oldSelf cannot be used on the uncorrelatable portion of the schema within p.properties[spec]"
    );
    list["x-kubernetes-list-type"] = json!("map");
    list["x-kubernetes-list-map-keys"] = json!(["name"]);
    assert_eq!(refused(&spec(list)), "");
}

#[test]
fn defaults_keep_rules() {
    let mut schema = ruled(sizes(), json!("self.size > 1"));
    schema["default"] = json!({"size": 1});
    assert_eq!(
        refused(&spec(schema.clone())),
        "p.properties[spec].default: Invalid value: failed rule: self.size > 1"
    );
    schema["default"] = json!({"size": 2});
    assert_eq!(refused(&spec(schema)), "");
    // A default is given to what has no past, too.
    let since = json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true});
    let mut schema = ruled(sizes(), since);
    schema["default"] = json!({"size": 2});
    assert_eq!(
        refused(&spec(schema)),
        "p.properties[spec].default: Invalid value: failed rule: oldSelf.hasValue()"
    );
}

#[test]
fn objects_are_told_what_they_break() {
    let object = json!({"spec": {"size": 1, "least": 2, "labels": {"a": "b"}}});
    for (rule, expect) in [
        (json!("self.size <= self.least"), ""),
        (
            json!(" self.size >= self.least "),
            "spec: Invalid value: failed rule: self.size >= self.least",
        ),
        (
            json!({"rule": "self.size >= self.least", "message": "too small ", "fieldPath": ".size"}),
            "spec.size: Invalid value: too small",
        ),
        (
            json!({"rule": "false", "message": "no", "messageExpression": "'label ' + self.labels['a']"}),
            "spec: Invalid value: label b",
        ),
        (
            json!({"rule": "false", "message": "no", "messageExpression": "' '"}),
            "spec: Invalid value: no",
        ),
        (
            json!({"rule": "false", "messageExpression": "self.name"}),
            "spec: Invalid value: failed rule: false",
        ),
        (
            json!({"rule": "false", "message": "no", "reason": "FieldValueForbidden"}),
            "spec: Forbidden: no",
        ),
        (
            json!({"rule": "false", "message": "no", "reason": "FieldValueRequired", "fieldPath": ".labels['x']"}),
            "spec.labels[x]: Required value: no",
        ),
        (
            json!({"rule": "false", "reason": "FieldValueDuplicate"}),
            "spec: Duplicate value",
        ),
        (
            json!("self.name == 'a'"),
            "spec: Invalid value: \"object\": no such key: name evaluating rule: self.name == 'a'",
        ),
        // About changes: not asked of what is new, unless it says so.
        (json!("self == oldSelf"), ""),
        (
            json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true}),
            "spec: Invalid value: failed rule: oldSelf.hasValue()",
        ),
    ] {
        let schema = spec(ruled(sizes(), rule.clone()));
        assert_eq!(broken(&schema, &object, None), expect, "{rule}");
    }
    let root = ruled(spec(sizes()), json!("self.metadata.name.startsWith('a')"));
    let named = json!({"metadata": {"name": "b"}, "spec": {}});
    assert_eq!(
        broken(&root, &named, None),
        "<nil>: Invalid value: failed rule: self.metadata.name.startsWith('a')"
    );
}

#[test]
fn elements_and_entries_have_paths() {
    let small = ruled(json!({"type": "integer"}), json!("self < 2"));
    let schema = spec(json!({"type": "object", "properties": {
        "list": {"type": "array", "maxItems": 9, "items": small},
        "map": {"type": "object", "maxProperties": 9, "additionalProperties": small}}}));
    assert_eq!(
        broken(
            &schema,
            &json!({"spec": {"list": [1, 2], "map": {"a": 3}}}),
            None
        ),
        "[spec.list[1]: Invalid value: 2: failed rule: self < 2, spec.map[a]: Invalid value: 3: failed rule: self < 2]"
    );
}

#[test]
fn what_is_as_it_was_is_not_told() {
    let small = ruled(json!({"type": "integer"}), json!("self < 2"));
    let of = |list: Value| {
        let mut array = json!({"type": "array", "maxItems": 9, "items": small});
        if let Some(list) = list.as_str() {
            array["x-kubernetes-list-type"] = json!(list);
        }
        spec(json!({"type": "object", "properties": {"list": array, "x": {"type": "string"}}}))
    };
    let with = |list: Value, x: &str| json!({"spec": {"list": list, "x": x}});
    let second = "spec.list[1]: Invalid value: 5: failed rule: self < 2";
    let told = read(&of(Value::Null)).unwrap();
    let (new, old) = (with(json!([1, 5]), "a"), with(json!([1, 5]), "b"));
    let told = told.check(&new, Some(&old));
    let told: Vec<String> = told.tolerated().map(ToString::to_string).collect();
    assert_eq!(told, [second], "its writer is warned");
    for (kind, new, old, expect) in [
        (json!("atomic"), json!([1, 5]), json!([1, 5]), ""),
        (json!("atomic"), json!([1, 5]), json!([0, 5]), second),
        // Without a type a list is one value, too.
        (Value::Null, json!([1, 5]), json!([1, 5]), ""),
        (Value::Null, json!([1, 5]), json!([0, 5]), second),
    ] {
        let found = broken(&of(kind.clone()), &with(new, "a"), Some(&with(old, "b")));
        assert_eq!(found, expect, "{kind}");
    }
    // What a change breaks is told although the value itself is as it was.
    let schema = spec(ruled(sizes(), json!("oldSelf.size == 1")));
    let object = json!({"spec": {"size": 2}});
    assert_eq!(
        broken(&schema, &object, Some(&object)),
        "spec: Invalid value: failed rule: oldSelf.size == 1"
    );
}

#[test]
fn elements_with_keys_know_what_they_were() {
    let item = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "maxLength": 9}, "size": {"type": "integer"}}});
    let schema = spec(
        json!({"type": "array", "maxItems": 9, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": ruled(item, json!("self.size >= oldSelf.size"))}),
    );
    let old = json!({"spec": [{"name": "a", "size": 5}, {"name": "b", "size": 1}]});
    let new = json!({"spec": [{"name": "b", "size": 2}, {"name": "c", "size": 0}, {"name": "a", "size": 4}]});
    assert_eq!(
        broken(&schema, &new, Some(&old)),
        "spec[2]: Invalid value: failed rule: self.size >= oldSelf.size"
    );
}

#[test]
fn evaluation_ends_with_its_budget() {
    // Within its limits by the schema, which an object may not keep: bounds are told apart.
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let rule = |rule: &str| json!({"rule": rule});
    let mut schema = spec(list);
    schema["properties"]["spec"]["x-kubernetes-validations"] =
        json!([rule("self.all(x, self.all(y, y >= 0))"), rule("false")]);
    let rules = read(&schema).unwrap();
    let object = json!({"spec": vec![1; 2000]});
    assert_eq!(
        rules.check(&object, None).to_string(),
        "spec: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.all(x, self.all(y, y >= 0))"
    );
    let many: Vec<Value> = (0..40)
        .map(|_| rule("self.all(x, self.all(y, y >= 0))"))
        .collect();
    schema["properties"]["spec"]["x-kubernetes-validations"] = json!(many);
    let rules = read(&schema).unwrap();
    assert_eq!(
        rules
            .check(&json!({"spec": vec![1; 350]}), None)
            .to_string(),
        "spec: Invalid value: \"array\": validation failed due to running out of cost budget, no further validation rules will be run"
    );
}

#[test]
fn what_expressions_cannot_name_has_rules_too() {
    let inner = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
    let schema =
        json!({"type": "object", "properties": {"a b": ruled(inner, json!("self.x > 0"))}});
    assert_eq!(
        broken(&schema, &json!({"a b": {"x": 0}}), None),
        "a b: Invalid value: failed rule: self.x > 0"
    );
    let either = json!({"x-kubernetes-int-or-string": true});
    let schema = spec(ruled(either, json!("type(self) == string || self > 1")));
    assert_eq!(broken(&schema, &json!({"spec": "a"}), None), "");
    assert_eq!(
        broken(&schema, &json!({"spec": 1}), None),
        "spec: Invalid value: 1: failed rule: type(self) == string || self > 1"
    );
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    let schema = spec(ruled(embedded, json!("self.kind == 'Pod'")));
    assert_eq!(
        broken(
            &schema,
            &json!({"spec": {"kind": "Node", "apiVersion": "v1"}}),
            None
        ),
        "spec: Invalid value: failed rule: self.kind == 'Pod'"
    );
    let any = ruled(
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!("true"),
    );
    assert_eq!(
        refused(&spec(any)),
        "p.properties[spec].x-kubernetes-validations: Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations"
    );
}

#[test]
fn patterns_of_all_rules_have_a_size() {
    let rules: Vec<Value> = (0..200)
        .map(|at| json!({"rule": format!("self.name.matches('\\\\pL{{15}}{at}')")}))
        .collect();
    let with = |count: usize| {
        let mut schema = sizes();
        schema["x-kubernetes-validations"] = rules[..count].into();
        refused(&spec(schema))
    };
    assert_eq!(with(10), "");
    assert!(
        with(200)
            .contains("regular expressions of all rules together take more than 33554432 bytes")
    );
}
