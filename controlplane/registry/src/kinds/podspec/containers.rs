//! Checks of containers, of the three lists.
//!
//! Source: `validateContainers`, `validateInitContainers`, `validateEphemeralContainers` in
//! `pkg/apis/core/validation/validation.go` at v1.37.

use std::collections::{BTreeSet, HashMap};

use coracle_api::{name, scheduling::is_sidecar_json, status::FieldErrors};
use serde_json::Value;

use super::{env, probes, resource_claims, resources, restart, security, volumes};
use crate::{
    check,
    value::{items, string},
};

/// What containers are checked against.
pub(super) struct PodContext<'a> {
    /// Names of the good volumes.
    pub(super) volume_names: BTreeSet<&'a str>,
    /// All of them, by name.
    pub(super) volumes: HashMap<&'a Value, &'a Value>,
    pub(super) grace_secs: i64,
    /// The pod's own.
    pub(super) restart_policy: &'a Value,
    /// A Pod, not a template.
    pub(super) is_pod: bool,
    /// The pod does not ask for users of its own.
    pub(super) host_users: bool,
    /// What `resources.claims` may name.
    pub(super) claim_names: BTreeSet<&'a str>,
}

const INIT_ONLY: &str = "may not be set for init containers without restartPolicy=Always";
/// What only makes sense for containers that go on running.
const LONG_RUNNING_FIELDS: [&str; 4] = [
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
];

/// All lists of a pod spec.
pub(super) fn all(errors: &mut FieldErrors, path: &str, spec: &Value, context: &PodContext<'_>) {
    containers(
        errors,
        &format!("{path}.containers"),
        &spec["containers"],
        context,
    );
    init_containers(errors, &format!("{path}.initContainers"), spec, context);
    ephemeral_containers(
        errors,
        &format!("{path}.ephemeralContainers"),
        spec,
        context,
    );
}

fn containers(errors: &mut FieldErrors, path: &str, list: &Value, context: &PodContext<'_>) {
    if items(list).is_empty() {
        errors.required(path, "");
        return;
    }
    let mut names = BTreeSet::new();
    for (index, container) in items(list).iter().enumerate() {
        let path = format!("{path}[{index}]");
        common(errors, &path, container, context);
        if !names.insert(string(&container["name"])) {
            errors.duplicate(format!("{path}.name"), &container["name"]);
        }
        probes::all(errors, &path, container, context.grace_secs);
        restart::policy(errors, &path, container);
    }
    host_port_conflicts(errors, path, list);
}

fn init_containers(errors: &mut FieldErrors, path: &str, spec: &Value, context: &PodContext<'_>) {
    let mut names: BTreeSet<_> = items(&spec["containers"])
        .iter()
        .map(|c| string(&c["name"]))
        .collect();
    for (index, container) in items(&spec["initContainers"]).iter().enumerate() {
        let path = format!("{path}[{index}]");
        common(errors, &path, container, context);
        restart::policy(errors, &path, container);
        if !names.insert(string(&container["name"])) {
            errors.duplicate(format!("{path}.name"), &container["name"]);
        }
        if is_sidecar_json(container) {
            probes::all(errors, &path, container, context.grace_secs);
        } else {
            for field in LONG_RUNNING_FIELDS {
                if !container[field].is_null() {
                    errors.forbidden(format!("{path}.{field}"), INIT_ONLY);
                }
            }
        }
        let alone = Value::Array(vec![container.clone()]);
        host_port_conflicts(errors, &path, &alone);
    }
}

fn ephemeral_containers(
    errors: &mut FieldErrors,
    path: &str,
    spec: &Value,
    context: &PodContext<'_>,
) {
    const REFUSAL: &str = "cannot be set for an Ephemeral Container";
    // All of a container that nobody may rely on such a one for, in upstream's order.
    const FORBIDDEN: [&str; 9] = [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    let lists = ["containers", "initContainers"];
    let mut names: BTreeSet<_> = lists
        .iter()
        .flat_map(|list| items(&spec[*list]))
        .map(|c| string(&c["name"]))
        .collect();
    let targets: BTreeSet<_> = items(&spec["containers"])
        .iter()
        .map(|c| string(&c["name"]))
        .collect();
    for (index, container) in items(&spec["ephemeralContainers"]).iter().enumerate() {
        let path = format!("{path}[{index}]");
        common(errors, &path, container, context);
        if !names.insert(string(&container["name"])) {
            errors.duplicate(format!("{path}.name"), &container["name"]);
        }
        let target = &container["targetContainerName"];
        if !string(target).is_empty() && !targets.contains(string(target)) {
            errors.not_found(format!("{path}.targetContainerName"), target);
        }
        for field in FORBIDDEN {
            let value = &container[field];
            let is_default = field == "resources" && crate::value::len(value) == 0;
            if !value.is_null() && !is_default {
                errors.forbidden(format!("{path}.{field}"), REFUSAL);
            }
        }
        // Their mounts would stay until the pod ends.
        for (index, mount) in items(&container["volumeMounts"]).iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !string(&mount[field]).is_empty() {
                    errors.forbidden(format!("{path}.volumeMounts[{index}].{field}"), REFUSAL);
                }
            }
        }
    }
}

