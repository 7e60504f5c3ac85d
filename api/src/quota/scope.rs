//! Which pods and claims a quota with scopes is about.
//!
//! Source: `podMatchesScopeFunc` and `pvcMatchesScopeFunc` in `pkg/quota/v1/evaluator/core` at
//! v1.37.

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

/// Scopes of claims match no pod.
pub(super) fn matches_pod(requirement: &Value, pod: &Value) -> bool {
    let spec = &pod["spec"];
    match requirement["scopeName"].as_str().unwrap_or_default() {
        "Terminating" => has_deadline(pod),
        "NotTerminating" => !has_deadline(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => has_class(requirement, &[meta::get_str(spec, &["priorityClassName"])]),
        "CrossNamespacePodAffinity" => looks_elsewhere(spec),
        _ => false,
    }
}

/// Whether a pod ends by itself some time.
pub(super) fn has_deadline(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds >= 0)
}

/// Scopes of pods match no claim. A claim that is on its way from one class to another is of both:
/// it counts against both quotas until it has arrived.
pub(super) fn matches_claim(requirement: &Value, claim: &Value) -> bool {
    let classes = [
        meta::get_str(claim, &["spec", "volumeAttributesClassName"]),
        meta::get_str(claim, &["status", "currentVolumeAttributesClassName"]),
        meta::get_str(
            claim,
            &[
                "status",
                "modifyVolumeStatus",
                "targetVolumeAttributesClassName",
            ],
        ),
    ];
    requirement["scopeName"] == "VolumeAttributesClass" && has_class(requirement, &classes)
}

/// Whether one of these classes is asked for; empty ones are none.
fn has_class(requirement: &Value, classes: &[&str]) -> bool {
    let values = meta::get_array(requirement, &["values"]);
    let is_named = |class: &&str| values.iter().any(|value| value == class);
    let mut classes = classes.iter().filter(|class| !class.is_empty()).peekable();
    let has_none = classes.peek().is_none();
    match requirement["operator"].as_str().unwrap_or_default() {
        "Exists" => !has_none,
        "DoesNotExist" => has_none,
        "In" => classes.any(is_named),
        "NotIn" => has_none || classes.any(|class| !is_named(class)),
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
