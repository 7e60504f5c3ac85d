//! ValidatingAdmissionPolicy: expressions that requests must satisfy.
//!
//! Source: `pkg/registry/admissionregistration/validatingadmissionpolicy/strategy.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::policies;
use crate::{
    cells::{AGE, NAME, integer},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{ALL_METADATA, BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{items, string},
};

/// The strategy of ValidatingAdmissionPolicies.
pub struct ValidatingAdmissionPolicy;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ValidatingAdmissionPolicy",
    plural: "validatingadmissionpolicies",
    singular: "validatingadmissionpolicy",
    categories: &["api-extensions"],
    subresources: &[Subresource::Status],
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    integer(
        "Validations",
        "Validations indicates the number of validation rules defined in this configuration",
    ),
    policies::PARAM_KIND,
    AGE,
];

impl BuiltIn for ValidatingAdmissionPolicy {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ValidatingAdmissionPolicy {
    fn status_keeps(&self) -> &'static [&'static str] {
        ALL_METADATA
    }

    fn default(&self, object: &mut Value) {
        policies::default_policy(object);
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        policies::policy(&mut errors, spec);
        let (validations, annotations) = (
            items(&spec["validations"]),
            items(&spec["auditAnnotations"]),
        );
        if validations.is_empty() && annotations.is_empty() {
            errors.required(
                "spec.validations",
                "validations or auditAnnotations must be specified",
            );
        }
        for (index, validation) in validations.iter().enumerate() {
            let path = format!("spec.validations[{index}]");
            if string(&validation["expression"]).trim().is_empty() {
                errors.required(format!("{path}.expression"), "expression is not specified");
            }
            let reasons = [
                "Forbidden",
                "Invalid",
                "RequestEntityTooLarge",
                "Unauthorized",
            ];
            check::optional_one_of(
                &mut errors,
                &format!("{path}.reason"),
                &validation["reason"],
                &reasons,
            );
        }
        for (index, annotation) in annotations.iter().enumerate() {
            let path = format!("spec.auditAnnotations[{index}]");
            check::required(&mut errors, &format!("{path}.key"), &annotation["key"]);
            if string(&annotation["valueExpression"]).trim().is_empty() {
                errors.required(
                    format!("{path}.valueExpression"),
                    "valueExpression is not specified",
                );
            }
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        policies::policy_row(object, "validations", now_secs)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, with};

    #[test]
    fn policies_are_checked() {
        let policy = json!({"metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [
                {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "validations": [{"expression": "true"}]}});
        for (pointer, value, expect) in [
            ("/spec/failurePolicy", json!("Ignore"), ""),
            (
                "/spec/matchConstraints",
                Value::Null,
                "spec.matchConstraints: Required value",
            ),
            (
                "/spec/validations",
                json!([]),
                "spec.validations: Required value: validations or auditAnnotations must be specified",
            ),
            (
                "/spec/validations",
                json!([{}]),
                "spec.validations[0].expression: Required value: expression is not specified",
            ),
            (
                "/spec/failurePolicy",
                json!("x"),
                "spec.failurePolicy: Unsupported value: \"x\": supported values: \"Fail\", \"Ignore\"",
            ),
        ] {
            let found = create_errors(
                &ValidatingAdmissionPolicy,
                with(&policy, pointer, value.clone()),
            );
            assert_eq!(found, expect, "{pointer} = {value}");
        }
        let object = created(&ValidatingAdmissionPolicy, policy);
        assert_eq!(
            json!(ValidatingAdmissionPolicy.row(&object, 0)),
            json!(["p", 1, "<unset>", "<unknown>"])
        );
        assert_eq!(
            object["spec"]["matchConstraints"]["matchPolicy"],
            "Equivalent"
        );
    }
}
