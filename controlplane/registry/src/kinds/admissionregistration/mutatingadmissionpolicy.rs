//! MutatingAdmissionPolicy: expressions that change requests.
//!
//! Source: `pkg/registry/admissionregistration/mutatingadmissionpolicy/strategy.go` at v1.37.

use coracle_api::status::FieldErrors;
use coracle_cel::{admission::Sort, types::Type};
use serde_json::Value;

use super::{expressions::Expressions, policies};
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
        let matching = &spec["matchConstraints"];
        policies::mutable_operations(&mut errors, "spec.matchConstraints", matching);
        let expressions = Expressions::new(&mut errors, spec, true);
        let mutations = items(&spec["mutations"]);
        if mutations.is_empty() {
            errors.required("spec.mutations", "mutations must contain at least one item");
        }
        for (index, mutation) in mutations.iter().enumerate() {
            let path = format!("spec.mutations[{index}]");
            check_mutation(&mut errors, &path, mutation, &expressions);
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

    fn validate_create(&self, object: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        errors.extend(super::reserved_name(object));
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        policies::policy_row(object, "mutations", now_secs)
    }
}

fn check_mutation(
    errors: &mut FieldErrors,
    path: &str,
    mutation: &Value,
    expressions: &Expressions,
) {
    let at = format!("{path}.patchType");
    let kind = string(&mutation["patchType"]);
    let (field, other, result) = match kind {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Type::object("Object")),
        "JSONPatch" => (
            "jsonPatch",
            "applyConfiguration",
            Type::list(Type::object("JSONPatch")),
        ),
        "" => return errors.required(at, ""),
        _ => {
            let types = ["ApplyConfiguration", "JSONPatch"];
            return errors.not_supported(at, &mutation["patchType"], &types);
        }
    };
    if mutation[field].is_null() {
        let why = format!("must be specified when patchType is {kind}");
        errors.required(format!("{path}.{field}"), why);
    } else {
        let at = format!("{path}.{field}.expression");
        match string(&mutation[field]["expression"]).trim() {
            "" => errors.required(at, ""),
            text => {
                let sort = Sort {
                    results: &[result],
                    has_authorizer: true,
                    has_patches: true,
                };
                expressions.check(errors, at, (text, text), sort);
            }
        }
    }
    if !mutation[other].is_null() {
        let why = format!("must not be specified when patchType is {kind}");
        let shown = format!("{{{other}}}").into();
        errors.invalid(format!("{path}.{other}"), &shown, why);
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
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'test'}]"}}]}});
        for (pointer, value, expect) in [
            ("/spec/failurePolicy", json!("Ignore"), ""),
            (
                "/spec/mutations",
                json!([]),
                "spec.mutations: Required value: mutations must contain at least one item",
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

    #[test]
    fn mutations_are_compiled_when_they_are_written() {
        let policy = json!({"metadata": {"name": "p"}, "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [
                {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "variables": [{"name": "side", "expression": "Object.spec.containers{name: 'side'}"}],
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {
                "expression": "Object{spec: Object.spec{containers: [variables.side]}}"}}]}});
        let apply = |text: &str| json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}]);
        let patch =
            |text: &str| json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": text}}]);
        for (pointer, value, expect) in [
            ("/spec/failurePolicy", json!("Fail"), ""),
            ("/spec/mutations", apply("Object{}"), ""),
            (
                "/spec/mutations",
                patch("[JSONPatch{op: 'add', path: '/a', value: 1}]"),
                "",
            ),
            (
                "/spec/mutations",
                apply("[1]"),
                "spec.mutations[0].applyConfiguration.expression: Invalid value: \"[1]\": must evaluate to Object but \
                 got list(int)",
            ),
            (
                "/spec/mutations",
                apply("Object.spec{}"),
                "spec.mutations[0].applyConfiguration.expression: Invalid value: \"Object.spec{}\": must evaluate to \
                 Object but got Object.spec",
            ),
            (
                "/spec/mutations",
                patch("Object{}"),
                "spec.mutations[0].jsonPatch.expression: Invalid value: \"Object{}\": must evaluate to \
                 list(JSONPatch) but got Object",
            ),
            (
                "/spec/mutations",
                json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": " "}, "applyConfiguration": {}}]),
                "[spec.mutations[0].jsonPatch.expression: Required value, \
                 spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified \
                 when patchType is JSONPatch]",
            ),
            (
                "/spec/matchConstraints/resourceRules/0/operations",
                json!(["DELETE"]),
                "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \
                 \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"",
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
