//! MutatingAdmissionPolicy: expressions that change requests.
//!
//! Source: `pkg/registry/admissionregistration/mutatingadmissionpolicy/strategy.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::policies;
use crate::{
    cells::{AGE, NAME, integer},
    check,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value::{items, string},
};

/// The strategy of MutatingAdmissionPolicies.
pub struct MutatingAdmissionPolicy;

static INFO: ResourceInfo = ResourceInfo {
    kind: "MutatingAdmissionPolicy",
    plural: "mutatingadmissionpolicies",
    singular: "mutatingadmissionpolicy",
    categories: &["api-extensions"],
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    integer(
        "Mutations",
        "Mutations indicates the number of mutation rules defined in this configuration",
    ),
    policies::PARAM_KIND,
    AGE,
];

impl BuiltIn for MutatingAdmissionPolicy {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for MutatingAdmissionPolicy {
    fn default(&self, object: &mut Value) {
        policies::default_policy(object);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        policies::policy(&mut errors, spec);
        let mutations = items(&spec["mutations"]);
        if mutations.is_empty() {
            errors.required("spec.mutations", "mutations must be specified");
        }
        for (index, mutation) in mutations.iter().enumerate() {
            let path = format!("spec.mutations[{index}]");
            let (kind, field) = match string(&mutation["patchType"]) {
                "ApplyConfiguration" => ("ApplyConfiguration", "applyConfiguration"),
                "JSONPatch" => ("JSONPatch", "jsonPatch"),
                "" => {
                    errors.required(format!("{path}.patchType"), "");
                    continue;
                }
                _ => {
                    let types = ["ApplyConfiguration", "JSONPatch"];
                    errors.not_supported(
                        format!("{path}.patchType"),
                        &mutation["patchType"],
                        &types,
                    );
                    continue;
                }
            };
            if mutation[field].is_null() {
                errors.required(
                    format!("{path}.{field}"),
                    format!("must be specified when patchType is {kind}"),
                );
            } else if string(&mutation[field]["expression"]).trim().is_empty() {
                errors.required(
                    format!("{path}.{field}.expression"),
                    "expression is not specified",
                );
            }
        }
        let policies = ["IfNeeded", "Never"];
        check::one_of(
            &mut errors,
            "spec.reinvocationPolicy",
            &spec["reinvocationPolicy"],
            &policies,
        );
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        policies::policy_row(object, "mutations", now_secs)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, with};

    #[test]
    fn policies_are_checked() {
        let policy = json!({"metadata": {"name": "p"}, "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [
                {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]}});
        for (pointer, value, expect) in [
            ("/spec/failurePolicy", json!("Ignore"), ""),
            (
                "/spec/mutations",
                json!([]),
                "spec.mutations: Required value: mutations must be specified",
            ),
            (
                "/spec/mutations/0/jsonPatch",
                Value::Null,
                "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
            ),
            (
                "/spec/reinvocationPolicy",
                Value::Null,
                "spec.reinvocationPolicy: Required value",
            ),
        ] {
            let found = create_errors(
                &MutatingAdmissionPolicy,
                with(&policy, pointer, value.clone()),
            );
            assert_eq!(found, expect, "{pointer} = {value}");
        }
    }
}
