//! What a pod on a node may become there.
//!
//! PodResizeValidator: no more than the node has for pods altogether, and only on Linux.
//!
//! NodeDeclaredFeatureValidator: nothing that the node does not say it can do to a pod that runs.
//!
//! Not here: of what nodes declare, what a ResourceSlice needs; its feature is off upstream.
//!
//! Source: `plugin/pkg/admission/podresize/admission.go`,
//! `plugin/pkg/admission/nodedeclaredfeatures/admission.go` and
//! `k8s.io/component-helpers/nodedeclaredfeatures/features/inplacepodresize` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{
    meta,
    node_features::{GUARANTEED_CPU_RESIZE, POD_LEVEL_RESIZE},
    quantity::Quantity,
    resource_list::{Amounts, amounts_of_json},
    scheduling::pod_requests_of_json,
    status::{Status, quote},
};
use coracle_registry::{
    api_resource::ApiResource,
    resource::Registry,
    store::Store,
    value::{items, string},
};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

const OS: &str = "kubernetes.io/os";

/// Where nodes are found.
struct Nodes {
    store: Store,
    registry: Arc<Registry>,
}

impl Nodes {
    fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
        }
    }

    /// The node that the pod is on.
    async fn of(&self, attributes: &Attributes<'_>) -> Result<Value, Status> {
        let name = string(&attributes.object()["spec"]["nodeName"]);
        let lost = || attributes.forbidden(format_args!("node {} not found", quote(name)));
        let nodes = self.registry.core("nodes").ok_or_else(lost)?;
        let found = self.store.current(nodes, &nodes.key("", name)).await?;
        found.map(|node| node.object).ok_or_else(lost)
    }
}

/// Whether a pod that is on a node becomes another one by this write.
fn changes_placed(attributes: &Attributes<'_>) -> bool {
    let (new, old) = (attributes.object(), attributes.old());
    let is_placed = !string(&new["spec"]["nodeName"]).is_empty();
    is_placed && old.is_some_and(|old| old["spec"] != new["spec"])
}

fn is_update_of_pod(operation: Operation, resource: &ApiResource) -> bool {
    operation == Operation::Update && resource.is_core("pods")
}

// === resize ===

pub(crate) struct PodResizeValidator(Nodes);

impl PodResizeValidator {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self(Nodes::new(parts))
    }
}

#[async_trait]
impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        is_update_of_pod(operation, resource)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if attributes.subresource != "resize" || !changes_placed(attributes) {
            return Ok(());
        }
        let node = self.0.of(attributes).await?;
        check_room(&attributes.object()["spec"], &node)
            .and_then(|()| check_os(&node))
            .map_err(|why| attributes.forbidden(why))
    }
}

/// # Errors
/// What it asks for and the node does not have, whoever else is there.
fn check_room(spec: &Value, node: &Value) -> Result<(), String> {
    let wanted = pod_requests_of_json(spec);
    let there = amounts_of_json(&node["status"]["allocatable"]);
    let of = |amounts: &Amounts, name: &str, read: fn(&Quantity) -> i64| {
        amounts.get(name).map_or(0, read)
    };
    let mut lacks = Vec::new();
    for (name, read) in [
        ("cpu", Quantity::milli_value as fn(&Quantity) -> i64),
        ("memory", Quantity::value),
    ] {
        let (wanted, there) = (of(&wanted, name, read), of(&there, name, read));
        if wanted > there {
            lacks.push(format!("{name}, requested: {wanted}, allocatable: {there}"));
        }
    }
    if lacks.is_empty() {
        return Ok(());
    }
    let lacks = lacks.join("; ");
    Err(format!(
        "Node didn't have enough allocatable resources: {lacks}"
    ))
}

fn check_os(node: &Value) -> Result<(), String> {
    match meta::label(node, OS).unwrap_or_default() {
        "linux" => Ok(()),
        os => Err(format!(
            "pod resize is only supported on linux nodes, node {} is {}",
            quote(meta::name(node)),
            quote(os)
        )),
    }
}

// === features ===

pub(crate) struct NodeDeclaredFeatureValidator(Nodes);

