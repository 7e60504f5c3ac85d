//! What a pod uses: what it asks for and may use at most, by the names that quotas have for them.
//!
//! Source: `pkg/quota/v1/evaluator/core/pods.go` at v1.37.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize as _;
use serde_json::Value;

use super::one;
use crate::{
    meta,
    resource_list::{Amounts, add, amounts_of_json},
    scheduling::{
        pod_limits_in_force, pod_limits_of_json, pod_requests_in_force, pod_requests_of_json,
    },
};

const NAMES: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// What every container has to say for itself once a quota limits it.
const REQUIRED: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

pub(super) fn is_name(name: &str) -> bool {
    let is_extended = || {
        name.strip_prefix("requests.")
            .is_some_and(|rest| rest.contains('/'))
    };
    NAMES.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
        || is_extended()
}

pub(super) fn usage(total: &mut Amounts, pod: &Value, now: Timestamp) {
    if is_over(pod, now) {
        return;
    }
    total.insert("pods".to_owned(), one());
    let (requests, limits) = in_force(pod);
    add(total, &named(&requests, &limits));
}

/// Requests and limits; what a pod that is resized still has counts until it has given it back.
fn in_force(pod: &Value) -> (Amounts, Amounts) {
    let spec = &pod["spec"];
    let mut statuses = ["containerStatuses", "initContainerStatuses"]
        .iter()
        .flat_map(|list| meta::get_array(pod, &["status", list]));
    let is_told = statuses
        .any(|status| status["resources"].is_object() || status["allocatedResources"].is_object());
    match is_told.then(|| Pod::deserialize(pod)) {
        Some(Ok(pod)) => (
            pod_requests_in_force(&pod, &Amounts::new()),
            pod_limits_in_force(&pod),
        ),
        _ => (pod_requests_of_json(spec), pod_limits_of_json(spec)),
    }
}

/// Finished, or due to be gone.
fn is_over(pod: &Value, now: Timestamp) -> bool {
    if matches!(
        meta::get_str(pod, &["status", "phase"]),
        "Succeeded" | "Failed"
    ) {
        return true;
    }
    let Some(deleted) = meta::deletion_timestamp(pod).and_then(meta::parse_time) else {
        return false;
    };
    let grace = meta::get_i64(pod, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    deleted.saturating_add(grace).is_ok_and(|end| now > end)
}

/// Requests and limits under the names that quotas have for them.
fn named(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut out = Amounts::new();
    for (name, amount) in requests {
        let is_compute = COMPUTE.contains(&name.as_str());
        if is_compute || name.starts_with("hugepages-") {
            out.insert(name.clone(), *amount);
        }
        if is_compute || name.starts_with("hugepages-") || name.contains('/') {
            out.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits
        .iter()
        .filter(|(name, _)| COMPUTE.contains(&name.as_str()))
    {
        out.insert(format!("limits.{name}"), *amount);
    }
    out
}

/// What containers of a pod leave unsaid although a quota limits `names`:
/// `must specify limits.cpu for: a,b; ...`.
#[must_use]
pub fn missing(names: &[&str], pod: &Value) -> Option<String> {
    let spec = &pod["spec"];
    let said = |owner: &Value| {
        let list = |list: &str| amounts_of_json(&owner["resources"][list]);
        named(&list("requests"), &list("limits"))
    };
    let whole = said(spec);
    let required: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| REQUIRED.contains(name) && !whole.contains_key(*name))
        .collect();
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for list in ["containers", "initContainers"] {
        for container in meta::get_array(spec, &[list]) {
            let said = said(container);
            for name in required.iter().filter(|name| !said.contains_key(**name)) {
                missing
                    .entry(name)
                    .or_default()
                    .insert(meta::get_str(container, &["name"]));
            }
        }
    }
    if missing.is_empty() {
        return None;
    }
    let one = |(name, containers): (&str, BTreeSet<&str>)| {
        format!(
            "{name} for: {}",
            containers.into_iter().collect::<Vec<_>>().join(",")
        )
    };
    Some(format!(
        "must specify {}",
        missing.into_iter().map(one).collect::<Vec<_>>().join("; ")
    ))
}
