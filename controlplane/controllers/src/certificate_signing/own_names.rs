//! Whether the names that a node wants to serve under are its own. Pure.
//!
//! A Node's status is what the node says of itself, so it is not enough: the name must be the
//! Node's own, an address one that the node reports and nobody else has: no other node that is
//! there, no Service, no pod, not loopback.
//!
//! Not here: whether the node may have a serving certificate at all (a SubjectAccessReview), and
//! who believes it (those only who trust the nodes' own authority).

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use rcgen::SanType;

use crate::cache::Index;

/// Names that the API server answers to, whatever a node is called.
const NAMES_OF_THE_API: [&str; 5] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
];

/// Why a node does not get a certificate for a name, yet or ever.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotItsOwn {
    #[error("the node does not report the address {0}")]
    NotReported(IpAddr),
    #[error(
        "the address {0} is no node's: it is loopback, link-local, multicast, or mapped into IPv6"
    )]
    Special(IpAddr),
    #[error("the address {0} is in {1}, which is for Services or pods")]
    Reserved(IpAddr, IpNet),
    #[error("the address {0} is that of node {1:?} too, which is ready")]
    Shared(IpAddr, String),
    #[error("the DNS name {0:?} is not the node's name")]
    Name(String),
    #[error("a name that is neither DNS name nor address")]
    Kind,
}

/// What a request for a serving certificate is compared with.
pub(super) struct Surroundings<'a> {
    /// The Node that the subject names.
    pub(super) node: Option<&'a Node>,
    /// All nodes that report one of the addresses, this one among them.
    pub(super) nodes: &'a [Arc<Node>],
    /// Ranges that no node has an address of.
    pub(super) reserved: &'a [IpNet],
    /// Whether loopback is a node's address as good as another.
    pub(super) has_loopback_nodes: bool,
}

impl Surroundings<'_> {
    /// Whether all names that node `own` asks for are its own.
    pub(super) fn check(&self, own: &str, names: &[SanType]) -> Result<(), NotItsOwn> {
        names.iter().try_for_each(|name| match name {
            SanType::DnsName(name) => {
                let name = name.as_str();
                if name == own && !NAMES_OF_THE_API.contains(&name) {
                    Ok(())
                } else {
                    Err(NotItsOwn::Name(name.to_owned()))
                }
            }
            SanType::IpAddress(address) => self.check_address(own, *address),
            _ => Err(NotItsOwn::Kind),
        })
    }

    fn check_address(&self, own: &str, address: IpAddr) -> Result<(), NotItsOwn> {
        if !self.is_ordinary(address) {
            return Err(NotItsOwn::Special(address));
        }
        if let Some(range) = self.reserved.iter().find(|range| range.contains(&address)) {
            return Err(NotItsOwn::Reserved(address, *range));
        }
        if !self.node.is_some_and(|node| reports(node, address)) {
            return Err(NotItsOwn::NotReported(address));
        }
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        let mut others = self.nodes.iter().filter(|node| name(node) != own);
        match others.find(|node| is_ready(node) && reports(node, address)) {
            Some(other) => Err(NotItsOwn::Shared(address, name(other))),
            None => Ok(()),
        }
    }

    fn is_ordinary(&self, address: IpAddr) -> bool {
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let is_loopback = address.is_loopback() && !self.has_loopback_nodes;
        let is_mapped = address.to_canonical() != address;
        let is_several = address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST);
        !(is_link_local || is_loopback || is_mapped || is_several || address.is_unspecified())
    }
}

/// Nodes by what they report, as text.
pub(super) fn by_address() -> Index<Node> {
    Index::new("address", |node: &Node, put| {
        addresses(node).for_each(|address| put(&address.to_string()));
    })
}

fn reports(node: &Node, address: IpAddr) -> bool {
    addresses(node).any(|one| one == address)
}

fn addresses(node: &Node) -> impl Iterator<Item = IpAddr> {
    let addresses = node
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten());
    addresses
        .filter_map(|one| one.address.parse::<IpAddr>().ok())
        .map(|one| one.to_canonical())
}

fn is_ready(node: &Node) -> bool {
    let mut conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
