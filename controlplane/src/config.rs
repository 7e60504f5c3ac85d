//! What a control plane is started with: plain, validated values.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use coracle_api::{
    load_balancer::Served,
    pod_network::{DEFAULT_VXLAN_PORT, Mode},
};
use coracle_apiserver::{AdmissionConfig, config::NODE_PORTS, pki::ServerNames};
use coracle_scheduler::SchedulerConfig;
use hyper::http::uri::Authority;
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
    /// More names and addresses for the server certificate.
    pub names: Vec<String>,
    /// `HOST` or `HOST:PORT` at which the API is always reached, whichever server is there: it is
    /// in the certificate, and kubeconfigs name it.
    pub control_plane_endpoint: Option<String>,
    /// Where ClusterIPs come from.
    pub service_cidr: Ipv4Net,
    /// Where nodes get their podCIDRs from.
    pub cluster_cidr: Ipv4Net,
    /// How pods of different nodes reach each other.
    pub pod_network: Mode,
    /// UDP port of the overlay between nodes.
    pub vxlan_port: u16,
    /// Whether there is to be a StorageClass for directories of nodes.
    pub local_storage: bool,
    /// Whether nodes answer names, and there is a Service that tells of it.
    pub dns: bool,
    /// Which Services of type LoadBalancer get addresses of nodes.
    pub load_balancer: Served,
    /// Where objects are kept.
    pub store: StoreEngine,
    /// The token by which servers join, if somebody has chosen it; for a store that is shared.
    pub server_token: Option<String>,
    /// Whether this server has joined others, and goes by what they share.
    pub has_joined: bool,
    /// Where the administrator's kubeconfig goes.
    pub kubeconfig_out: PathBuf,
    /// Static bearer tokens, as [`coracle_apiserver::token_file`] reads them.
    pub token_auth_file: Option<PathBuf>,
    /// What plugins of admission are told.
    pub admission: AdmissionConfig,
    /// How long a node may be silent before it is `Unknown`.
    pub node_monitor_grace: Duration,
    /// How long pods stay on an unreachable node.
    pub eviction_timeout: Duration,
    /// What the scheduler is told.
    pub scheduling: SchedulerConfig,
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
    /// A Service could be given the overlay's port: nodes would send their pods' packets to it.
    #[error(
        "--vxlan-port {port} cannot be used: Services get node ports from {} to {}; choose another, such as 4789, or --pod-network direct, which has no overlay",
        NODE_PORTS.start(),
        NODE_PORTS.end()
    )]
    VxlanNodePort {
        /// What was given.
        port: u16,
    },
    /// The stable address is none.
    #[error(
        "--control-plane-endpoint {endpoint:?} cannot be used: expected HOST or HOST:PORT, such as api.example.org:6443"
    )]
    ControlPlaneEndpoint {
        /// What was given.
        endpoint: String,
    },
    /// A name for the certificate is none.
    #[error("--tls-san {name:?} cannot be used: expected a DNS name or an address")]
    Name {
        /// What was given.
        name: String,
    },
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
            control_plane_endpoint: None,
            service_cidr: Ipv4Net::new_assert([10, 96, 0, 0].into(), 16),
            cluster_cidr: Ipv4Net::new_assert([10, 244, 0, 0].into(), 16),
            pod_network: Mode::default(),
            vxlan_port: DEFAULT_VXLAN_PORT,
            local_storage: true,
            load_balancer: Served::default(),
            dns: true,
            store: StoreEngine::default(),
            server_token: None,
            has_joined: false,
            token_auth_file: None,
            node_monitor_grace: Duration::from_secs(50),
            eviction_timeout: Duration::from_secs(300),
            admission: AdmissionConfig::default(),
            scheduling: SchedulerConfig::default(),
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
        if NODE_PORTS.contains(&self.vxlan_port) && self.pod_network != Mode::Direct {
            return Err(ServerConfigError::VxlanNodePort {
                port: self.vxlan_port,
            });
        }
        self.endpoint()?;
        if let Some(name) = self.names.iter().find(|name| !is_name(name)) {
            return Err(ServerConfigError::Name { name: name.clone() });
        }
        if self.advertise.is_unspecified() {
            return Err(ServerConfigError::Advertise { bind: self.bind });
        }
        Ok(())
    }

    /// Host and port of the address at which the API is always reached.
    fn endpoint(&self) -> Result<Option<(String, Option<u16>)>, ServerConfigError> {
        let Some(endpoint) = &self.control_plane_endpoint else {
            return Ok(None);
        };
        let wrong = || ServerConfigError::ControlPlaneEndpoint {
            endpoint: endpoint.clone(),
        };
        let authority: Authority = endpoint.parse().map_err(|_| wrong())?;
        let port = authority.port_u16();
        let is_whole = match endpoint.strip_prefix(authority.host()) {
            Some("") => true,
            Some(rest) => rest.starts_with(':') && port.is_some(),
            None => false,
        };
        let host = authority.host().trim_matches(['[', ']']);
        if is_whole && is_name(host) {
            Ok(Some((host.to_owned(), port)))
        } else {
            Err(wrong())
        }
    }

    /// What clients of this server are told to connect to; it listens at `advertise`.
    pub(crate) fn url(&self, advertise: SocketAddr) -> String {
        match self.endpoint() {
            Ok(Some((host, port))) => {
                let host = match host.parse::<IpAddr>() {
                    Ok(IpAddr::V6(_)) => format!("[{host}]"),
                    _ => host,
                };
                format!("https://{host}:{}", port.unwrap_or(advertise.port()))
            }
            _ => format!("https://{advertise}"),
        }
    }

    /// All names and addresses of this server beside those that every server has.
    pub(crate) fn server_names(&self) -> ServerNames {
        let endpoint = self.endpoint().ok().flatten().map(|(host, _)| host);
        // It may be anything that the machine is called.
        let host_name = Some(&self.host_name).filter(|name| is_name(name));
        let named = self.names.iter().chain(&self.own_node).chain(host_name);
        let mut names = ServerNames::default();
        for name in named.chain(&endpoint) {
            match name.parse() {
                Ok(address) => names.addresses.push(address),
                Err(_) => names.dns.push(name.to_lowercase()),
            }
        }
        names
            .addresses
            .extend([self.bind.ip(), self.advertise, self.kubernetes_service_ip()]);
        names.addresses.retain(|address| !address.is_unspecified());
        names
    }

    /// The first address of the service range: where the `kubernetes` Service lives.
    pub fn kubernetes_service_ip(&self) -> IpAddr {
        coracle_apiserver::first_service_ip(&self.service_cidr.into())
    }
}

