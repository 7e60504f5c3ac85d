//! Which requests a webhook or policy is about: rules, selectors, conditions.
//!
//! Source: `pkg/apis/admissionregistration/validation/validation.go` at v1.37.

use std::collections::{BTreeSet, HashSet};

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use super::expressions::{Expressions, VALIDATION};
use crate::{
    check, fill,
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

/// A list of rules; of policies, where they may have the names of objects.
pub(super) fn all(errors: &mut FieldErrors, path: &str, rules: &Value) {
    for (index, rule) in items(rules).iter().enumerate() {
        let path = format!("{path}[{index}]");
        resource_names(errors, &format!("{path}.resourceNames"), rule);
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

fn resource_names(errors: &mut FieldErrors, path: &str, rule: &Value) {
    let mut seen = HashSet::new();
    for (index, name) in items(&rule["resourceNames"]).iter().enumerate() {
        let path = format!("{path}[{index}]");
        for message in name::path_segment_errors(string(name)) {
            errors.invalid(&*path, name, message);
        }
        if !seen.insert(name) {
            errors.duplicate(path, name);
        }
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
    // As upstream: the last one without a subresource decides.
    let last = found
        .iter()
        .rfind(|one| !one.is_empty() && !one.contains('/'));
    if found.contains(&"*") && last.is_some_and(|last| *last != "*") {
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
    let expressions = Expressions::of_conditions(has_params);
    let mut names = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let at = format!("{path}.expression");
        match string(&condition["expression"]).trim() {
            "" => errors.required(at, ""),
            text => expressions.check(errors, at, (text, text), VALIDATION),
        }
        if check::required(errors, &format!("{path}.name"), &condition["name"]) {
            check::qualified_name(errors, &format!("{path}.name"), &condition["name"]);
            if !names.insert(string(&condition["name"])) {
                errors.duplicate(format!("{path}.name"), &condition["name"]);
            }
        }
    }
}
