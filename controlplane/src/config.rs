//! What a control plane is started with: plain, validated values.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use coracle_api::pod_network::{DEFAULT_VXLAN_PORT, Mode};
use ipnet::Ipv4Net;

/// Prefix length of each node's podCIDR: 254 pods, as upstream.
pub(crate) const NODE_MASK_BITS: u8 = 24;

/// Where objects are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StoreEngine {
    /// `DATA_DIR/server/store.db`.
    #[default]
    Sqlite,
    /// Nowhere: gone when the process ends.
    Memory,
    /// In etcd.
    #[cfg(feature = "etcd")]
    Etcd(coracle_store_etcd::EtcdConfig),
}

/// A control plane's configuration.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Everything that lasts: `server/store.db`, `server/pki/`, `admin.kubeconfig`.
    pub data_dir: PathBuf,
    /// Where to listen.
    pub bind: SocketAddr,
    /// What clients and nodes call this server; `bind`'s address, if that is a definite one.
    pub advertise: IpAddr,
    /// The node that runs in this process, if one does: its name is in the server certificate, and
    /// its Node has the role of a control plane.
    pub own_node: Option<String>,
    /// What this machine calls itself: where several servers share a store, each is known by it.
    pub host_name: String,
    /// More names for the server certificate.
    pub names: Vec<String>,
    /// Where ClusterIPs come from.
    pub service_cidr: Ipv4Net,
    /// Where nodes get their podCIDRs from.
    pub cluster_cidr: Ipv4Net,
    /// How pods of different nodes reach each other.
    pub pod_network: Mode,
    /// UDP port of the overlay between nodes.
    pub vxlan_port: u16,
    /// Where objects are kept.
    pub store: StoreEngine,
    /// Where the administrator's kubeconfig goes.
    pub kubeconfig_out: PathBuf,
    /// Static bearer tokens, as [`coracle_apiserver::token_file`] reads them.
    pub token_auth_file: Option<PathBuf>,
    /// How long a node may be silent before it is `Unknown`.
    pub node_monitor_grace: Duration,
    /// How long pods stay on an unreachable node.
    pub eviction_timeout: Duration,
}

/// Why a configuration cannot work.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerConfigError {
    /// The service range is too small or too large.
    #[error(
        "--service-cidr {cidr} cannot be used: expected an IPv4 range of /12 to /28, such as 10.96.0.0/16"
    )]
    ServiceCidr {
        /// What was given.
        cidr: Ipv4Net,
    },
    /// The pod range is too small.
    #[error(
        "--cluster-cidr {cidr} cannot be used: expected an IPv4 range of /8 to /24, such as 10.244.0.0/16"
    )]
    ClusterCidr {
        /// What was given.
        cidr: Ipv4Net,
    },
    /// The ranges share addresses.
    #[error(
        "--service-cidr {service} and --cluster-cidr {cluster} overlap: choose ranges that share no address"
    )]
    Overlap {
        /// The service range.
        service: Ipv4Net,
        /// The pod range.
        cluster: Ipv4Net,
    },
    /// No port for the overlay.
    #[error(
        "--vxlan-port 0 cannot be used: expected a UDP port that is free on every node, such as 4789"
    )]
    VxlanPort,
    /// No definite address to advertise.
    #[error("--bind {bind} names no definite address: give one that nodes can reach")]
    Advertise {
        /// What was given.
        bind: SocketAddr,
    },
}

impl ServerConfig {
    /// The defaults for a server with `data_dir` that listens on `bind`.
    pub fn new(data_dir: impl Into<PathBuf>, bind: SocketAddr) -> Self {
        let data_dir = data_dir.into();
        Self {
            kubeconfig_out: data_dir.join("admin.kubeconfig"),
            data_dir,
            bind,
            advertise: bind.ip(),
            own_node: None,
            host_name: "localhost".to_owned(),
            names: Vec::new(),
            service_cidr: Ipv4Net::new_assert([10, 96, 0, 0].into(), 16),
            cluster_cidr: Ipv4Net::new_assert([10, 244, 0, 0].into(), 16),
            pod_network: Mode::default(),
            vxlan_port: DEFAULT_VXLAN_PORT,
            store: StoreEngine::default(),
            token_auth_file: None,
            node_monitor_grace: Duration::from_secs(50),
            eviction_timeout: Duration::from_secs(300),
        }
    }

    /// Checks what does not depend on the machine.
    ///
    /// # Errors
    /// One sentence that names flag, value and expectation.
    pub fn validate(&self) -> Result<(), ServerConfigError> {
        if !(12..=28).contains(&self.service_cidr.prefix_len()) {
            return Err(ServerConfigError::ServiceCidr {
                cidr: self.service_cidr,
            });
        }
        if !(8..=NODE_MASK_BITS).contains(&self.cluster_cidr.prefix_len()) {
            return Err(ServerConfigError::ClusterCidr {
                cidr: self.cluster_cidr,
            });
        }
        if self.service_cidr.contains(&self.cluster_cidr.trunc())
            || self.cluster_cidr.contains(&self.service_cidr.trunc())
        {
            return Err(ServerConfigError::Overlap {
                service: self.service_cidr,
                cluster: self.cluster_cidr,
            });
        }
        if self.vxlan_port == 0 {
            return Err(ServerConfigError::VxlanPort);
        }
        if self.advertise.is_unspecified() {
            return Err(ServerConfigError::Advertise { bind: self.bind });
        }
        Ok(())
    }

    /// The first address of the service range: where the `kubernetes` Service lives.
    pub fn kubernetes_service_ip(&self) -> IpAddr {
        coracle_apiserver::first_service_ip(&self.service_cidr.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut ServerConfig)) -> Option<String> {
        let mut config = ServerConfig::new("/data", "127.0.0.1:6443".parse().unwrap());
        change(&mut config);
        config.validate().err().map(|error| error.to_string())
    }

    #[test]
    fn defaults_are_valid() {
        assert_eq!(check(|_| ()), None);
    }

    #[test]
    fn bad_ranges_name_flag_value_and_expectation() {
        type Change = fn(&mut ServerConfig);
        let cases: [(Change, &str); 4] = [
            (
                |c| c.service_cidr = "10.0.0.0/30".parse().unwrap(),
                "--service-cidr 10.0.0.0/30 cannot be used",
            ),
            (
                |c| c.cluster_cidr = "10.0.0.0/29".parse().unwrap(),
                "--cluster-cidr 10.0.0.0/29 cannot be used",
            ),
            (
                |c| c.cluster_cidr = "10.96.128.0/17".parse().unwrap(),
                "overlap",
            ),
            (
                |c| c.advertise = "0.0.0.0".parse().unwrap(),
                "no definite address",
            ),
        ];
        for (change, expected) in cases {
            let message = check(change).unwrap_or_default();
            assert!(message.contains(expected), "{message}");
        }
    }
}