/// A DNS name, perhaps with `*.` before it, or an address.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let rest = name.strip_prefix("*.").unwrap_or(name);
    name.parse::<IpAddr>().is_ok() || (name.len() <= 253 && rest.split('.').all(is_label))
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
        let cases: [(Change, &str); 5] = [
            (
                |c| c.vxlan_port = 32_000,
                "--vxlan-port 32000 cannot be used: Services get node ports from 30000 to 32767",
            ),
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
        let direct = |c: &mut ServerConfig| (c.vxlan_port, c.pod_network) = (32_000, Mode::Direct);
        assert_eq!(check(direct), None, "there is no overlay");
    }
    #[test]
    fn the_stable_address_is_in_certificate_and_kubeconfig() {
        let advertise = "198.18.0.1:7443".parse().unwrap();
        let mut config = ServerConfig::new("/data", advertise);
        assert_eq!(config.url(advertise), "https://198.18.0.1:7443");
        for (endpoint, url) in [
            ("api.example", "https://api.example:7443"),
            ("api.example:443", "https://api.example:443"),
            ("198.18.0.9", "https://198.18.0.9:7443"),
            ("[fd00::1]:443", "https://[fd00::1]:443"),
        ] {
            config.control_plane_endpoint = Some(endpoint.to_owned());
            config.validate().unwrap();
            assert_eq!(config.url(advertise), url);
        }
        config.control_plane_endpoint = Some("api.example".to_owned());
        config.host_name = "Machine-1".to_owned();
        config.names = vec!["198.18.0.9".to_owned(), "other.example".to_owned()];
        let names = config.server_names();
        assert_eq!(names.dns, ["other.example", "machine-1", "api.example"]);
        let addresses = ["198.18.0.9", "198.18.0.1", "198.18.0.1", "10.96.0.1"];
        assert_eq!(
            names.addresses,
            addresses.map(|one| one.parse::<IpAddr>().unwrap())
        );
        config.host_name = "no name".to_owned();
        assert_eq!(config.server_names().dns, ["other.example", "api.example"]);
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for endpoint in ["", "https://api", "a@b", "api:none", "api:70000", "a b"] {
            let said = check(|config| config.control_plane_endpoint = Some(endpoint.to_owned()));
            let said = said.unwrap_or_default();
            assert!(
                said.contains("expected HOST or HOST:PORT"),
                "{endpoint}: {said}"
            );
        }
        for name in ["", "a b", "a..b", "https://a"] {
            let said = check(|config| config.names = vec![name.to_owned()]);
            assert!(
                said.unwrap_or_default().contains("expected a DNS name"),
                "{name}"
            );
        }
    }
}
