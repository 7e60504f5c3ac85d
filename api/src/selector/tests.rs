use proptest::prelude::*;
use serde_json::json;

use super::*;

fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
    let selector = LabelSelector::parse(selector).expect("a selector");
    selector.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
}

#[test]
fn label_selectors_match() {
    let labels = [("app", "web"), ("tier", "2"), ("in", "x"), ("empty", "")];
    let table = [
        ("", true),
        ("app=web", true),
        ("app==web,tier!=3", true),
        ("app in (web, db),!gone", true),
        ("app notin (web)", false),
        ("gone notin (web)", true),
        ("gone!=web", true),
        ("gone", false),
        ("!app", false),
        ("tier>1,tier<3", true),
        ("tier>2", false),
        ("app>1", false),
        ("empty=", true),
        ("empty in ()", true),
        ("app in (,web)", true),
        ("in in (x)", true),
        ("in in (in)", false),
    ];
    for (selector, expect) in table {
        assert_eq!(matches(selector, &labels), expect, "{selector}");
    }
}

#[test]
fn bad_label_selectors_get_upstreams_words() {
    let table = [
        ("a=b,", "found '', expected: identifier after ','"),
        (
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        (
            "a in b",
            "unable to parse requirement: found 'b' expected: '('",
        ),
        (
            "a in (b",
            "unable to parse requirement: found '', expected: ',' or ')'",
        ),
        (
            ",a",
            "found ',', expected: !, identifier, or 'end of string'",
        ),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        (
            "a>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "=a",
            "found '=', expected: !, identifier, or 'end of string'",
        ),
    ];
    for (selector, expect) in table {
        assert_eq!(
            LabelSelector::parse(selector).map_err(|e| e.to_string()),
            Err(expect.to_owned()),
            "{selector}"
        );
    }
    let error = LabelSelector::parse("_a=b")
        .expect_err("a bad key")
        .to_string();
    assert!(error.starts_with(
        "unable to parse requirement: <nil>: Invalid value: \"_a\": name part must consist of"
    ));
    let error = LabelSelector::parse("a=b_")
        .expect_err("a bad value")
        .to_string();
    assert!(error.starts_with(
        "unable to parse requirement: values[0][a]: Invalid value: \"b_\": a valid label must be"
    ));
}

#[test]
fn selector_objects_are_read_as_upstream_reads_them() {
    let object = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["e", "d"]}]});
    assert_eq!(
        LabelSelector::from_object(&object)
            .expect("a selector")
            .to_string(),
        "a=b,c in (d,e)"
    );
    assert!(
        LabelSelector::from_object(&json!({}))
            .expect("empty")
            .is_everything()
    );
    assert!(
        !LabelSelector::from_object(&Value::Null)
            .expect("absent")
            .matches(|_| None)
    );
    let bad = json!({"matchExpressions": [{"key": "c", "operator": "Near"}]});
    let error = LabelSelector::from_object(&bad).expect_err("an unknown operator");
    assert_eq!(
        error.to_string(),
        "\"Near\" is not a valid label selector operator"
    );
}

#[test]
fn field_selectors_match_and_escape() {
    let selector =
        FieldSelector::parse(r"metadata.name=a\,b,spec.nodeName!=n").expect("a selector");
    assert_eq!(selector.exact("metadata.name"), Some("a,b"));
    assert!(selector.matches(|f| (f == "metadata.name").then_some("a,b")));
    assert!(!selector.matches(|_| Some("n")));
    assert_eq!(selector.to_string(), r"metadata.name=a\,b,spec.nodeName!=n");
    assert_eq!(
        FieldSelector::parse("x").map_err(|e| e.to_string()),
        Err("invalid selector: 'x'; can't understand 'x'".to_owned())
    );
    assert!(FieldSelector::parse(r"a=\b").is_err());
    assert!(FieldSelector::parse("a=b=c").is_err());
}

proptest! {
    #[test]
    fn any_text_parses_or_fails_without_panic(text in "[a-c=!(),<> in\\\\]{0,24}") {
        let _ = FieldSelector::parse(&text);
        if let Ok(selector) = LabelSelector::parse(&text) {
            let again = LabelSelector::parse(&selector.to_string()).expect("its own text");
            prop_assert_eq!(again, selector);
        }
    }
}
