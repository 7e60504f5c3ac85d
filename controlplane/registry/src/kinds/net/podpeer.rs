//! PodPeer: of a pod what NetworkPolicies look at, for nodes, which may not read the pods of
//! others.
//!
//! A cut-down Pod: whoever decodes Pods decodes these. What `Peer` does not name is not shown,
//! whatever a Pod may come to have.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json, value::RawValue};

use crate::{
    cells::{self, AGE, NAME, text, wide},
    kinds::core,
    strategy::{BuiltIn, Column, Projection, ResourceInfo, Strategy},
    value::string,
};

/// The strategy of PodPeers, which are only read.
pub struct PodPeer;

static INFO: ResourceInfo = ResourceInfo {
    kind: "PodPeer",
    plural: "podpeers",
    singular: "podpeer",
    verbs: &["get", "list", "watch"],
    ..super::V1
};

const API_VERSION: &str = "net.coracle.dev/v1";

static COLUMNS: &[Column] = &[
    NAME,
    text("Phase", "Where the pod is in its life."),
    text("IP", "The address that traffic of the pod comes from."),
    wide("Node", "The node that the pod runs on."),
    AGE,
];

/// A part that is shown whole, as the pod has it.
type Whole<'a> = Option<&'a RawValue>;

/// What is shown, in the order in which objects are laid out.
#[derive(Deserialize, Serialize)]
struct Peer<'a> {
    #[serde(skip_deserializing)]
    kind: &'static str,
    #[serde(skip_deserializing, rename = "apiVersion")]
    api_version: &'static str,
    #[serde(borrow, default, deserialize_with = "or_default")]
    metadata: Metadata<'a>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    spec: Spec<'a>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    status: Status<'a>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    resource_version: Whole<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    name: Whole<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    namespace: Whole<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    uid: Whole<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    creation_timestamp: Whole<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Whole<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    labels: Whole<'a>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    node_name: Whole<'a>,
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    host_network: bool,
    #[serde(
        borrow,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    init_containers: Vec<Container<'a>>,
    #[serde(
        borrow,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    containers: Vec<Container<'a>>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Container<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    name: Whole<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    restart_policy: Whole<'a>,
    #[serde(borrow, deserialize_with = "or_default")]
    ports: Vec<Port<'a>>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Port<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    name: Whole<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    container_port: Whole<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    protocol: Whole<'a>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Status<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    phase: Whole<'a>,
    #[serde(borrow, rename = "podIP", skip_serializing_if = "Option::is_none")]
    pod_ip: Whole<'a>,
    #[serde(
        borrow,
        rename = "podIPs",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pod_ips: Vec<Address<'a>>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Address<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    ip: Whole<'a>,
}

/// What is null is as good as absent.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    of: D,
) -> Result<T, D::Error> {
    Option::deserialize(of).map(Option::unwrap_or_default)
}

impl Peer<'_> {
    fn drop_nameless_ports(&mut self) {
        let spec = &mut self.spec;
        for containers in [&mut spec.init_containers, &mut spec.containers] {
            containers.retain_mut(|container| {
                container
                    .ports
                    .retain(|port| port.name.is_some_and(|name| name.get() != r#""""#));
                !container.ports.is_empty()
            });
        }
        // What it says of an init container, that it is a sidecar, it does not of others.
        for container in &mut spec.containers {
            container.restart_policy = None;
        }
    }
}

impl BuiltIn for PodPeer {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.nodeName", "status.phase"]
    }
}

impl Projection for PodPeer {
    fn of(&self) -> &'static dyn BuiltIn {
        &core::pod::Pod
    }

    fn project(&self, json: &[u8]) -> serde_json::Result<Vec<u8>> {
        let mut peer: Peer<'_> = serde_json::from_slice(json)?;
        (peer.kind, peer.api_version) = (INFO.kind, API_VERSION);
        peer.drop_nameless_ports();
        serde_json::to_vec(&peer)
    }

    fn openapi_schema(&self) -> Value {
        let text = |said: &str| json!({"type": "string", "description": said});
        let list =
            |said: &str, item: Value| json!({"type": "array", "description": said, "items": item});
        let port = json!({"type": "object", "properties": {
            "name": text("The name by which policies call the port."),
            "containerPort": {"type": "integer", "format": "int32", "description": "Its number."},
            "protocol": text("TCP, UDP or SCTP."),
        }});
        let container = |is_init: bool| {
            let mut container = json!({"type": "object", "properties": {
                "name": text("The container's name."),
                "ports": list("Its ports that have a name.", port.clone()),
            }});
            if is_init {
                container["properties"]["restartPolicy"] = text("Always for a sidecar.");
            }
            container
        };
        json!({
            "type": "object",
            "description": "PodPeer is what NetworkPolicies look at of a pod: a view of the Pod with the same name, which is only read.",
            "properties": {
                "spec": {"type": "object", "description": "Where the pod runs, and its named ports.", "properties": {
                    "nodeName": text("The node that the pod runs on."),
                    "hostNetwork": {"type": "boolean", "description": "Whether it has its node's network."},
                    "initContainers": list("Those that have named ports.", container(true)),
                    "containers": list("Those that have named ports.", container(false)),
                }},
                "status": {"type": "object", "description": "Where traffic of the pod comes from.", "properties": {
                    "phase": text("Where the pod is in its life."),
                    "podIP": text("Its first address."),
                    "podIPs": list("All of its addresses.", json!({"type": "object", "properties": {"ip": text("An address.")}})),
                }},
            },
        })
    }
}

impl Strategy for PodPeer {
    fn field(&self, object: &Value, path: &str) -> String {
        core::pod::Pod.field(object, path)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let shown = |value: &Value| match string(value) {
            "" => cells::NONE.into(),
            text => Value::from(text),
        };
        vec![
            cells::name(object),
            string(&status["phase"]).into(),
            shown(&status["podIP"]),
            shown(&spec["nodeName"]),
            cells::age(object, now_secs),
        ]
    }
}

#[cfg(test)]
mod tests;
