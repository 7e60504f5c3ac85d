//! Which pods a quota with scopes is about.

use serde_json::{Value, json};

use crate::{meta, quantity::Quantity};

/// The scopes of a quota's `spec`, all in the form of `scopeSelector`.
pub(super) fn requirements(spec: &Value) -> Vec<Value> {
    let plain = meta::get_array(spec, &["scopes"]).iter();
    let plain = plain.map(|scope| json!({"scopeName": scope, "operator": "Exists"}));
    plain
        .chain(
            meta::get_array(spec, &["scopeSelector", "matchExpressions"])
                .iter()
                .cloned(),
        )
        .collect()
}

pub(super) fn matches(requirement: &Value, pod: &Value) -> bool {
    let spec = &pod["spec"];
    let terminates = || {
        spec["activeDeadlineSeconds"]
            .as_i64()
            .is_some_and(|seconds| seconds >= 0)
    };
    match requirement["scopeName"].as_str().unwrap_or_default() {
        "Terminating" => terminates(),
        "NotTerminating" => !terminates(),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => has_class(requirement, meta::get_str(spec, &["priorityClassName"])),
        "CrossNamespacePodAffinity" => looks_elsewhere(spec),
        _ => false,
    }
}

fn has_class(requirement: &Value, class: &str) -> bool {
    let named = || {
        meta::get_array(requirement, &["values"])
            .iter()
            .any(|value| value == class)
    };
    match requirement["operator"].as_str().unwrap_or_default() {
        "Exists" => !class.is_empty(),
        "DoesNotExist" => class.is_empty(),
        "In" => !class.is_empty() && named(),
        "NotIn" => class.is_empty() || !named(),
        _ => false,
    }
}

/// No container says anything about cpu or memory.
fn is_best_effort(pod: &Value) -> bool {
    if let Some(class) = pod["status"]["qosClass"]
        .as_str()
        .filter(|class| !class.is_empty())
    {
        return class == "BestEffort";
    }
    let spec = &pod["spec"];
    let asks = |owner: &Value| {
        let says = |list: &str, name: &str| {
            Quantity::parse(meta::get_str(owner, &["resources", list, name]))
                .is_ok_and(|amount| !amount.is_zero())
        };
        ["requests", "limits"]
            .iter()
            .any(|list| ["cpu", "memory"].iter().any(|name| says(list, name)))
    };
    let containers = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| meta::get_array(spec, &[list]));
    !asks(spec) && !containers.into_iter().any(asks)
}

/// Whether an affinity term names other namespaces.
fn looks_elsewhere(spec: &Value) -> bool {
    let elsewhere = |term: &Value| {
        !meta::get_array(term, &["namespaces"]).is_empty()
            || term.get("namespaceSelector").is_some_and(Value::is_object)
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let affinity = &spec["affinity"][kind];
        meta::get_array(
            affinity,
            &["requiredDuringSchedulingIgnoredDuringExecution"],
        )
        .iter()
        .any(elsewhere)
            || meta::get_array(
                affinity,
                &["preferredDuringSchedulingIgnoredDuringExecution"],
            )
            .iter()
            .any(|weighted| elsewhere(&weighted["podAffinityTerm"]))
    })
}
