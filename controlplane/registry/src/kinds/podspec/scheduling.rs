//! Checks of what says where a pod may run: affinity, tolerations, spreading.
//!
//! Source: `validateAffinity`, `ValidateTolerations`, `validateTopologySpreadConstraints` in
//! `pkg/apis/core/validation/validation.go` at v1.37.

use std::collections::BTreeSet;

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use super::label_keys;
use crate::{
    check,
    value::{items, string},
};

pub(super) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
pub(super) const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// `affinity` of a pod.
pub(super) fn affinity(errors: &mut FieldErrors, path: &str, affinity: &Value) {
    let node = &affinity["nodeAffinity"];
    if node.is_object() {
        let path = format!("{path}.nodeAffinity");
        if node[REQUIRED].is_object() {
            node_selector(errors, &format!("{path}.{REQUIRED}"), &node[REQUIRED]);
        }
        for (index, term) in items(&node[PREFERRED]).iter().enumerate() {
            let path = format!("{path}.{PREFERRED}[{index}]");
            weight(errors, &path, term);
            node_selector_term(errors, &format!("{path}.preference"), &term["preference"]);
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let path = format!("{path}.{kind}");
        for (index, term) in items(&affinity[kind][REQUIRED]).iter().enumerate() {
            pod_term(errors, &format!("{path}.{REQUIRED}[{index}]"), term);
        }
        for (index, term) in items(&affinity[kind][PREFERRED]).iter().enumerate() {
            let path = format!("{path}.{PREFERRED}[{index}]");
            weight(errors, &path, term);
            pod_term(
                errors,
                &format!("{path}.podAffinityTerm"),
                &term["podAffinityTerm"],
            );
        }
    }
}

fn weight(errors: &mut FieldErrors, path: &str, term: &Value) {
    if !term["weight"]
        .as_i64()
        .is_some_and(|weight| (1..=100).contains(&weight))
    {
        let weight = term["weight"].as_i64().unwrap_or(0);
        errors.invalid(
            format!("{path}.weight"),
            &weight.into(),
            "must be in the range 1-100",
        );
    }
}

/// A NodeSelector: alternatives of requirements.
pub(crate) fn node_selector(errors: &mut FieldErrors, path: &str, selector: &Value) {
    let path = format!("{path}.nodeSelectorTerms");
    let terms = items(&selector["nodeSelectorTerms"]);
    if terms.is_empty() {
        errors.required(&path, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        node_selector_term(errors, &format!("{path}[{index}]"), term);
    }
}

fn node_selector_term(errors: &mut FieldErrors, path: &str, term: &Value) {
    for (index, requirement) in items(&term["matchExpressions"]).iter().enumerate() {
        node_requirement(
            errors,
            &format!("{path}.matchExpressions[{index}]"),
            requirement,
        );
    }
    for (index, requirement) in items(&term["matchFields"]).iter().enumerate() {
        let path = format!("{path}.matchFields[{index}]");
        match string(&requirement["operator"]) {
            "In" | "NotIn" if items(&requirement["values"]).len() != 1 => errors.required(
                format!("{path}.values"),
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ),
            "In" | "NotIn" => {}
            _ => errors.invalid(
                format!("{path}.operator"),
                &requirement["operator"],
                "not a valid selector operator",
            ),
        }
        if requirement["key"] != "metadata.name" {
            errors.invalid(
                format!("{path}.key"),
                &requirement["key"],
                "not a valid field selector key",
            );
            continue;
        }
        for (index, name) in items(&requirement["values"]).iter().enumerate() {
            check::dns_subdomain(errors, &format!("{path}.values[{index}]"), name);
        }
    }
}

fn node_requirement(errors: &mut FieldErrors, path: &str, requirement: &Value) {
    let values = items(&requirement["values"]).len();
    let values_path = format!("{path}.values");
    match string(&requirement["operator"]) {
        "In" | "NotIn" if values == 0 => {
            errors.required(
                values_path,
                "must be specified when `operator` is 'In' or 'NotIn'",
            );
        }
        "Exists" | "DoesNotExist" if values > 0 => {
            errors.forbidden(
                values_path,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            );
        }
        "Gt" | "Lt" if values != 1 => {
            errors.required(
                values_path,
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            );
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        _ => errors.invalid(
            format!("{path}.operator"),
            &requirement["operator"],
            "not a valid selector operator",
        ),
    }
    check::qualified_name(errors, &format!("{path}.key"), &requirement["key"]);
}

fn pod_term(errors: &mut FieldErrors, path: &str, term: &Value) {
    check::label_selector(
        errors,
        &format!("{path}.labelSelector"),
        &term["labelSelector"],
    );
    check::label_selector(
        errors,
        &format!("{path}.namespaceSelector"),
        &term["namespaceSelector"],
    );
    for namespace in items(&term["namespaces"]) {
        check::dns_label(errors, &format!("{path}.namespace"), namespace);
    }
    label_keys::validate(errors, path, term);
    topology_key(errors, &format!("{path}.topologyKey"), &term["topologyKey"]);
}

fn topology_key(errors: &mut FieldErrors, path: &str, key: &Value) {
    if string(key).is_empty() {
        errors.required(path, "can not be empty");
    }
    check::qualified_name(errors, path, key);
}

/// `tolerations` of a pod.
pub(super) fn tolerations(errors: &mut FieldErrors, path: &str, tolerations: &Value) {
    for (index, toleration) in items(tolerations).iter().enumerate() {
        let path = format!("{path}[{index}]");
        let operator_path = format!("{path}.operator");
        let (key, operator) = (string(&toleration["key"]), string(&toleration["operator"]));
        if !key.is_empty() {
            check::qualified_name(errors, &format!("{path}.key"), &toleration["key"]);
        } else if operator != "Exists" {
            let message = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&operator_path, &operator.into(), message);
        }
        if toleration["tolerationSeconds"].is_i64() && toleration["effect"] != "NoExecute" {
            let message = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(
                format!("{path}.effect"),
                &string(&toleration["effect"]).into(),
                message,
            );
        }
        match operator {
            "" | "Equal" => {
                let messages = name::label_value_errors(string(&toleration["value"]));
                if !messages.is_empty() {
                    errors.invalid(&operator_path, &toleration["value"], messages.join(";"));
                }
            }
            "Exists" if !string(&toleration["value"]).is_empty() => {
                errors.invalid(
                    &operator_path,
                    toleration,
                    "value must be empty when `operator` is 'Exists'",
                );
            }
            "Exists" => {}
            _ => errors.not_supported(
                &operator_path,
                &toleration["operator"],
                &["Equal", "Exists"],
            ),
        }
        taint_effect(
            errors,
            &format!("{path}.effect"),
            &toleration["effect"],
            true,
        );
    }
}

/// The effect of a taint, or of a toleration, which may leave it out.
pub(crate) fn taint_effect(errors: &mut FieldErrors, path: &str, effect: &Value, optional: bool) {
    const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if optional {
        check::optional_one_of(errors, path, effect, EFFECTS);
    } else {
        check::one_of(errors, path, effect, EFFECTS);
    }
}

/// `topologySpreadConstraints` of a pod.
pub(super) fn topology_spread(errors: &mut FieldErrors, path: &str, constraints: &Value) {
    let mut seen = BTreeSet::new();
    for (index, constraint) in items(constraints).iter().enumerate() {
        let path = format!("{path}[{index}]");
        let at_least_one = |errors: &mut FieldErrors, field: &str| {
            let value = constraint[field].as_i64().unwrap_or(0);
            if value <= 0 {
                errors.invalid(
                    format!("{path}.{field}"),
                    &value.into(),
                    "must be greater than zero",
                );
            }
        };
        at_least_one(errors, "maxSkew");
        if string(&constraint["topologyKey"]).is_empty() {
            errors.required(format!("{path}.topologyKey"), "can not be empty");
        }
        let action = string(&constraint["whenUnsatisfiable"]);
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action) {
            let path = format!("{path}.whenUnsatisfiable");
            errors.not_supported(path, &action.into(), &["DoNotSchedule", "ScheduleAnyway"]);
        }
        let key = string(&constraint["topologyKey"]);
        if !seen.insert((key, action)) {
            let path = format!("{path}.{{topologyKey, whenUnsatisfiable}}");
            errors.duplicate(path, &format!("{{{key}, {action}}}").into());
        }
        if constraint["minDomains"].is_i64() {
            at_least_one(errors, "minDomains");
            if action != "DoNotSchedule" {
                let message = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                );
                errors.invalid(
                    format!("{path}.minDomains"),
                    &constraint["minDomains"],
                    message,
                );
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            check::optional_one_of(
                errors,
                &format!("{path}.{policy}"),
                &constraint[policy],
                &["Honor", "Ignore"],
            );
        }
        label_keys::validate(errors, &path, constraint);
        check::label_selector(
            errors,
            &format!("{path}.labelSelector"),
            &constraint["labelSelector"],
        );
    }
}
