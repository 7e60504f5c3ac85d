//! Node: a machine that runs pods.

use std::collections::{BTreeSet, HashSet};

use coracle_api::{name, status::FieldErrors};
use serde_json::{Value, json};

use crate::{
    cells::{self, AGE, NAME, NONE, UNKNOWN, text, wide},
    check, fill,
    kinds::podspec::{resources, scheduling},
    lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy, Subresource},
    value::{self, items, string},
};

/// The strategy of Nodes.
pub struct Node;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    scope: Scope::Cluster,
    subresources: &[Subresource::Proxy, Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text("Status", "The status of the node"),
    text("Roles", "The roles of the node"),
    AGE,
    text("Version", "Kubelet Version reported by the node."),
    wide("Internal-IP", "List of addresses reachable to the node."),
    wide("External-IP", "List of addresses reachable to the node."),
    wide(
        "OS-Image",
        "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy)).",
    ),
    wide(
        "Kernel-Version",
        "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64).",
    ),
    wide(
        "Container-Runtime",
        "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2).",
    ),
];

impl BuiltIn for Node {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }
}

impl Strategy for Node {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::object(object, "status");
        pod_cidrs(&mut object["spec"]);
        let status = &mut object["status"];
        if status["allocatable"].is_null() && status["capacity"].is_object() {
            status["allocatable"] = status["capacity"].clone();
        }
        fill::object(status, "daemonEndpoints");
        fill::within(status, "daemonEndpoints", |endpoints| {
            fill::value(endpoints, "kubeletEndpoint", json!({"Port": 0}));
        });
        fill::value(status, "nodeInfo", empty_info());
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        lifecycle::keep(new, old, "status");
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        // The path is upstream's, though the taints are in the spec.
        taints(&mut errors, "metadata.taints", &object["spec"]["taints"]);
        amounts(&mut errors, &object["status"]);
        for (index, cidr) in items(&object["spec"]["podCIDRs"]).iter().enumerate() {
            if string(cidr).parse::<ipnet::IpNet>().is_err() {
                let message = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
                errors.invalid(format!("spec.podCIDRs[{index}]"), cidr, message);
            }
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        let once = |field: &str| {
            let before = &old["spec"][field];
            value::len(before) + string(before).len() > 0 && new["spec"][field] != *before
        };
        if once("podCIDRs") {
            let message = "node updates may not change podCIDR except from \"\" to valid";
            errors.forbidden("spec.podCIDRs", message);
        }
        if once("providerID") {
            let message = "node updates may not change providerID except from \"\" to valid";
            errors.forbidden("spec.providerID", message);
        }
        if string(&new["spec"]["externalID"]) != string(&old["spec"]["externalID"]) {
            errors.forbidden("spec.externalID", "may not be updated");
        }
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        amounts(&mut errors, &new["status"]);
        let addresses = items(&new["status"]["addresses"]);
        let mut seen = HashSet::new();
        for (index, address) in addresses.iter().enumerate() {
            if !seen.insert(address) {
                errors.duplicate(format!("status.addresses[{index}]"), address);
            }
        }
        errors
    }

    fn field(&self, object: &Value, path: &str) -> String {
        match path {
            "spec.unschedulable" => object["spec"]["unschedulable"]
                .as_bool()
                .unwrap_or(false)
                .to_string(),
            _ => String::new(),
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let info = &object["status"]["nodeInfo"];
        vec![
            cells::name(object),
            status(object).into(),
            roles(&object["metadata"]["labels"]).into(),
            cells::age(object, now_secs),
            value::string(&info["kubeletVersion"]).into(),
            address(object, "InternalIP").into(),
            address(object, "ExternalIP").into(),
            value::string_or(&info["osImage"], UNKNOWN).into(),
            value::string_or(&info["kernelVersion"], UNKNOWN).into(),
            value::string_or(&info["containerRuntimeVersion"], UNKNOWN).into(),
        ]
    }
}

/// What the node has: the scheduler reckons with it.
fn amounts(errors: &mut FieldErrors, status: &Value) {
    for list in ["capacity", "allocatable"] {
        for (resource, amount) in status[list].as_object().into_iter().flatten() {
            let path = format!("status.{list}.{resource}");
            if let Some(quantity) = resources::quantity(errors, &path, amount) {
                resources::quantity_value(errors, &path, resource, amount, &quantity);
            }
        }
    }
}

fn status(object: &Value) -> String {
    let ready = value::items(&object["status"]["conditions"])
        .iter()
        .rfind(|condition| condition["type"] == "Ready");
    let status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if object["spec"]["unschedulable"] == true {
        format!("{status},SchedulingDisabled")
    } else {
        status.to_owned()
    }
}

/// From labels `node-role.kubernetes.io/<role>` and `kubernetes.io/role=<role>`.
fn roles(labels: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some("") => {}
            Some(role) => {
                roles.insert(role);
            }
            None if key == "kubernetes.io/role" && value != "" => {
                roles.insert(value::string(value));
            }
            None => {}
        }
    }
    if roles.is_empty() {
        NONE.to_owned()
    } else {
        roles.into_iter().collect::<Vec<_>>().join(",")
    }
}

fn address<'a>(object: &'a Value, kind: &str) -> &'a str {
    value::items(&object["status"]["addresses"])
        .iter()
        .find(|address| address["type"] == kind)
        .map_or(NONE, |address| value::string(&address["address"]))
}

/// Keeps the one CIDR and the list of them in step.
fn pod_cidrs(spec: &mut Value) {
    let first = string(&spec["podCIDRs"][0]).to_owned();
    let single = string(&spec["podCIDR"]).to_owned();
    if first.is_empty() && !single.is_empty() {
        spec["podCIDRs"] = json!([single]);
    } else if !first.is_empty() {
        spec["podCIDR"] = first.into();
    }
}

/// Clients demand all ten texts, also before the node has said them.
fn empty_info() -> Value {
    let fields = [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ];
    fields
        .iter()
        .map(|field| ((*field).to_owned(), Value::from("")))
        .collect()
}

fn taints(errors: &mut FieldErrors, path: &str, taints: &Value) {
    let taints = items(taints);
    let mut seen = HashSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = format!("{path}[{index}]");
        check::qualified_name(errors, &format!("{path}.key"), &taint["key"]);
        let messages = name::label_value_errors(string(&taint["value"]));
        if !messages.is_empty() {
            errors.invalid(format!("{path}.value"), &taint["value"], messages.join(";"));
        }
        scheduling::taint_effect(errors, &format!("{path}.effect"), &taint["effect"], false);
        if !seen.insert((&taint["key"], &taint["effect"])) {
            let message = "taints must be unique by key and effect pair";
            errors.duplicate_because(path, taint, message);
        }
    }
}

#[cfg(test)]
mod tests;
