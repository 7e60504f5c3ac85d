//! The plan for what a network's pods send out of the cluster: under the node's address, and
//! forwarded whatever the host forwards otherwise.

use ipnet::IpNet;

/// One network of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masquerade {
    /// Its name: networks of a node do not touch each other's rules.
    pub network: String,
    /// Where its pods are on this node.
    pub subnet: IpNet,
    /// Whether what leaves is translated at all.
    pub translate: bool,
    /// Where pods are seen under their own address, besides their own subnet: other pods, nodes.
    pub except: Vec<IpNet>,
}
