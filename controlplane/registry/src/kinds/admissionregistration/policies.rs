//! What the policies and their bindings have in common, validating or mutating.
//!
//! Source: `pkg/apis/admissionregistration/validation/validation.go` at v1.37.

use coracle_api::{name, status::FieldErrors};
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
    check::one_of(
        errors,
        "spec.failurePolicy",
        &spec["failurePolicy"],
        &["Fail", "Ignore"],
    );
    param_kind_errors(errors, &spec["paramKind"]);
    let matching = &spec["matchConstraints"];
    if matching.is_null() {
        errors.required("spec.matchConstraints", "");
    } else {
        constraints(errors, "spec.matchConstraints", matching);
        if items(&matching["resourceRules"]).is_empty() {
            errors.required("spec.matchConstraints.resourceRules", "");
        }
    }
    let (conditions, has_params) = (&spec["matchConditions"], spec["paramKind"].is_object());
    rules::conditions(errors, "spec.matchConditions", conditions, has_params);
}

fn param_kind_errors(errors: &mut FieldErrors, kind: &Value) {
    if !kind.is_object() {
        return;
    }
    const VERSION: &str = "spec.paramKind.apiVersion";
    let api_version = string(&kind["apiVersion"]);
    let parts: Vec<&str> = api_version.split('/').collect();
    match *parts {
        [""] => errors.required(VERSION, ""),
        [version] => version_errors(errors, ("", version), &kind["apiVersion"]),
        [group, version] => version_errors(errors, (group, version), &kind["apiVersion"]),
        _ => {
            let why = format!("unexpected GroupVersion string: {api_version}");
            errors.invalid(VERSION, &kind["apiVersion"], why);
        }
    }
    match string(&kind["kind"]) {
        "" => errors.required("spec.paramKind.kind", ""),
        name => {
            let messages = name::dns_1035_label_errors(&name.to_lowercase());
            if !messages.is_empty() {
                let why = messages.join(",");
                let why = format!("may have mixed case, but should otherwise match: {why}");
                errors.invalid("spec.paramKind.kind", &kind["kind"], why);
            }
        }
    }
}

fn version_errors(errors: &mut FieldErrors, (group, version): (&str, &str), shown: &Value) {
    const PATH: &str = "spec.paramKind.apiVersion";
    let mut told = |value: &str, messages: Vec<String>| {
        if !messages.is_empty() {
            errors.invalid(PATH, &value.into(), messages.join(","));
        }
    };
    if !group.is_empty() {
        told(group, name::dns_subdomain_errors(group));
    }
    if !version.is_empty() {
        told(version, name::dns_1035_label_errors(version));
    } else {
        errors.invalid(PATH, shown, "version must be specified");
    }
}

fn constraints(errors: &mut FieldErrors, path: &str, matching: &Value) {
    rules::selectors(errors, path, matching);
    for list in RULES {
        let path = format!("{path}.{list}");
        rules::all(errors, &path, &matching[*list]);
    }
}

/// What is deleted has nothing that could be changed.
pub(super) fn mutable_operations(errors: &mut FieldErrors, path: &str, matching: &Value) {
    const MUTABLE: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
    for rule in items(&matching["resourceRules"]) {
        for operation in items(&rule["operations"]) {
            if !MUTABLE.contains(&string(operation)) {
                let path = format!("{path}.resourceRules.operations");
                errors.not_supported(path, operation, MUTABLE);
            }
        }
    }
}

/// What holds for every binding.
pub(super) fn binding(errors: &mut FieldErrors, spec: &Value) {
    if check::required(errors, "spec.policyName", &spec["policyName"]) {
        check::dns_subdomain(errors, "spec.policyName", &spec["policyName"]);
    }
    param_ref(errors, &spec["paramRef"]);
    if spec["matchResources"].is_object() {
        constraints(errors, "spec.matchResources", &spec["matchResources"]);
    }
}

fn param_ref(errors: &mut FieldErrors, param: &Value) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    if !param.is_object() {
        return;
    }
    let (name, has_selector) = (string(&param["name"]), param["selector"].is_object());
    if !name.is_empty() {
        for message in name::path_segment_errors(name) {
            errors.invalid("spec.paramRef.name", &param["name"], message);
        }
        if has_selector {
            errors.forbidden("spec.paramRef.name", EXCLUSIVE);
        }
    }
    check::label_selector(errors, "spec.paramRef.selector", &param["selector"]);
    if has_selector && !name.is_empty() {
        errors.forbidden("spec.paramRef.selector", EXCLUSIVE);
    }
    if !has_selector && name.is_empty() {
        errors.required("spec.paramRef", "one of name or selector must be specified");
    }
    check::one_of(
        errors,
        "spec.paramRef.parameterNotFoundAction",
        &param["parameterNotFoundAction"],
        &["Deny", "Allow"],
    );
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
