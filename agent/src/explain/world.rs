//! All that an answer follows from: plain data.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use coracle_netfilter::{
    host_port::HostPort,
    node::Overlay,
    service::{ServiceKey, ServiceNetwork, ServiceView, way::Ground},
};
use ipnet::{IpNet, Ipv4Net};

use super::kernel::Kernel;
pub use crate::policy::PolicyPlan;

/// A pod that the node knows of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPod {
    /// `namespace/name`.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The node it runs on.
    pub node: String,
    /// It has the node's addresses.
    pub host_network: bool,
    /// What it publishes on its node.
    pub host_ports: Vec<HostPort>,
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownNode {
    /// Its address.
    pub address: Option<Ipv4Addr>,
    /// Where its pods are.
    pub pod_cidrs: Vec<Ipv4Net>,
}

/// The node's own network of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNetwork {
    /// The bridge that its pods hang on.
    pub bridge: String,
    /// Where they are, once the node knows.
    pub subnet: Option<IpNet>,
    /// Where they are seen under their own address.
    pub no_masquerade: Vec<IpNet>,
}

/// What a node knows and programs.
#[derive(Debug, Clone)]
pub struct World {
    /// The node's name.
    pub node: String,
    /// What keeps the rules of Services.
    pub engine: String,
    /// The same for all of them.
    pub network: ServiceNetwork,
    /// Those that have rules.
    pub services: BTreeMap<ServiceKey, ServiceView>,
    /// Those of them whose rules in the kernel are others yet, and why.
    pub unwritten: BTreeMap<ServiceKey, String>,
    /// Services that nothing is written for, and why.
    pub without_rules: BTreeMap<ServiceKey, String>,
    /// What is wrong with all of them.
    pub trouble: Option<String>,
    /// `None` where nobody enforces any.
    pub policies: Option<PolicyPlan>,
    /// This node's, and those of others that are known.
    pub pods: Vec<KnownPod>,
    /// By name, this one among them.
    pub nodes: BTreeMap<String, KnownNode>,
    /// `None` where it is somebody else's.
    pub own_network: Option<OwnNetwork>,
    /// Who is kept from the overlay between nodes.
    pub overlay: Overlay,
    /// What the kernel says.
    pub kernel: Kernel,
}

impl World {
    pub(super) fn ground(&self) -> Ground<'_> {
        Ground {
            network: &self.network,
            services: &self.services,
            own: &self.kernel.own,
        }
    }

    /// The pod that has this address to itself.
    pub(super) fn pod_at(&self, address: IpAddr) -> Option<&KnownPod> {
        let mut pods = self.pods.iter().filter(|pod| !pod.host_network);
        pods.find(|pod| pod.addresses.contains(&address))
    }

    pub(super) fn pod(&self, name: &str) -> Option<&KnownPod> {
        self.pods.iter().find(|pod| pod.name == name)
    }

    pub(super) fn is_here(&self, node: &str) -> bool {
        self.node == node
    }

    /// The node whose pods have this address.
    pub(super) fn node_of_pod_address(&self, address: IpAddr) -> Option<&str> {
        if let Some(pod) = self.pod_at(address) {
            return Some(&pod.node);
        }
        let IpAddr::V4(address) = address else {
            return None;
        };
        let mut nodes = self.nodes.iter();
        let has = |node: &KnownNode| node.pod_cidrs.iter().any(|cidr| cidr.contains(&address));
        let found = nodes.find(|(_, node)| has(node));
        found.map(|(name, _)| name.as_str())
    }

    /// The node that has this address itself.
    pub(super) fn node_at(&self, address: IpAddr) -> Option<&str> {
        if self.kernel.own.contains(&address) {
            return Some(&self.node);
        }
        let mut nodes = self.nodes.iter();
        let found = nodes.find(|(_, node)| node.address.map(IpAddr::V4) == Some(address));
        found.map(|(name, _)| name.as_str())
    }

    pub(super) fn address_of_node(&self, name: &str) -> Option<IpAddr> {
        let known = self.nodes.get(name).and_then(|node| node.address);
        match known {
            Some(address) => Some(address.into()),
            None => self.network.node_ip.filter(|_| self.is_here(name)),
        }
    }

    /// Whose address this is, in words.
    pub(super) fn owner(&self, address: IpAddr) -> Option<String> {
        if let Some(pod) = self.pod_at(address) {
            return Some(format!("pod {}", pod.name));
        }
        self.node_at(address).map(|node| format!("node {node}"))
    }
}
