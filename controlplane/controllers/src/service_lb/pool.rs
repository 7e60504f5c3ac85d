//! The addresses of nodes that Services of type LoadBalancer may have. Pure.
//!
//! Beside upstream's `stableNodeSetPredicates` (KEP-3458) a node has to be ready: there a load
//! balancer in front of the nodes notices one that is not, and here the node is it.
//!
//! Source: `staging/src/k8s.io/cloud-provider/controllers/service/controller.go` at v1.37; the
//! label that chooses nodes is k3s' `svccontroller.k3s.cattle.io/enablelb` by another name.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use coracle_api::load_balancer;
use k8s_openapi::api::core::v1::Node;

use crate::node_state;

/// With it a node takes no traffic of load balancers, whatever its value.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Where any node has it with the value `true`, others take no traffic of load balancers; with
/// `false`, that node takes none.
const CHOSEN: &str = "coracle.dev/load-balancer";

/// What of a Node the pool depends on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    is_chosen: bool,
    /// None, unless it takes traffic.
    addresses: Vec<IpAddr>,
}

impl Part {
    pub(super) fn of(node: &Node) -> Self {
        let labels = node.metadata.labels.as_ref();
        let label = |name: &str| labels.and_then(|labels| labels.get(name));
        let takes_traffic = node_state::is_ready(node)
            && label(EXCLUDED).is_none()
            && label(CHOSEN).is_none_or(|value| value != "false")
            && !load_balancer::is_leaving(node);
        Self {
            is_chosen: label(CHOSEN).is_some_and(|value| value == "true"),
            addresses: if takes_traffic {
                addresses(node)
            } else {
                Vec::new()
            },
        }
    }
}

/// Those that clients outside are told: a node is reached under its internal addresses of a family
/// of which it has no others. What comes to an external one is its proxy's matter.
fn addresses(node: &Node) -> Vec<IpAddr> {
    let all = node.status.as_ref().and_then(|s| s.addresses.as_deref());
    let of = |kind: &str| -> Vec<IpAddr> {
        let all = all.unwrap_or_default().iter();
        all.filter(|address| address.type_ == kind)
            .filter_map(|address| address.address.parse().ok())
            .collect()
    };
    let mut addresses = of("ExternalIP");
    let mut internal = of("InternalIP");
    internal.retain(|ip| {
        addresses
            .iter()
            .all(|other| other.is_ipv4() != ip.is_ipv4())
    });
    addresses.append(&mut internal);
    addresses
}

/// The addresses, each with the nodes that have it.
#[derive(Debug, Default)]
pub(super) struct Pool(BTreeMap<IpAddr, BTreeSet<String>>);

impl Pool {
    /// Of all Nodes that there are.
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a Node>) -> Self {
        let parts: Vec<_> = nodes.map(|node| (node, Part::of(node))).collect();
        let is_restricted = parts.iter().any(|(_, part)| part.is_chosen);
        let mut pool = Self::default();
        for (node, part) in parts {
            if is_restricted && !part.is_chosen {
                continue;
            }
            let name = node.metadata.name.clone().unwrap_or_default();
            for address in part.addresses {
                pool.0.entry(address).or_default().insert(name.clone());
            }
        }
        pool
    }

    /// Its addresses, in their order.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.0.keys().copied()
    }

    /// The nodes that have `address`.
    pub(super) fn nodes_at(&self, address: IpAddr) -> impl Iterator<Item = &String> {
        self.0.get(&address).into_iter().flatten()
    }

    /// Whether any of `nodes` has `address`.
    pub(super) fn is_on(&self, address: IpAddr, nodes: &BTreeSet<String>) -> bool {
        let owners = self.0.get(&address);
        owners.is_some_and(|owners| !owners.is_disjoint(nodes))
    }
}
