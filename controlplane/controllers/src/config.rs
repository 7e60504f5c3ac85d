//! What the controllers are told at start. Plain validated values; nothing here reads files or the
//! environment.

use std::{fmt, time::Duration};

use coracle_api::{load_balancer::Served, pod_network::PodNetwork};
use coracle_telemetry::metrics::MetricsRegistry;
use ipnet::{IpNet, Ipv4Net};

use crate::clock::Clock;

/// A certificate authority with its key.
#[derive(Clone)]
pub struct CertificateAuthority {
    /// PEM.
    pub certificate_pem: String,
    /// PKCS#8 PEM.
    pub key_pem: String,
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("certificate_pem", &self.certificate_pem)
            .finish_non_exhaustive()
    }
}

/// The settings of every controller.
#[derive(Clone)]
pub struct ControllersConfig {
    /// Range that nodes' `podCIDR`s are cut from.
    pub cluster_cidr: Ipv4Net,
    /// Prefix length of one node's `podCIDR`; at least that of `cluster_cidr`, at most 30.
    pub node_mask_bits: u8,
    /// How nodes are connected: told to each of them.
    pub pod_network: PodNetwork,
    /// Signs client certificates of the API.
    pub ca: CertificateAuthority,
    /// Signs the serving certificates of nodes, which clients of the API must not believe.
    pub kubelet_ca: CertificateAuthority,
    /// Where ClusterIPs come from: no node has an address of it. `None` if nobody has said.
    pub service_cidr: Option<IpNet>,
    /// Whether nodes may be at loopback: only where nobody but this machine reaches the API server.
    pub has_loopback_nodes: bool,
    /// The node that runs in the server's own process, if one does.
    pub own_node: Option<String>,
    /// PEM of the bundle published as `kube-root-ca.crt` in each namespace.
    pub root_ca_pem: String,
    /// How often leases and node statuses are looked at.
    pub node_monitor_period: Duration,
    /// How long a node may be silent before its conditions become Unknown.
    pub node_monitor_grace: Duration,
    /// How long a pod that tolerates nothing of its own stays on a node that is not ready or
    /// unreachable.
    pub eviction_timeout: Duration,
    /// How long a node may be missing before its pods are removed.
    pub missing_node_quarantine: Duration,
    /// How many finished pods may stay before the oldest are collected.
    pub terminated_pod_threshold: usize,
    /// How long issued node certificates are valid.
    pub certificate_validity: Duration,
    /// How often the served kinds are discovered again for garbage collection.
    pub discovery_period: Duration,
    /// How long the garbage collector waits at its start for kinds that cannot be listed, before it
    /// goes on without them.
    pub initial_sync_timeout: Duration,
    /// Which Services of type LoadBalancer get addresses of nodes.
    pub load_balancers: Served,
    /// How HorizontalPodAutoscalers scale.
    pub pod_autoscaler: PodAutoscalerConfig,
    /// Where the controllers count what they do.
    pub metrics: MetricsRegistry,
    /// What Jobs and CronJobs go by.
    pub clock: Clock,
}

/// How HorizontalPodAutoscalers scale.
///
/// Source: `cmd/kube-controller-manager/app/options/hpacontroller.go` at v1.37.
#[derive(Debug, Clone, Copy)]
pub struct PodAutoscalerConfig {
    /// How often each is looked at.
    pub sync_period: Duration,
    /// How long the highest recommendation holds before pods go, where behaviours do not say.
    pub downscale_stabilization: Duration,
    /// By what part usage may differ from the target, where behaviours do not say.
    pub tolerance: f64,
    /// How long after a pod's start its CPU is looked at only if it is ready.
    pub cpu_initialization_period: Duration,
    /// A pod that became unready within this time of its start has never been ready.
    pub initial_readiness_delay: Duration,
}

impl Default for PodAutoscalerConfig {
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_secs(300),
            tolerance: 0.1,
            cpu_initialization_period: Duration::from_secs(300),
            initial_readiness_delay: Duration::from_secs(30),
        }
    }
}

impl ControllersConfig {
    /// Upstream's defaults around what has no default: addresses and keys.
    pub fn new(
        cluster_cidr: Ipv4Net,
        ca: CertificateAuthority,
        kubelet_ca: CertificateAuthority,
    ) -> Self {
        Self {
            cluster_cidr,
            node_mask_bits: 24,
            pod_network: PodNetwork {
                cluster_cidr: cluster_cidr.trunc().to_string(),
                ..PodNetwork::default()
            },
            root_ca_pem: ca.certificate_pem.clone(),
            ca,
            kubelet_ca,
            service_cidr: None,
            has_loopback_nodes: false,
            own_node: None,
            node_monitor_period: Duration::from_secs(5),
            node_monitor_grace: Duration::from_secs(50),
            eviction_timeout: Duration::from_secs(300),
            missing_node_quarantine: Duration::from_secs(40),
            terminated_pod_threshold: 12_500,
            certificate_validity: Duration::from_secs(365 * 24 * 3600),
            discovery_period: Duration::from_secs(30),
            initial_sync_timeout: Duration::from_secs(30),
            load_balancers: Served::default(),
            pod_autoscaler: PodAutoscalerConfig::default(),
            metrics: MetricsRegistry::default(),
            clock: Clock::default(),
        }
    }
}

/// Shows everything except the keys.
impl fmt::Debug for ControllersConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllersConfig")
            .field("cluster_cidr", &self.cluster_cidr)
            .field("node_mask_bits", &self.node_mask_bits)
            .field("node_monitor_period", &self.node_monitor_period)
            .field("node_monitor_grace", &self.node_monitor_grace)
            .field("eviction_timeout", &self.eviction_timeout)
            .finish_non_exhaustive()
    }
}
