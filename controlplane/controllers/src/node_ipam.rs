//! Gives each Node a `podCIDR` of its own, and tells it how nodes are connected
//! ([`coracle_api::pod_network`]) and whose serving certificates the API server believes
//! ([`coracle_api::kubelet_ca`]).
//!
//! What is taken is read from the Nodes themselves, so nothing can get lost or leak: a range is
//! free again when its Node is gone. One worker decides, after the first full list, so that no two
//! Nodes get the same range.
//!
//! Source: `pkg/controller/nodeipam/ipam/range_allocator.go` at v1.37.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use coracle_api::{kubelet_ca, pod_network};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;

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

/// The controller.
pub(crate) struct NodeIpamController {
    client: Client,
    recorder: ComponentRecorder,
    cluster: Ipv4Net,
    mask_bits: u8,
    /// See [`told`].
    told: BTreeMap<&'static str, String>,
    nodes: Arc<Cache<Node>>,
    /// Ranges given out that the cache may not show yet, by node name.
    recent: Mutex<HashMap<String, Ipv4Net>>,
}

impl NodeIpamController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller = Builder::managed_by(manager, "node-ipam-controller", "node_ipam");
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.of(COMPONENT),
            cluster: context.config.cluster_cidr,
            mask_bits: context.config.node_mask_bits,
            told: told(&context.config),
            nodes: controller.reads(),
            recent: Mutex::default(),
        });
        controller.on_change(&this, Self::node_changed);
        controller.complete(this);
    }

    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        let node = change.latest();
        if range_of(node).is_none()
            || !is_told(node, &self.told)
            || matches!(change, Change::Deleted(_))
        {
            queue.add(Key::of(node.as_ref()));
        }
    }
}

/// One key at a time, and only once all nodes are known.
impl Reconciler for NodeIpamController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(node) = self.nodes.get(&key) else {
            self.recent.lock().remove(&key.name);
            return Ok(None);
        };
        if node.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let mut patch = json!({"metadata": {"annotations": self.told}});
        if range_of(&node).is_none() {
            let range = self.choose(&key, &node)?;
            patch["spec"] = json!({"podCIDR": range.to_string(), "podCIDRs": [range.to_string()]});
        } else if is_told(&node, &self.told) {
            return Ok(None);
        }
        let write = Write::to(&self.client, &*node, "set podCIDR");
        write.patch(patch).await?;
        Ok(None)
    }
}

impl NodeIpamController {
    /// A range that nobody has, for a Node without one.
    fn choose(&self, key: &Key, node: &Arc<Node>) -> Result<Ipv4Net, ReconcileError> {
        let nodes = self.nodes.all();
        let mut taken: Vec<Ipv4Net> = nodes.iter().filter_map(|node| range_of(node)).collect();
        let given = {
            let mut recent = self.recent.lock();
            // What the cache shows by now needs no second record.
            recent.retain(|name, _| {
                self.nodes
                    .get(&Key::new("", name))
                    .is_some_and(|node| range_of(&node).is_none())
            });
            taken.extend(
                recent
                    .iter()
                    .filter(|(name, _)| **name != key.name)
                    .map(|(_, range)| *range),
            );
            recent.get(&key.name).copied()
        };
        let Some(range) = given.or_else(|| first_free(self.cluster, self.mask_bits, &taken)) else {
            let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
            self.recorder
                .normal(node.as_ref(), "CIDRNotAvailable", message);
            return Err(ReconcileError::NotYet(format!(
                "no range is left in {} for node {}",
                self.cluster, key.name
            )));
        };
        self.recent.lock().insert(key.name.clone(), range);
        Ok(range)
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

/// The first range of `mask_bits` in `cluster` that overlaps none of `taken`.
fn first_free(cluster: Ipv4Net, mask_bits: u8, taken: &[Ipv4Net]) -> Option<Ipv4Net> {
    let mut taken: Vec<Ipv4Net> = taken
        .iter()
        .copied()
        .filter(|range| overlap(cluster, *range))
        .collect();
    taken.sort_by_key(|range| range.network());
    let mut next = 0;
    cluster.subnets(mask_bits).ok()?.find(|candidate| {
        while next < taken.len() && taken[next].broadcast() < candidate.network() {
            next += 1;
        }
        next >= taken.len() || !overlap(*candidate, taken[next])
    })
}

fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_gap_is_given_out() {
        let table: [(&str, u8, &[&str], Option<&str>); 7] = [
            ("10.42.0.0/16", 24, &[], Some("10.42.0.0/24")),
            (
                "10.42.0.0/16",
                24,
                &["10.42.0.0/24", "10.42.2.0/24"],
                Some("10.42.1.0/24"),
            ),
            (
                "10.42.0.0/16",
                24,
                &["10.42.1.0/24", "10.42.0.0/24"],
                Some("10.42.2.0/24"),
            ),
            (
                "10.42.0.0/16",
                24,
                &["10.42.0.0/23", "192.168.0.0/24"],
                Some("10.42.2.0/24"),
            ),
            (
                "10.42.0.0/16",
                24,
                &["10.42.0.128/25"],
                Some("10.42.1.0/24"),
            ),
            ("10.42.0.0/23", 24, &["10.42.0.0/24", "10.42.1.0/24"], None),
            ("10.42.0.0/24", 16, &[], None),
        ];
        for (cluster, bits, taken, expected) in table {
            let taken: Vec<Ipv4Net> = taken.iter().map(|range| range.parse().unwrap()).collect();
            let free = first_free(cluster.parse().unwrap(), bits, &taken);
            assert_eq!(
                free.map(|range| range.to_string()).as_deref(),
                expected,
                "{cluster} {taken:?}"
            );
        }
    }

    #[test]
    fn every_range_is_given_once() {
        let cluster: Ipv4Net = "10.42.0.0/16".parse().unwrap();
        let mut taken = Vec::new();
        while let Some(range) = first_free(cluster, 24, &taken) {
            assert!(!taken.contains(&range));
            taken.push(range);
        }
        assert_eq!(taken.len(), 256);
    }
}