/// What holds for every container.
fn common(errors: &mut FieldErrors, path: &str, container: &Value, context: &PodContext<'_>) {
    let at = |field: &str| format!("{path}.{field}");
    if check::required(errors, &at("name"), &container["name"]) {
        check::dns_label(errors, &at("name"), &container["name"]);
    }
    let image = string(&container["image"]);
    if image.is_empty() {
        errors.required(at("image"), "");
    } else if context.is_pod && image.trim() != image {
        errors.invalid(
            at("image"),
            &container["image"],
            "must not have leading or trailing whitespace",
        );
    }
    let policy = &container["terminationMessagePolicy"];
    check::one_of(
        errors,
        &at("terminationMessagePolicy"),
        policy,
        &["FallbackToLogsOnError", "File"],
    );
    ports(errors, &at("ports"), &container["ports"]);
    env::env(errors, &at("env"), &container["env"]);
    env::env_from(errors, &at("envFrom"), &container["envFrom"]);
    volumes::mounts(
        errors,
        &at("volumeMounts"),
        container,
        &context.volume_names,
    );
    volumes::devices(errors, &at("volumeDevices"), container, &context.volumes);
    check::one_of(
        errors,
        &at("imagePullPolicy"),
        &container["imagePullPolicy"],
        &["Always", "IfNotPresent", "Never"],
    );
    let resources = &container["resources"];
    resources::container(errors, &at("resources"), resources);
    let policies = &container["resizePolicy"];
    restart::resize_policy(
        errors,
        &at("resizePolicy"),
        policies,
        context.restart_policy,
    );
    let claims_path = at("resources.claims");
    resource_claims::used(
        errors,
        &claims_path,
        &resources["claims"],
        &context.claim_names,
    );
    security::container(
        errors,
        &at("securityContext"),
        &container["securityContext"],
        context.host_users,
    );
}

fn ports(errors: &mut FieldErrors, path: &str, ports: &Value) {
    let mut names = BTreeSet::new();
    for (index, port) in items(ports).iter().enumerate() {
        let path = format!("{path}[{index}]");
        let port_name = string(&port["name"]);
        if !port_name.is_empty() {
            let messages = name::port_name_errors(port_name);
            if messages.is_empty() && !names.insert(port_name) {
                errors.duplicate(format!("{path}.name"), &port["name"]);
            }
            check::invalid_all(errors, &format!("{path}.name"), &port["name"], messages);
        }
        let number_path = format!("{path}.containerPort");
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => errors.required(number_path, ""),
            _ => check::port_number(errors, &number_path, &port["containerPort"]),
        }
        if port["hostPort"].as_i64().unwrap_or(0) != 0 {
            check::port_number(errors, &format!("{path}.hostPort"), &port["hostPort"]);
        }
        check::one_of(
            errors,
            &format!("{path}.protocol"),
            &port["protocol"],
            &["SCTP", "TCP", "UDP"],
        );
        if !string(&port["hostIP"]).is_empty() {
            check::ip(errors, &format!("{path}.hostIP"), &port["hostIP"]);
        }
    }
}

/// A port of the node can be given away once.
fn host_port_conflicts(errors: &mut FieldErrors, path: &str, containers: &Value) {
    let mut seen = BTreeSet::new();
    for (index, container) in items(containers).iter().enumerate() {
        for (port_index, port) in items(&container["ports"]).iter().enumerate() {
            let number = port["hostPort"].as_i64().unwrap_or(0);
            if number == 0 {
                continue;
            }
            let key = format!(
                "{}/{}/{number}",
                string(&port["protocol"]),
                string(&port["hostIP"])
            );
            if !seen.insert(key.clone()) {
                errors.duplicate(
                    format!("{path}[{index}].ports[{port_index}].hostPort"),
                    &key.into(),
                );
            }
        }
    }
}