impl NodeDeclaredFeatureValidator {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self(Nodes::new(parts))
    }
}

#[async_trait]
impl Plugin for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        is_update_of_pod(operation, resource)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let is_spec = matches!(attributes.subresource, "" | "resize");
        let old = attributes.old().unwrap_or(&Value::Null);
        if !is_spec || !changes_placed(attributes) {
            return Ok(());
        }
        let needed = needed(attributes.object(), old);
        if needed.is_empty() {
            return Ok(());
        }
        let node = self.0.of(attributes).await?;
        let declared = items(&node["status"]["declaredFeatures"]);
        let missing: Vec<&str> = needed
            .into_iter()
            .filter(|feature| !declared.iter().any(|one| one == feature))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(attributes.forbidden(format_args!(
            "pod update requires features {} which are not available on node {}",
            missing.join(", "),
            quote(meta::name(&node))
        )))
    }
}

/// What a node has to know for the change, in the order of names.
fn needed(new: &Value, old: &Value) -> Vec<&'static str> {
    let cpu = |container: &Value| {
        let amount = string(&container["resources"]["requests"]["cpu"]);
        Quantity::parse(amount).unwrap_or_default()
    };
    let containers = |pod: &Value| -> Vec<Quantity> {
        items(&pod["spec"]["containers"]).iter().map(cpu).collect()
    };
    // A pod of which nothing is known yet may be one.
    let class = string(&old["status"]["qosClass"]);
    let is_guaranteed = matches!(class, "Guaranteed" | "");
    let asked = [
        (
            GUARANTEED_CPU_RESIZE,
            is_guaranteed && containers(new) != containers(old),
        ),
        (
            POD_LEVEL_RESIZE,
            new["spec"]["resources"] != old["spec"]["resources"],
        ),
    ];
    let asked = asked.into_iter().filter(|(_, is_asked)| *is_asked);
    asked.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(cpu: &str, memory: &str, class: &str) -> Value {
        let requests = json!({"cpu": cpu, "memory": memory});
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"qosClass": class}})
    }

    #[test]
    fn a_pod_asks_for_no_more_than_its_node_has() {
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}});
        for (cpu, memory, expect) in [
            ("2", "1Gi", Ok(())),
            (
                "2001m",
                "1Gi",
                Err(
                    "Node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000",
                ),
            ),
            (
                "3",
                "2Gi",
                Err(
                    "Node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; memory, \
                     requested: 2147483648, allocatable: 1073741824",
                ),
            ),
        ] {
            let spec = &pod(cpu, memory, "")["spec"];
            assert_eq!(check_room(spec, &node), expect.map_err(str::to_owned));
        }
    }

    #[test]
    fn pods_are_resized_on_linux() {
        let node = |labels: Value| json!({"metadata": {"name": "n", "labels": labels}});
        assert_eq!(check_os(&node(json!({OS: "linux"}))), Ok(()));
        for (labels, os) in [(json!({OS: "windows"}), "windows"), (json!({}), "")] {
            let why =
                format!("pod resize is only supported on linux nodes, node \"n\" is \"{os}\"");
            assert_eq!(check_os(&node(labels)), Err(why));
        }
    }

    #[test]
    fn what_is_needed_of_a_node_follows_from_the_change() {
        for (old, new, expect) in [
            (("1", "1Gi"), ("1000m", "1Gi"), vec![]),
            (("1", "1Gi"), ("1", "2Gi"), vec![]),
            (("1", "1Gi"), ("2", "1Gi"), vec![GUARANTEED_CPU_RESIZE]),
        ] {
            for (class, is_it) in [("Guaranteed", true), ("Burstable", false)] {
                let (old, new) = (pod(old.0, old.1, class), pod(new.0, new.1, class));
                let expect = if is_it { expect.clone() } else { vec![] };
                assert_eq!(needed(&new, &old), expect, "{old} {new}");
            }
        }
        let (old, mut new) = (pod("1", "1Gi", "Burstable"), pod("1", "1Gi", "Burstable"));
        new["spec"]["resources"] = json!({"requests": {"cpu": "2"}});
        assert_eq!(needed(&new, &old), [POD_LEVEL_RESIZE]);
    }
}
