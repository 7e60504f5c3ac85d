//! Node: a machine that runs pods.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::registry::cells::{self, AGE, NAME, NONE, UNKNOWN, text, wide};
use crate::registry::strategy::{Column, ResourceInfo, Scope, Strategy, Subresource};

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
    wide("OS-Image", "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy))."),
    wide("Kernel-Version", "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64)."),
    wide("Container-Runtime", "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2)."),
];

impl Strategy for Node {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }

    fn field(&self, object: &Value, path: &str) -> String {
        match path {
            "spec.unschedulable" => object["spec"]["unschedulable"].as_bool().unwrap_or(false).to_string(),
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
            cells::string(&info["kubeletVersion"]).into(),
            address(object, "InternalIP").into(),
            address(object, "ExternalIP").into(),
            cells::string_or(&info["osImage"], UNKNOWN).into(),
            cells::string_or(&info["kernelVersion"], UNKNOWN).into(),
            cells::string_or(&info["containerRuntimeVersion"], UNKNOWN).into(),
        ]
    }
}

fn status(object: &Value) -> String {
    let ready = cells::items(&object["status"]["conditions"]).iter().rfind(|condition| condition["type"] == "Ready");
    let status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if object["spec"]["unschedulable"] == true { format!("{status},SchedulingDisabled") } else { status.to_owned() }
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
                roles.insert(cells::string(value));
            }
            None => {}
        }
    }
    if roles.is_empty() { NONE.to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(object: &'a Value, kind: &str) -> &'a str {
    cells::items(&object["status"]["addresses"])
        .iter()
        .find(|address| address["type"] == kind)
        .map_or(NONE, |address| cells::string(&address["address"]))
}
