//! ResourceQuota: how much a namespace may use altogether.
//!
//! Enforces nothing: that is admission's.
//!
//! Source: `pkg/registry/core/resourcequota/strategy.go`, `pkg/apis/core/validation` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    kinds::podspec::resources,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{self, items, string},
};

/// The strategy of ResourceQuotas.
pub struct ResourceQuota;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ResourceQuota",
    plural: "resourcequotas",
    singular: "resourcequota",
    short_names: &["quota"],
    subresources: &[Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Request",
        "Request represents a minimum amount of cpu/memory that a container may consume.",
    ),
    text(
        "Limit",
        "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
    ),
    AGE,
];

const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
/// What of pods is measured, for scopes that are about pods.
const COMPUTE: &[&str] = &[
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];
const SCOPES: &[&str] = &[
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

impl BuiltIn for ResourceQuota {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ResourceQuota {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Status
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        amounts(&mut errors, "spec.hard", &spec["hard"]);
        scopes(&mut errors, spec);
        scope_selector(&mut errors, spec);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        check::immutable_field(&mut errors, "spec.scopes", new, old);
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        for list in ["hard", "used"] {
            amounts(&mut errors, &format!("status.{list}"), &new["status"][list]);
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let status = &object["status"];
        let mut names: Vec<_> = value::keys(&status["hard"]).collect();
        names.sort_unstable();
        let list = |limits: bool| {
            let names = names
                .iter()
                .filter(|name| name.starts_with("limits") == limits);
            let one = |name: &&str| {
                let used = value::string_or(&status["used"][*name], "0");
                format!("{name}: {used}/{}", string(&status["hard"][*name]))
            };
            names.map(one).collect::<Vec<_>>().join(", ")
        };
        vec![
            cells::name(object),
            list(false).into(),
            list(true).into(),
            cells::age(object, now_secs),
        ]
    }
}

fn amounts(errors: &mut FieldErrors, path: &str, amounts: &Value) {
    for (resource, amount) in amounts.as_object().into_iter().flatten() {
        let path = format!("{path}[{resource}]");
        let name = Value::from(resource.as_str());
        check::qualified_name(errors, &path, &name);
        if !resource.contains('/') && !is_standard(resource) {
            errors.invalid(&path, &name, "must be a standard resource for quotas");
        }
        if let Some(quantity) = resources::quantity(errors, &path, amount) {
            // Counted as objects are, whatever the name says.
            resources::quantity_value(errors, &path, resource, amount, &quantity);
        }
    }
}

fn is_standard(resource: &str) -> bool {
    STANDARD.contains(&resource)
        || resource.starts_with("hugepages-")
        || resource.starts_with("requests.hugepages-")
}

fn scopes(errors: &mut FieldErrors, spec: &Value) {
    const PATH: &str = "spec.scopes";
    let scopes = &spec["scopes"];
    let names: Vec<&str> = items(scopes).iter().map(string).collect();
    for scope in &names {
        if !SCOPES.contains(scope) {
            errors.invalid(PATH, scopes, "unsupported scope");
        }
        applied(errors, PATH, scopes, scope, &spec["hard"]);
    }
    conflicts(errors, PATH, scopes, &names);
}

fn scope_selector(errors: &mut FieldErrors, spec: &Value) {
    const PATH: &str = "spec.scopeSelector.matchExpressions";
    let selector = &spec["scopeSelector"];
    let mut names = Vec::new();
    for (index, requirement) in items(&selector["matchExpressions"]).iter().enumerate() {
        let scope = string(&requirement["scopeName"]);
        scope_requirement(errors, &format!("{PATH}[{index}]"), requirement);
        applied(errors, PATH, selector, scope, &spec["hard"]);
        names.push(scope);
    }
    conflicts(errors, PATH, &spec["scopes"], &names);
}

/// Of each limit that nothing in the scope counts against: it would hold nothing.
fn applied(errors: &mut FieldErrors, path: &str, value: &Value, scope: &str, hard: &Value) {
    for _ in value::keys(hard).filter(|name| is_standard(name) && !counts_in(scope, name)) {
        errors.invalid(path, value, "unsupported scope applied to resource");
    }
}

fn counts_in(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "CrossNamespacePodAffinity"
        | "NotBestEffort"
        | "NotTerminating"
        | "PriorityClass"
        | "Terminating" => resource == "pods" || COMPUTE.contains(&resource),
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
        }
        _ => true,
    }
}

