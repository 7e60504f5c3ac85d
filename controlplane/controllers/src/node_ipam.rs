//! Gives each Node a `podCIDR` of its own, and tells it how nodes are connected
//! ([`coracle_api::pod_network`]) and whose serving certificates the API server believes
//! ([`coracle_api::kubelet_ca`]). The node in the server's own process gets its role with the
//! range: a node may not give itself one, and whoever takes it away later is not contradicted.
//!
//! What is taken is what the Nodes show as they come and go ([`ranges`]), so nothing can get lost
//! or leak: a range is free again when its Node is gone. One worker decides, after the first full
//! list, so that no two Nodes get the same range.
//!
//! Source: `pkg/controller/nodeipam/ipam/range_allocator.go` at v1.37.

mod ranges;

use std::{collections::BTreeMap, sync::Arc};

use coracle_api::{kubelet_ca, pod_network};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;

use self::ranges::Ranges;
use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{Cache, Change, Key},
    config::ControllersConfig,
    context::Context,
    controller::{Outcome, ReconcileError, Reconciler},
    event_recorder::component::ComponentRecorder,
    writes::Write,
};

const COMPONENT: &str = "cidrAllocator";
/// What `kubectl get nodes` shows as a role.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The controller.
pub(crate) struct NodeIpamController {
    client: Client,
    recorder: ComponentRecorder,
    cluster: Ipv4Net,
    own_node: Option<String>,
    /// See [`told`].
    told: BTreeMap<&'static str, String>,
    nodes: Arc<Cache<Node>>,
    /// Those of the Nodes, and those given out that no Node shows yet.
    ranges: Mutex<Ranges>,
}

impl NodeIpamController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller = Builder::managed_by(manager, "node-ipam-controller", "node_ipam");
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.of(COMPONENT),
            cluster: context.config.cluster_cidr,
            own_node: context.config.own_node.clone(),
            told: told(&context.config),
            nodes: controller.reads(),
            ranges: Mutex::new(Ranges::new(
                context.config.cluster_cidr,
                context.config.node_mask_bits,
            )),
        });
        controller.on_change(&this, Self::node_changed);
        controller.complete(this);
    }

    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        let (node, is_gone) = (change.latest(), matches!(change, Change::Deleted(_)));
        let (key, range) = (Key::of(node.as_ref()), range_of(node));
        match range {
            _ if is_gone => self.ranges.lock().release(&key.name),
            Some(range) => self.ranges.lock().take(&key.name, range),
            // What it has been given may be on its way.
            None => {}
        }
        if is_gone || range.is_none() || !is_told(node, &self.told) {
            queue.add(key);
        }
    }
}

/// One key at a time, and only once all nodes are known.
impl Reconciler for NodeIpamController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(node) = self.present(&key) else {
            return Ok(None);
        };
        if node.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let mut patch = json!({"metadata": {"annotations": self.told}});
        if range_of(&node).is_none() {
            let range = self.choose(&key, &node)?;
            patch["spec"] = json!({"podCIDR": range.to_string(), "podCIDRs": [range.to_string()]});
            if self.own_node.as_ref() == Some(&key.name) {
                patch["metadata"]["labels"] = json!({CONTROL_PLANE: "true"});
            }
        } else if is_told(&node, &self.told) {
            return Ok(None);
        }
        let write = Write::to(&self.client, &*node, "set podCIDR");
        write.patch(patch).await?;
        Ok(None)
    }
}

impl NodeIpamController {
    /// The Node, if there is one. One that went while it was given a range has none any more.
    fn present(&self, key: &Key) -> Option<Arc<Node>> {
        let mut ranges = self.ranges.lock();
        // Not before the lock: of one that has come back meanwhile the range is kept.
        let node = self.nodes.get(key);
        if node.is_none() {
            ranges.release(&key.name);
        }
        node
    }

    /// A range that nobody has, for a Node without one.
    fn choose(&self, key: &Key, node: &Arc<Node>) -> Result<Ipv4Net, ReconcileError> {
        if let Some(range) = self.ranges.lock().give(&key.name) {
            return Ok(range);
        }
        let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
        self.recorder
            .normal(node.as_ref(), "CIDRNotAvailable", message);
        Err(ReconcileError::NotYet(format!(
            "no range is left in {} for node {}",
            self.cluster, key.name
        )))
    }
}

/// What every Node is told, by annotation.
fn told(config: &ControllersConfig) -> BTreeMap<&'static str, String> {
    let authority = &config.kubelet_ca.certificate_pem;
    [
        (pod_network::ANNOTATION, config.pod_network.to_annotation()),
        (kubelet_ca::ANNOTATION, authority.clone()),
    ]
    .into()
}

fn is_told(node: &Node, told: &BTreeMap<&'static str, String>) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    told.iter()
        .all(|(name, value)| annotations.and_then(|all| all.get(*name)) == Some(value))
}

fn range_of(node: &Node) -> Option<Ipv4Net> {
    node.spec.as_ref()?.pod_cidr.as_ref()?.parse().ok()
}
