//! Checks of when a container is started again: its own policy, the rules that go before it, and
//! what a resize does to it.
//!
//! Source: `validateContainerRestartPolicy`, `validateInitContainerRestartPolicy` and
//! `validateResizePolicy` in `pkg/apis/core/validation/validation.go` at v1.37.

use std::collections::BTreeSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    check,
    value::{items, string},
};

const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;

/// `restartPolicy` and `restartPolicyRules` of a container or an init container.
pub(super) fn policy(errors: &mut FieldErrors, path: &str, container: &Value) {
    let (policy, rules) = (
        &container["restartPolicy"],
        items(&container["restartPolicyRules"]),
    );
    let policy_path = format!("{path}.restartPolicy");
    if policy.is_null() {
        if rules.is_empty() {
            return;
        }
        let message = "must specify restartPolicy when restart rules are used";
        errors.required(policy_path, message);
    } else if !matches!(string(policy), "Always" | "Never" | "OnFailure") {
        errors.not_supported(policy_path, policy, &["Always", "Never", "OnFailure"]);
    }
    let path = format!("{path}.restartPolicyRules");
    if rules.len() > MAX_RULES {
        errors.too_many(&path, rules.len(), MAX_RULES);
    }
    for (index, rule) in rules.iter().enumerate() {
        one_rule(errors, &format!("{path}[{index}]"), rule);
    }
}

fn one_rule(errors: &mut FieldErrors, path: &str, rule: &Value) {
    let action = string(&rule["action"]);
    let actions = ["Restart", "RestartAllContainers"];
    if !actions.contains(&action) {
        errors.not_supported(format!("{path}.action"), &action.into(), &actions);
    }
    let path = format!("{path}.exitCodes");
    let codes = &rule["exitCodes"];
    if !codes.is_object() {
        errors.required(path, "must be specified");
        return;
    }
    let operator = string(&codes["operator"]);
    let operators = ["In", "NotIn"];
    if !operators.contains(&operator) {
        errors.not_supported(format!("{path}.operator"), &operator.into(), &operators);
    }
    let count = items(&codes["values"]).len();
    if count > MAX_EXIT_CODES {
        errors.too_many(format!("{path}.values"), count, MAX_EXIT_CODES);
    }
}

/// `resizePolicy` of a container, in a pod that is restarted as `pod_policy` says. As upstream, all
/// paths but that of a repeated resource are the list's.
pub(super) fn resize_policy(
    errors: &mut FieldErrors,
    path: &str,
    policies: &Value,
    pod_policy: &Value,
) {
    let mut resources = BTreeSet::new();
    for (index, policy) in items(policies).iter().enumerate() {
        let (resource, restart) = (&policy["resourceName"], &policy["restartPolicy"]);
        if !resources.insert(string(resource)) {
            errors.duplicate(format!("{path}[{index}]"), resource);
        }
        check::one_of(errors, path, resource, &["cpu", "memory"]);
        check::one_of(errors, path, restart, &["NotRequired", "RestartContainer"]);
        if pod_policy == "Never" && restart != "NotRequired" {
            let message = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, restart, message);
        }
    }
}
