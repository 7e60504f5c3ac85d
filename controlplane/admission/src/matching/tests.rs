//! Rules and conditions, as upstream's tests of them have it.

use std::borrow::Cow;

use coracle_cel::{admission::Inputs, schema::DeclType, value::Value as CelValue};
use serde_json::json;

use super::*;

fn about<'a>(operation: &'a str, resource: &'a str, subresource: &'a str) -> About<'a> {
    About {
        operation,
        group: "apps",
        version: "v1",
        resource,
        subresource,
        is_namespaced: true,
        name: "a",
    }
}

#[test]
fn rules_match_what_they_name() {
    let matches = |changes: &[(&str, serde_json::Value)], about: About<'_>| {
        let mut rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": ["*/*"]});
        for (field, value) in changes {
            rule[*field] = value.clone();
        }
        Rule::read(&rule).matches(&about)
    };
    let create = about("CREATE", "deployments", "");
    let scale = about("UPDATE", "deployments", "scale");
    for (field, value, of_create, of_scale) in [
        ("operations", json!(["*"]), true, true),
        ("operations", json!(["CREATE", "DELETE"]), true, false),
        ("operations", json!([]), false, false),
        ("apiGroups", json!(["", "apps"]), true, true),
        ("apiGroups", json!([""]), false, false),
        ("apiVersions", json!(["v2"]), false, false),
        ("resources", json!(["*"]), true, false),
        ("resources", json!(["deployments"]), true, false),
        ("resources", json!(["deployments/*"]), true, true),
        ("resources", json!(["*/scale"]), false, true),
        ("resources", json!(["deployments/scale"]), false, true),
        ("resources", json!(["pods", "pods/*"]), false, false),
        ("scope", json!("*"), true, true),
        ("scope", json!("Namespaced"), true, true),
        ("scope", json!("Cluster"), false, false),
        ("scope", json!("else"), false, false),
        ("resourceNames", json!(["a", "b"]), true, true),
        ("resourceNames", json!(["b"]), false, false),
    ] {
        let changes = [(field, value.clone())];
        let found = (matches(&changes, create), matches(&changes, scale));
        assert_eq!(found, (of_create, of_scale), "{field}: {value}");
    }
    let cluster = About {
        is_namespaced: false,
        ..create
    };
    assert!(matches(&[("scope", json!("Cluster"))], cluster));
    assert!(!matches(&[("scope", json!("Namespaced"))], cluster));
}

/// What comes of these expressions over an object, none of which asks for anything else.
fn judge(texts: &[&str]) -> (Verdict, usize) {
    let conditions: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(at, text)| json!({"name": format!("c{at}"), "expression": text}))
        .collect();
    let conditions = MatchConditions::read(&json!(conditions), false);
    let object = json!({"a": 1, "long": vec!["x"; 3000]});
    let object = DeclType::any().value(&object).expect("anything is");
    let null = || CelValue::Null;
    let inputs = Inputs {
        object,
        old_object: null(),
        namespace_object: null(),
        request: null(),
        params: null(),
        authorizer: None,
    };
    let (verdict, judged) = conditions.judge(&inputs.values());
    assert_eq!(
        judged.is_excluded,
        matches!(verdict, Verdict::Excluded(_)),
        "{verdict:?}"
    );
    (verdict, judged.errors)
}

#[test]
fn one_condition_that_is_false_decides() {
    assert_eq!(judge(&[]), (Verdict::Matches, 0));
    assert_eq!(judge(&["true", "object.a == 1"]), (Verdict::Matches, 0));
    let excluded = |name: &str, errors| (Verdict::Excluded(name.to_owned()), errors);
    assert_eq!(
        judge(&["true", "false", "object.a == 2"]),
        excluded("c1", 0)
    );
    // What fails before it is counted, and not what comes after it.
    assert_eq!(
        judge(&["object.b == 1", "false", "object.b == 1"]),
        excluded("c1", 1)
    );
}

#[test]
fn conditions_that_fail_are_told_together() {
    let failed = |why: &str, errors| (Verdict::Failed(why.to_owned()), errors);
    let one = "expression 'object.b == 1' resulted in error: no such key: b";
    assert_eq!(judge(&["true", "object.b == 1"]), failed(one, 1));
    let other = "expression 'object.c == 1' resulted in error: no such key: c";
    let both = format!("[{one}, {other}]");
    assert_eq!(judge(&["object.b == 1", "object.c == 1"]), failed(&both, 2));
    assert_eq!(judge(&["object.b == 1", "object.b == 1"]), failed(one, 2));
    let (Verdict::Failed(why), _) = judge(&["nothing"]) else {
        panic!("it compiles");
    };
    let begins = "compilation error: compilation failed: ERROR: <input>:1:1: undeclared reference";
    assert!(why.starts_with(begins), "{why}");
}

#[test]
fn conditions_have_one_budget() {
    let dear = "object.long.all(x, object.long.all(y, x == y))";
    let (Verdict::Failed(why), errors) = judge(&[dear]) else {
        panic!("it is cheap");
    };
    assert_eq!(errors, 1);
    assert!(why.contains("actual cost limit exceeded"), "{why}");
    let dear = vec![Cow::Borrowed(dear); 3];
    let dear: Vec<&str> = dear.iter().map(|text| &**text).collect();
    let (Verdict::Failed(why), errors) = judge(&dear) else {
        panic!("they are cheap");
    };
    assert_eq!(
        (errors, why.contains("running out of cost budget")),
        (0, true)
    );
}
