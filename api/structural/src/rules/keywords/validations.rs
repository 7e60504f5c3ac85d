//! `x-kubernetes-validations`: that their texts are there. Compiling them is
//! `coracle_registry`'s.

use serde_json::Value;

use crate::violation::{Violations, child};

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

pub(super) fn check(schema: &Value, path: &str, found: &mut Violations) {
    let rules = schema["x-kubernetes-validations"].as_array();
    for (at, rule) in rules.into_iter().flatten().enumerate() {
        let path = child(path, &format!("x-kubernetes-validations[{at}]"));
        texts(rule, &path, found);
        let reason = &rule["reason"];
        if reason
            .as_str()
            .is_some_and(|reason| !REASONS.contains(&reason))
        {
            let known = REASONS.map(str::to_owned).to_vec();
            found.not_supported(&child(&path, "reason"), reason, known);
        }
        let field_path = rule["fieldPath"].as_str().unwrap_or_default();
        let at = child(&path, "fieldPath");
        if !field_path.is_empty() && field_path.trim().is_empty() {
            let what = "fieldPath must be non-empty if specified";
            found.invalid(&at, &field_path.into(), what);
        }
        if has_breaks(field_path) {
            let what = "fieldPath must not contain line breaks";
            found.invalid(&at, &field_path.into(), what);
        }
    }
}

fn texts(rule: &Value, path: &str, found: &mut Violations) {
    let text = |name: &str| rule[name].as_str().unwrap_or_default();
    let (message, expression) = (text("message"), text("messageExpression"));
    let of_message = child(path, "message");
    if text("rule").trim().is_empty() {
        found.required(&child(path, "rule"), "rule is not specified");
    } else if !message.is_empty() && message.trim().is_empty() {
        let what = "message must be non-empty if specified";
        found.invalid(&of_message, &message.into(), what);
    } else if has_breaks(message.trim()) {
        let what = "message must not contain line breaks";
        found.invalid(&of_message, &message.into(), what);
    } else if has_breaks(text("rule").trim()) && message.trim().is_empty() {
        let what = "message must be specified if rule contains line breaks";
        found.required(&of_message, what);
    }
    if !expression.is_empty() && expression.trim().is_empty() {
        let what = "messageExpression must be non-empty if specified";
        found.required(&child(path, "messageExpression"), what);
    }
}

fn has_breaks(text: &str) -> bool {
    text.contains(['\n', '\r'])
}
