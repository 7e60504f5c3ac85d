//! The plan for what a node's network needs beside Services and policies: ports of pods that are
//! published, masquerade of what leaves, and the overlay that only nodes write to.

use std::{collections::BTreeSet, net::Ipv4Addr};

use ipnet::IpNet;

use crate::{host_port::PodPorts, masquerade::Masquerade};

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePlan {
    /// Of the node's own network; without one there is nothing to masquerade.
    pub masquerade: Option<Masquerade>,
    /// Of every pod that publishes any.
    pub host_ports: Vec<PodPorts>,
    /// Who may not write to it.
    pub overlay: Overlay,
}

/// The overlay between nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Overlay {
    /// Nobody has told yet: what an earlier run has written stays.
    #[default]
    Unknown,
    /// There is none.
    None,
    /// There is one.
    Port(Envelopes),
}

/// What nodes send each other, and who is kept from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelopes {
    /// All pods' addresses: they send none.
    pub pods: IpNet,
    /// UDP.
    pub port: u16,
    /// The other nodes: nobody else's are taken. `None`: who they are is not known, anybody's.
    pub nodes: Option<BTreeSet<Ipv4Addr>>,
}

/// What of a plan has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// [`NodePlan::host_ports`].
    HostPorts,
    /// [`NodePlan::masquerade`].
    Masquerade,
    /// [`NodePlan::overlay`].
    Overlay,
}
