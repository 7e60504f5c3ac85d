//! ValidatingAdmissionPolicyBinding: where a policy holds, and with which parameters.
//!
//! Source: `pkg/registry/admissionregistration/validatingadmissionpolicybinding/strategy.go` at
//! v1.37.

use std::collections::HashSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::policies;
use crate::{
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value::{items, string},
};

/// The strategy of ValidatingAdmissionPolicyBindings.
pub struct ValidatingAdmissionPolicyBinding;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ValidatingAdmissionPolicyBinding",
    plural: "validatingadmissionpolicybindings",
    singular: "validatingadmissionpolicybinding",
    categories: &["api-extensions"],
    unconditional_update: false,
    ..super::V1
};

impl BuiltIn for ValidatingAdmissionPolicyBinding {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ValidatingAdmissionPolicyBinding {
    fn default(&self, object: &mut Value) {
        policies::default_binding(object);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        policies::binding(&mut errors, &object["spec"]);
        actions(&mut errors, &object["spec"]["validationActions"]);
        errors
    }

    fn validate_create(&self, object: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        errors.extend(super::reserved_name(object));
        errors
    }

    fn columns(&self) -> &'static [Column] {
        policies::BINDING_COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        policies::binding_row(object, now_secs)
    }
}

fn actions(errors: &mut FieldErrors, actions: &Value) {
    const PATH: &str = "spec.validationActions";
    let list = items(actions);
    if list.is_empty() {
        errors.required(PATH, "at least one validation action is required");
    }
    let mut seen = HashSet::new();
    for (index, action) in list.iter().enumerate() {
        if !matches!(string(action), "Audit" | "Deny" | "Warn") {
            errors.not_supported(
                format!("{PATH}[{index}]"),
                action,
                &["Audit", "Deny", "Warn"],
            );
        }
        if !seen.insert(action) {
            errors.duplicate(format!("{PATH}[{index}]"), action);
        }
    }
    if list.iter().any(|one| one == "Deny") && list.iter().any(|one| one == "Warn") {
        let message = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.invalid(PATH, actions, message);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, with};

    #[test]
    fn bindings_are_checked() {
        let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
        for (pointer, value, expect) in [
            ("/spec/matchResources", json!({}), ""),
            (
                "/spec/policyName",
                json!(""),
                "spec.policyName: Required value",
            ),
            (
                "/spec/validationActions",
                json!([]),
                "spec.validationActions: Required value: at least one validation action is required",
            ),
            (
                "/spec/validationActions",
                json!(["Deny", "Deny"]),
                "spec.validationActions[1]: Duplicate value: \"Deny\"",
            ),
            (
                "/spec/paramRef",
                json!({"parameterNotFoundAction": "Deny"}),
                "spec.paramRef: Required value: one of name or selector must be specified",
            ),
        ] {
            let found = create_errors(
                &ValidatingAdmissionPolicyBinding,
                with(&binding, pointer, value.clone()),
            );
            assert_eq!(found, expect, "{pointer} = {value}");
        }
    }
}
