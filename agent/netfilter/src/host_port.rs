//! The plan for ports of pods that are published on the node (`hostPort`).

use std::net::IpAddr;

use crate::service::Protocol;

/// One published port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPort {
    /// Transport.
    pub protocol: Protocol,
    /// On this address of the node; `None`: on every one but the loopback's.
    pub host_ip: Option<IpAddr>,
    /// On the node.
    pub host_port: u16,
    /// In the pod.
    pub container_port: u16,
}

/// What one pod publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPorts {
    /// Tells the pods apart.
    pub id: String,
    /// The pod's.
    pub address: IpAddr,
    /// Every port.
    pub ports: Vec<HostPort>,
}
