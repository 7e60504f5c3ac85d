//! Small pods and nodes for the tests of this crate.

pub(crate) mod volumes;

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::{
    framework::{CycleState, Filter, PreFilter, Status},
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::{Snapshot, Surroundings},
};

pub(crate) fn node(name: &str, cpu: &str) -> Node {
    node_with(
        name,
        json!({}),
        json!({"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}),
    )
}

pub(crate) fn node_with(name: &str, spec: Value, status: Value) -> Node {
    let metadata = json!({"name": name, "labels": {"kubernetes.io/hostname": name}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status}))
        .expect("a node")
}

pub(crate) fn node_of(name: &str, labels: Value) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).expect("a node")
}

pub(crate) fn info(node: &Node) -> NodeInfo {
    NodeInfo::new(node)
}

pub(crate) fn pod(name: &str, cpu: &str) -> PodInfo {
    pod_with(
        name,
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}),
    )
}

pub(crate) fn pod_with(name: &str, spec: Value) -> PodInfo {
    let metadata = json!({"name": name, "namespace": "default", "uid": name});
    pod_of(json!({"metadata": metadata, "spec": spec}))
}

pub(crate) fn pod_of(object: Value) -> PodInfo {
    let pod: Pod = serde_json::from_value(object).expect("a pod");
    PodInfo::new(&pod).expect("complete")
}

/// A few nodes that nobody keeps current.
pub(crate) struct Nodes {
    nodes: Vec<NodeInfo>,
    index: HashMap<String, usize>,
    around: Surroundings,
}

impl Nodes {
    pub(crate) fn of(nodes: &[&NodeInfo]) -> Self {
        let index = nodes
            .iter()
            .enumerate()
            .map(|(position, node)| (node.name.clone(), position))
            .collect();
        Self {
            nodes: nodes.iter().copied().cloned().collect(),
            index,
            around: Surroundings::default(),
        }
    }

    /// What there is beside them.
    pub(crate) fn around(&mut self) -> &mut Surroundings {
        &mut self.around
    }

    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(&self.nodes, &self.index, &self.around)
    }
}

/// What a plugin's PreFilter and Filter say about `pod` on `node`, which is alone.
pub(crate) fn filtered<P: PreFilter + Filter>(
    plugin: &P,
    pod: &PodInfo,
    node: &NodeInfo,
) -> Status {
    let nodes = Nodes::of(&[node]);
    let mut cycle = CycleState::default();
    let (_, status) = plugin.pre_filter(&mut cycle, pod, &nodes.snapshot());
    if status.is_success() {
        plugin.filter(&cycle, pod, node)
    } else {
        status
    }
}

/// The reasons as text.
pub(crate) fn reasons(status: &Status) -> Vec<&str> {
    status
        .reasons()
        .iter()
        .map(|reason| reason.as_str())
        .collect()
}
