//! Which requests a webhook or policy is about: rules, selectors, conditions.
//!
//! Source: `pkg/apis/admissionregistration/validation/validation.go` at v1.37.

use std::collections::BTreeSet;

use coracle_api::status::FieldErrors;
use coracle_cel::types::Type;
use serde_json::Value;

use crate::{
    check, expressions, fill,
    value::{items, string},
};

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MAX_CONDITIONS: usize = 64;
pub(super) const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
pub(super) const SELECTORS: [&str; 2] = ["namespaceSelector", "objectSelector"];

/// Selectors and scopes that select everything, where nothing was said.
pub(super) fn default(matching: &mut Value, lists: &[&str]) {
    fill::text(matching, "matchPolicy", "Equivalent");
    fill::object(matching, "namespaceSelector");
    fill::object(matching, "objectSelector");
    for list in lists {
        fill::each(matching, list, |rule| fill::text(rule, "scope", "*"));
    }
}

/// Both selectors and the way of matching.
pub(super) fn selectors(errors: &mut FieldErrors, path: &str, matching: &Value) {
    check::optional_one_of(
        errors,
        &format!("{path}.matchPolicy"),
        &matching["matchPolicy"],
        MATCH_POLICIES,
    );
    for selector in SELECTORS {
        check::label_selector(errors, &format!("{path}.{selector}"), &matching[selector]);
    }
}

/// A list of rules.
pub(super) fn all(errors: &mut FieldErrors, path: &str, rules: &Value) {
    for (index, rule) in items(rules).iter().enumerate() {
        let path = format!("{path}[{index}]");
        alone(
            errors,
            &format!("{path}.operations"),
            &rule["operations"],
            "operations",
        );
        for (index, operation) in items(&rule["operations"]).iter().enumerate() {
            if !OPERATIONS.contains(&string(operation)) {
                errors.not_supported(format!("{path}.operations[{index}]"), operation, OPERATIONS);
            }
        }
        alone(
            errors,
            &format!("{path}.apiGroups"),
            &rule["apiGroups"],
            "API groups",
        );
        alone(
            errors,
            &format!("{path}.apiVersions"),
            &rule["apiVersions"],
            "API versions",
        );
        for (index, version) in items(&rule["apiVersions"]).iter().enumerate() {
            if string(version).is_empty() {
                errors.required(format!("{path}.apiVersions[{index}]"), "");
            }
        }
        resources(errors, &format!("{path}.resources"), &rule["resources"]);
        let scopes = ["*", "Cluster", "Namespaced"];
        check::optional_one_of(errors, &format!("{path}.scope"), &rule["scope"], &scopes);
    }
}

/// At least one; and `*` alone.
fn alone(errors: &mut FieldErrors, path: &str, list: &Value, what: &str) {
    let found = items(list);
    if found.is_empty() {
        errors.required(path, "");
    }
    if found.len() > 1 && found.iter().any(|one| one == "*") {
        errors.invalid(
            path,
            list,
            format!("if '*' is present, must not specify other {what}"),
        );
    }
}

fn resources(errors: &mut FieldErrors, path: &str, list: &Value) {
    let found: Vec<_> = items(list).iter().map(string).collect();
    if found.is_empty() {
        errors.required(path, "");
    }
    let (mut all_below, mut below_all) = (Vec::new(), Vec::new());
    for (index, resource) in found.iter().enumerate() {
        let at = format!("{path}[{index}]");
        if resource.is_empty() {
            errors.required(at, "");
            continue;
        }
        let Some((of, below)) = resource.split_once('/') else {
            continue;
        };
        let includes = [
            all_below.contains(&of).then(|| format!("{of}/*")),
            below_all.contains(&below).then(|| format!("*/{below}")),
        ];
        for includes in includes.into_iter().flatten() {
            let message = format!("if '{includes}' is present, must not specify {resource}");
            errors.invalid(&at, &list[index], message);
        }
        if below == "*" {
            all_below.push(of);
        }
        if of == "*" {
            below_all.push(below);
        }
    }
    if found.len() > 1 && found.contains(&"*/*") {
        errors.invalid(
            path,
            list,
            "if '*/*' is present, must not specify other resources",
        );
    }
    if found.contains(&"*") && found.iter().any(|one| !one.contains('/') && *one != "*") {
        let message = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, list, message);
    }
}

/// Conditions: named expressions, which may name `params` where the request has some.
pub(super) fn conditions(
    errors: &mut FieldErrors,
    path: &str,
    conditions: &Value,
    has_params: bool,
) {
    let conditions = items(conditions);
    if conditions.is_empty() {
        return;
    }
    if conditions.len() > MAX_CONDITIONS {
        errors.too_many(path, conditions.len(), MAX_CONDITIONS);
    }
    let env = expressions::env(has_params);
    let mut names = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let at = format!("{path}.expression");
        match string(&condition["expression"]).trim() {
            "" => errors.required(at, ""),
            text => {
                let compiled = expressions::compile(text, &env, &Type::Bool);
                if let Err(why) = compiled {
                    errors.invalid(at, &text.into(), why);
                }
            }
        }
        if check::required(errors, &format!("{path}.name"), &condition["name"]) {
            check::qualified_name(errors, &format!("{path}.name"), &condition["name"]);
            if !names.insert(string(&condition["name"])) {
                errors.duplicate(format!("{path}.name"), &condition["name"]);
            }
        }
    }
}