fn conflicts(errors: &mut FieldErrors, path: &str, value: &Value, scopes: &[&str]) {
    for (one, other) in [
        ("BestEffort", "NotBestEffort"),
        ("Terminating", "NotTerminating"),
    ] {
        if scopes.contains(&one) && scopes.contains(&other) {
            errors.invalid(path, value, "conflicting scopes");
        }
    }
}

fn scope_requirement(errors: &mut FieldErrors, path: &str, requirement: &Value) {
    let scope = &requirement["scopeName"];
    if !SCOPES.contains(&string(scope)) {
        errors.invalid(format!("{path}.scopeName"), scope, "unsupported scope");
    }
    let (operator, values) = (
        string(&requirement["operator"]),
        value::len(&requirement["values"]),
    );
    if !matches!(string(scope), "PriorityClass" | "VolumeAttributesClass") && operator != "Exists" {
        let message = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
        errors.invalid(
            format!("{path}.operator"),
            &requirement["operator"],
            message,
        );
    }
    match operator {
        "In" | "NotIn" if values == 0 => errors.required(
            format!("{path}.values"),
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        ),
        "Exists" | "DoesNotExist" if values > 0 => errors.invalid(
            format!("{path}.values"),
            &requirement["values"],
            "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => errors.invalid(
            format!("{path}.operator"),
            &requirement["operator"],
            "not a valid selector operator",
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    #[test]
    fn quotas_are_checked() {
        for (spec, expect) in [
            (
                json!({"hard": {"pods": "4", "requests.cpu": "1", "count/jobs.batch": "2", "requests.example.com/gpu": "1"}}),
                "",
            ),
            (
                json!({"hard": {"x": "1"}}),
                "[spec.hard[x]: Invalid value: \"x\": must be a standard resource for quotas]",
            ),
            (
                json!({"hard": {"pods": "-1"}}),
                "spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0",
            ),
            (
                json!({"hard": {"pods": "500m"}}),
                "spec.hard[pods]: Invalid value: \"500m\": must be an integer",
            ),
            (
                json!({"scopes": ["BestEffort", "NotBestEffort"]}),
                "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes",
            ),
            (
                json!({"hard": {"pods": "1", "cpu": "1", "count/jobs.batch": "1"}, "scopes": ["NotTerminating"]}),
                "",
            ),
            (
                json!({"hard": {"persistentvolumeclaims": "1"}, "scopes": ["VolumeAttributesClass"]}),
                "",
            ),
            (
                json!({"hard": {"pods": "1", "requests.cpu": "1"}, "scopes": ["BestEffort"]}),
                "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource",
            ),
            (
                json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "VolumeAttributesClass", "operator": "Exists"}]}}),
                "spec.scopeSelector.matchExpressions: Invalid value: {\"matchExpressions\":[{\"operator\":\"Exists\",\"scopeName\":\"VolumeAttributesClass\"}]}: unsupported scope applied to resource",
            ),
            (
                json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}),
                "spec.scopeSelector.matchExpressions[0].values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
        ] {
            let found = create_errors(&ResourceQuota, json!({"spec": spec}));
            assert_eq!(
                found.trim_matches(['[', ']']),
                expect.trim_matches(['[', ']'])
            );
        }
        let old = created(&ResourceQuota, json!({"spec": {"hard": {"pods": "1"}}}));
        assert_eq!(
            update_errors(
                &ResourceQuota,
                with(&old, "/spec/scopes", json!(["BestEffort"])),
                &old
            ),
            "spec.scopes: Invalid value: [\"BestEffort\"]: field is immutable"
        );
    }

    #[test]
    fn rows_show_use() {
        let quota = json!({"metadata": {"name": "q"}, "status": {
            "hard": {"pods": "4", "cpu": "2", "limits.cpu": "3"}, "used": {"pods": "1", "limits.cpu": "1"}}});
        assert_eq!(
            json!(ResourceQuota.row(&quota, 0)),
            json!(["q", "cpu: 0/2, pods: 1/4", "limits.cpu: 1/3", "<unknown>"])
        );
    }
}
