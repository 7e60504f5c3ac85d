//! What the policies and their bindings have in common, validating or mutating.
//!
//! Source: `pkg/apis/admissionregistration/validation/validation.go` at v1.37.

use std::collections::HashSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::rules;
use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    strategy::Column,
    value::{self, items, string},
};

/// Shown for what was not said.
const UNSET: &str = "<unset>";
const RULES: &[&str] = &["resourceRules", "excludeResourceRules"];

pub(super) static BINDING_COLUMNS: &[Column] = &[
    NAME,
    text("PolicyName", "Name of the policy that is bound"),
    text(
        "ParamRef",
        "ParamRef specifies the parameter resource used to configure the admission control policy.",
    ),
    AGE,
];

/// The column of [`param_kind`].
pub(super) const PARAM_KIND: Column = text(
    "ParamKind",
    "ParamKind specifies the kind of resources used to parameterize this policy",
);

/// The row of a policy: how many there are of what is in the list `counted`, and its parameters.
pub(super) fn policy_row(object: &Value, counted: &str, now_secs: i64) -> Vec<Value> {
    let spec = &object["spec"];
    vec![
        cells::name(object),
        value::len(&spec[counted]).into(),
        param_kind(spec).into(),
        cells::age(object, now_secs),
    ]
}

/// Fills in a policy.
pub(super) fn default_policy(object: &mut Value) {
    fill::object(object, "spec");
    let spec = &mut object["spec"];
    fill::text(spec, "failurePolicy", "Fail");
    fill::within(spec, "matchConstraints", |matching| {
        rules::default(matching, RULES)
    });
}

/// Fills in a binding.
pub(super) fn default_binding(object: &mut Value) {
    fill::object(object, "spec");
    fill::within(&mut object["spec"], "matchResources", |matching| {
        rules::default(matching, RULES)
    });
}

/// What holds for every policy.
pub(super) fn policy(errors: &mut FieldErrors, spec: &Value) {
    let kind = &spec["paramKind"];
    if kind.is_object() {
        for field in ["apiVersion", "kind"] {
            check::required(errors, &format!("spec.paramKind.{field}"), &kind[field]);
        }
    }
    check::one_of(
        errors,
        "spec.failurePolicy",
        &spec["failurePolicy"],
        &["Fail", "Ignore"],
    );
    let matching = &spec["matchConstraints"];
    if matching.is_null() {
        errors.required("spec.matchConstraints", "");
    } else {
        constraints(errors, "spec.matchConstraints", matching);
        if items(&matching["resourceRules"]).is_empty() {
            errors.required("spec.matchConstraints.resourceRules", "");
        }
    }
    rules::conditions(errors, "spec.matchConditions", &spec["matchConditions"]);
    let mut names = HashSet::new();
    for (index, variable) in items(&spec["variables"]).iter().enumerate() {
        let path = format!("spec.variables[{index}]");
        if check::required(errors, &format!("{path}.name"), &variable["name"])
            && !names.insert(&variable["name"])
        {
            errors.duplicate(format!("{path}.name"), &variable["name"]);
        }
        check::required(
            errors,
            &format!("{path}.expression"),
            &variable["expression"],
        );
    }
}

fn constraints(errors: &mut FieldErrors, path: &str, matching: &Value) {
    rules::selectors(errors, path, matching);
    for list in RULES {
        rules::all(errors, &format!("{path}.{list}"), &matching[*list]);
    }
}

/// What holds for every binding.
pub(super) fn binding(errors: &mut FieldErrors, spec: &Value) {
    if check::required(errors, "spec.policyName", &spec["policyName"]) {
        check::dns_subdomain(errors, "spec.policyName", &spec["policyName"]);
    }
    let param = &spec["paramRef"];
    if param.is_object() {
        let (has_name, has_selector) = (
            !string(&param["name"]).is_empty(),
            param["selector"].is_object(),
        );
        match (has_name, has_selector) {
            (true, true) => errors.forbidden(
                "spec.paramRef.name",
                "name and selector are mutually exclusive",
            ),
            (false, false) => {
                errors.required("spec.paramRef", "one of name or selector must be specified")
            }
            _ => {}
        }
        check::label_selector(errors, "spec.paramRef.selector", &param["selector"]);
        let action = &param["parameterNotFoundAction"];
        check::one_of(
            errors,
            "spec.paramRef.parameterNotFoundAction",
            action,
            &["Allow", "Deny"],
        );
    }
    if spec["matchResources"].is_object() {
        constraints(errors, "spec.matchResources", &spec["matchResources"]);
    }
}

/// `apps/v1/Deployment`, or that none is set.
fn param_kind(spec: &Value) -> String {
    match &spec["paramKind"] {
        kind @ Value::Object(_) => {
            format!("{}/{}", string(&kind["apiVersion"]), string(&kind["kind"]))
        }
        _ => UNSET.to_owned(),
    }
}

/// The cells of [`BINDING_COLUMNS`].
pub(super) fn binding_row(object: &Value, now_secs: i64) -> Vec<Value> {
    let spec = &object["spec"];
    let param = &spec["paramRef"];
    let shown = match (string(&param["namespace"]), string(&param["name"])) {
        _ if !param.is_object() => UNSET.to_owned(),
        (_, "") => UNSET.to_owned(),
        // Whether the parameter has a namespace cannot be told from here.
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![
        cells::name(object),
        string(&spec["policyName"]).into(),
        shown.into(),
        cells::age(object, now_secs),
    ]
}
