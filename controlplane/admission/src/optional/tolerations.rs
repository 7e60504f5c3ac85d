//! Tolerations beside each other: which says at least as much as another.
//!
//! Source: `pkg/util/tolerations/tolerations.go` at v1.37.

use coracle_registry::value::string;
use serde_json::Value;

/// Both lists as one, without what another of them says, too.
pub(super) fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let is_said = merged.iter().any(|kept| says_all_of(kept, one));
        // Of equals the first stays.
        let mut later = all[index + 1..].iter();
        if !is_said && !later.any(|other| !is_same(other, one) && says_all_of(other, one)) {
            merged.push((*one).clone());
        }
    }
    merged
}

/// Whether each is within something that is allowed. Nothing is allowed by nothing: then all is.
pub(super) fn are_within(tolerations: &[Value], allowed: &[Value]) -> bool {
    let is_within = |one: &Value| allowed.iter().any(|limit| says_all_of(limit, one));
    allowed.is_empty() || tolerations.iter().all(is_within)
}

fn is_same(one: &Value, other: &Value) -> bool {
    let fields = ["key", "operator", "value", "effect"];
    fields
        .iter()
        .all(|field| string(&one[field]) == string(&other[field]))
        && one["tolerationSeconds"].as_i64() == other["tolerationSeconds"].as_i64()
}

/// Whether `wide` tolerates all that `narrow` does.
fn says_all_of(wide: &Value, narrow: &Value) -> bool {
    if is_same(wide, narrow) {
        return true;
    }
    let text = |of: &Value, field: &str| string(&of[field]).to_owned();
    let (key, effect, operator) = (
        text(wide, "key"),
        text(wide, "effect"),
        text(wide, "operator"),
    );
    let is_every_key = key.is_empty() && operator == "Exists";
    if key != text(narrow, "key") && !is_every_key {
        return false;
    }
    if effect != text(narrow, "effect") && !effect.is_empty() {
        return false;
    }
    if effect == "NoExecute"
        && let Some(most) = wide["tolerationSeconds"].as_i64()
        && narrow["tolerationSeconds"]
            .as_i64()
            .is_none_or(|secs| secs > most)
    {
        return false;
    }
    match operator.as_str() {
        "Equal" | "" => {
            narrow["operator"] == "Equal" && text(narrow, "value") == text(wide, "value")
        }
        // Comparisons are within themselves only.
        operator => operator == "Exists",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn all() -> Vec<(&'static str, Value)> {
        let exists =
            |key: &str, effect: &str| json!({"key": key, "operator": "Exists", "effect": effect});
        let equal = |value: &str| json!({"key": "foo", "operator": "Equal", "value": value, "effect": "NoExecute"});
        let mut minute = exists("foo", "NoExecute");
        minute["tolerationSeconds"] = 60.into();
        let mut hour = minute.clone();
        hour["tolerationSeconds"] = 3600.into();
        vec![
            ("everything", json!({"operator": "Exists"})),
            ("every key, NoExecute", exists("", "NoExecute")),
            ("foo, any effect", exists("foo", "")),
            ("foo, NoExecute", exists("foo", "NoExecute")),
            ("foo for a minute", minute),
            ("foo for an hour", hour),
            ("foo=bar", equal("bar")),
            ("foo=baz", equal("baz")),
            ("other", exists("other", "NoExecute")),
        ]
    }

    #[test]
    fn what_says_more_than_what() {
        let within: &[(&str, &[&str])] = &[
            ("everything", &["*"]),
            (
                "every key, NoExecute",
                &[
                    "foo, NoExecute",
                    "foo for a minute",
                    "foo for an hour",
                    "foo=bar",
                    "foo=baz",
                    "other",
                ],
            ),
            (
                "foo, any effect",
                &[
                    "foo, NoExecute",
                    "foo for a minute",
                    "foo for an hour",
                    "foo=bar",
                    "foo=baz",
                ],
            ),
            (
                "foo, NoExecute",
                &["foo for a minute", "foo for an hour", "foo=bar", "foo=baz"],
            ),
            ("foo for an hour", &["foo for a minute"]),
        ];
        for (wide_name, wide) in all() {
            let inner = within.iter().find(|(name, _)| *name == wide_name);
            let inner = inner.map_or(&[][..], |(_, inner)| inner);
            for (name, narrow) in all() {
                let expect = name == wide_name || inner.contains(&name) || inner.contains(&"*");
                assert_eq!(says_all_of(&wide, &narrow), expect, "{wide_name} / {name}");
            }
        }
    }

    #[test]
    fn of_two_the_one_that_says_more_stays() {
        let named = |name: &str| all().into_iter().find(|(one, _)| *one == name).unwrap().1;
        let list = |names: &[&str]| names.iter().map(|name| named(name)).collect::<Vec<_>>();
        for (first, second, expect) in [
            (&[][..], &[][..], &[][..]),
            (&["foo, NoExecute"], &[], &["foo, NoExecute"]),
            (&[], &["foo, NoExecute"], &["foo, NoExecute"]),
            (&["foo=bar"], &["foo=bar"], &["foo=bar"]),
            (
                &["foo=bar", "other"],
                &["foo, NoExecute"],
                &["other", "foo, NoExecute"],
            ),
            (&["everything"], &["foo=bar", "other"], &["everything"]),
            (&["foo=bar"], &["foo=baz"], &["foo=bar", "foo=baz"]),
        ] {
            assert_eq!(
                merge(&list(first), &list(second)),
                list(expect),
                "{first:?} {second:?}"
            );
        }
    }

    #[test]
    fn nothing_is_forbidden_by_an_empty_list() {
        let foo = [json!({"key": "foo", "operator": "Exists"})];
        assert!(are_within(&foo, &[]));
        assert!(are_within(&[], &foo));
        assert!(are_within(&foo, &[json!({"operator": "Exists"})]));
        assert!(!are_within(&[json!({"operator": "Exists"})], &foo));
    }
}
