//! What an agent is told: plain, validated values, parsed once by the program and passed down by
//! part.
//!
//! Nothing here reads the environment or touches the disk; [`AgentConfig::validate`] only looks at
//! the values.

mod names;
mod node_ports;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

pub use coracle_netfilter::{ProxyMode, has_rules_in_iptables, probe_nftables};
use ipnet::IpNet;

pub use self::{names::StubDomain, node_ports::NodePortAddresses};
use crate::{admission::sysctl::AllowList, eviction::Thresholds, reserved::Reserved};

/// In the agent's directory.
pub(crate) const STORAGE: &str = "storage";
pub(crate) const LOCAL_VOLUMES: &str = "local-volumes";
/// The port kubelets listen on.
pub const DEFAULT_NODE_PORT: u16 = 10250;
/// As many pods as upstream admits to a node by default.
pub const DEFAULT_MAX_PODS: u32 = 110;
/// A node's podCIDR is a /24: without its own, the bridge's and the broadcast address, and with
/// some for pods that are just going.
pub const MOST_OWN_PODS: u32 = 250;
/// The suffix of Service names.
pub const DEFAULT_CLUSTER_DOMAIN: &str = "cluster.local";

/// How the agent reaches the API.
#[derive(Clone)]
pub enum ApiAccess {
    /// Over HTTPS with certificates of its own, obtained with a bootstrap token if there are none
    /// yet.
    Join {
        /// `https://host:port`, one or several: any servers of the cluster.
        servers: Vec<String>,
        /// Where on loopback others on the node reach the servers; 6444, or any where that is
        /// taken, when absent.
        lb_server_port: Option<u16>,
        /// `K10<CA hash>::<id>.<secret>`; may be empty once the node has certificates.
        token: String,
    },
    /// In the same process, already carrying the identity `system:node:NAME`.
    InProcess(kube::Client),
}

/// Everything the agent needs to know.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// `metadata.name` of the Node: a DNS subdomain.
    pub node_name: String,
    /// `InternalIP` of the Node.
    pub node_ip: IpAddr,
    /// Nobody has chosen `node_ip`, it is what the machine has: when DHCP gives it another, the
    /// agent ends to be started again with that.
    pub node_ip_detected: bool,
    /// What survives a reboot, such as `/var/lib/coracle`. The agent's part is `agent/` below it.
    pub data_dir: PathBuf,
    /// What does not: sockets, namespace pins, sandboxes; such as `/run/coracle`.
    pub run_dir: PathBuf,
    /// Where the directories of volumes are that the cluster makes for this node;
    /// [`AgentConfig::storage_dir`] when absent.
    pub local_storage_dir: Option<PathBuf>,
    /// cgroup above `kubepods`, absolute, such as `/` or `/coracle-test`.
    pub cgroup_root: String,
    /// Name servers of pods with `dnsPolicy: ClusterFirst`; this node when empty.
    pub cluster_dns: Vec<IpAddr>,
    /// Whether this node leaves names to others.
    pub no_dns: bool,
    /// Who else is asked for the names below some.
    pub dns_forward: Vec<StubDomain>,
    /// What keeps the rules of Services.
    pub proxy_mode: ProxyMode,
    /// Suffix of Service names.
    pub cluster_domain: String,
    /// Registry mirrors and credentials, in the form of k3s's `registries.yaml`.
    pub registries: Option<PathBuf>,
    /// Directory of CNI network configurations; Coracle's own network when absent.
    pub cni_conf_dir: Option<PathBuf>,
    /// Directory that the own network is written to, for plugins of others after it.
    pub cni_chain_dir: Option<PathBuf>,
    /// Where CNI plugins are looked for.
    pub cni_bin_dirs: Vec<PathBuf>,
    /// The shim; beside the agent's own executable when absent.
    pub shim_path: Option<PathBuf>,
    /// Addresses of all pods: traffic to them is not masqueraded.
    pub cluster_cidr: Option<IpNet>,
    /// Addresses of Services.
    pub service_cidr: Option<IpNet>,
    /// On which of the node's addresses node ports are; all of them when empty.
    pub node_port_addresses: Vec<NodePortAddresses>,
    /// Name of the own network's bridge; nodes that share a network namespace need different ones.
    pub bridge: String,
    /// CA of those who may use the agent's HTTPS API, PEM; only for [`ApiAccess::InProcess`], where
    /// it defaults to the server's in the same data directory.
    pub client_ca: Option<PathBuf>,
    /// Most pods on this node.
    pub max_pods: u32,
    /// Most processes and threads in one pod; as many as the node bears when absent.
    pub pod_max_pids: Option<u32>,
    /// Sysctls beyond the safe ones that pods may set, as names or prefixes that end in `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// How little of memory, disks and process IDs is pressure.
    pub eviction_hard: Thresholds,
    /// Kept from pods for the node's own daemons.
    pub kube_reserved: Reserved,
    /// Kept from pods for the operating system.
    pub system_reserved: Reserved,
    /// Pressure lasts at least this long.
    pub eviction_transition: Duration,
    /// Between two looks at whether pods have to go.
    pub eviction_interval: Duration,
    /// Where the agent's HTTPS API listens.
    pub listen: SocketAddr,
    /// More labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// How often an undisturbed pod is looked at: brings its volumes up to date.
    pub sync_interval: Duration,
    /// How long an orderly stop may take.
    pub stop_timeout: Duration,
    /// Between two heartbeats of the node's Lease.
    pub lease_interval: Duration,
    /// Between two reports of an unchanged node status.
    pub status_interval: Duration,
}

/// A value that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{field} {value:?}: {expected}")]
pub struct ConfigError {
    /// Which one, as the flag is named.
    pub field: &'static str,
    /// As given.
    pub value: String,
    /// What it should be.
    pub expected: String,
}

impl AgentConfig {
    /// A configuration with the default of everything but the node's name and address.
    pub fn new(node_name: impl Into<String>, node_ip: IpAddr) -> Self {
        Self {
            node_name: node_name.into(),
            node_ip,
            node_ip_detected: false,
            data_dir: PathBuf::from("/var/lib/coracle"),
            run_dir: PathBuf::from("/run/coracle"),
            local_storage_dir: None,
            cgroup_root: "/".to_owned(),
            cluster_dns: Vec::new(),
            no_dns: false,
            dns_forward: Vec::new(),
            proxy_mode: ProxyMode::default(),
            cluster_domain: DEFAULT_CLUSTER_DOMAIN.to_owned(),
            registries: None,
            cni_conf_dir: None,
            cni_chain_dir: None,
            cni_bin_dirs: vec![PathBuf::from("/opt/cni/bin"), PathBuf::from("/usr/lib/cni")],
            shim_path: None,
            cluster_cidr: None,
            service_cidr: None,
            node_port_addresses: Vec::new(),
            bridge: "coracle0".to_owned(),
            client_ca: None,
            max_pods: DEFAULT_MAX_PODS,
            pod_max_pids: None,
            allowed_unsafe_sysctls: Vec::new(),
            eviction_hard: Thresholds::default(),
            kube_reserved: Reserved::default(),
            system_reserved: Reserved::default(),
            eviction_transition: Duration::from_secs(300),
            eviction_interval: Duration::from_secs(10),
            listen: SocketAddr::new(node_ip, DEFAULT_NODE_PORT),
            labels: BTreeMap::new(),
            sync_interval: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(10),
            lease_interval: Duration::from_secs(10),
            status_interval: Duration::from_secs(300),
        }
    }

    /// The agent's own directory below the data directory.
    pub fn agent_dir(&self) -> PathBuf {
        self.data_dir.join("agent")
    }

    /// The API servers that were known last.
    pub(crate) fn servers_file(&self) -> PathBuf {
        self.agent_dir().join("servers.json")
    }

    /// The Services that were known last.
    pub(crate) fn names_file(&self) -> PathBuf {
        self.agent_dir().join("names.json")
    }

    /// Whom policies selected last.
    pub(crate) fn selected_file(&self) -> PathBuf {
        self.run_dir.join("policies.json")
    }

    /// What pods have on the disk, one directory each.
    pub(crate) fn pods_dir(&self) -> PathBuf {
        self.agent_dir().join("pods")
    }

    /// Where containers log to, a directory a pod.
    pub(crate) fn logs_dir(&self) -> PathBuf {
        self.agent_dir().join("logs")
    }

    /// Copies of the pods that are to run.
    pub(crate) fn checkpoints_dir(&self) -> PathBuf {
        self.agent_dir().join("checkpoints")
    }

    /// Where the directories of volumes are that the cluster makes for this node.
    pub fn storage_dir(&self) -> PathBuf {
        let own = || self.agent_dir().join(STORAGE);
        self.local_storage_dir.clone().unwrap_or_else(own)
    }

    /// What has been made there, a file a volume.
    pub(crate) fn local_volumes_dir(&self) -> PathBuf {
        self.agent_dir().join(LOCAL_VOLUMES)
    }

    /// Looks for values that cannot work.
    ///
    /// # Errors
    /// The first one found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Some(why) = coracle_api::name::dns_subdomain_error(&self.node_name) {
            return bad("--node-name", self.node_name.clone(), why);
        }
        if self.node_ip.is_unspecified()
            || self.node_ip.is_multicast()
            || self.node_ip == IpAddr::V4(Ipv4Addr::BROADCAST)
        {
            return bad(
                "--node-ip",
                self.node_ip.to_string(),
                "must be an address of this node".to_owned(),
            );
        }
        self.check_paths()?;
        self.check_names()?;
        if !self.cgroup_root.starts_with('/')
            || self.cgroup_root.split('/').any(|part| part == "..")
        {
            return bad(
                "--cgroup-root",
                self.cgroup_root.clone(),
                "must be an absolute path without `..`".to_owned(),
            );
        }
        if self.max_pods == 0 {
            return bad(
                "--max-pods",
                self.max_pods.to_string(),
                "must be 1 or more".to_owned(),
            );
        }
        if self.cni_conf_dir.is_none() && self.max_pods > MOST_OWN_PODS {
            let expected =
                format!("must be {MOST_OWN_PODS} or less: a node has 256 addresses for pods");
            return bad("--max-pods", self.max_pods.to_string(), expected);
        }
        if self.pod_max_pids == Some(0) {
            return bad(
                "--pod-max-pids",
                "0".to_owned(),
                "must be 1 or more, or -1 for no limit".to_owned(),
            );
        }
        if let Err(error) = AllowList::new(&self.allowed_unsafe_sysctls) {
            let expected = "must be a sysctl of a pod's own network or IPC namespace".to_owned();
            return bad("--allowed-unsafe-sysctls", error.0, expected);
        }
        Ok(())
    }

    fn check_paths(&self) -> Result<(), ConfigError> {
        for (field, path) in [("--data-dir", &self.data_dir), ("--run-dir", &self.run_dir)] {
            if !path.is_absolute() {
                return bad(
                    field,
                    path.display().to_string(),
                    "must be an absolute path".to_owned(),
                );
            }
        }
        if let Some(dir) = &self.local_storage_dir
            && !is_plain(dir)
        {
            return bad(
                "--local-storage-directory",
                dir.display().to_string(),
                "must be an absolute path without `.`, `..` and `//`, and not the root directory"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

impl AgentConfig {
    /// Whether the storage directory that somebody has chosen is there: one made in its place would
    /// be on another disk, and out of sight once its own is mounted.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn check_storage(&self) -> Result<(), ConfigError> {
        match &self.local_storage_dir {
            Some(dir) if !dir.is_dir() => bad(
                "--local-storage-directory",
                dir.display().to_string(),
                "must be a directory that is there: make it, or mount its disk".to_owned(),
            ),
            _ => Ok(()),
        }
    }
}

fn bad(field: &'static str, value: String, expected: String) -> Result<(), ConfigError> {
    Err(ConfigError {
        field,
        value,
        expected,
    })
}

/// Whether a path can be compared as text: volumes name it.
fn is_plain(path: &Path) -> bool {
    let text = path.to_str().unwrap_or_default();
    text.strip_prefix('/').is_some_and(|rest| {
        let mut parts = rest.split('/');
        parts.all(|part| !matches!(part, "" | "." | ".."))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AgentConfig {
        AgentConfig::new("n1", IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)))
    }

    #[test]
    fn defaults_are_valid() {
        assert_eq!(config().validate(), Ok(()));
    }

    #[test]
    fn unusable_values_are_named_by_their_flag() {
        type Change = fn(&mut AgentConfig);
        let storage = |path: &str| Some(PathBuf::from(path));
        for path in ["", "/", "disk", "/a/../b", "/a/", "/a//b", "/./a"] {
            let mut config = config();
            config.local_storage_dir = storage(path);
            let error = config.validate().expect_err(path);
            assert_eq!(error.field, "--local-storage-directory");
        }
        let mut fine = config();
        fine.local_storage_dir = storage("/mnt/disk/volumes");
        assert_eq!(fine.validate(), Ok(()));
        let cases: [(&str, Change); 9] = [
            ("--max-pods", |c| c.max_pods = 254),
            ("--node-name", |c| c.node_name = "N_1".to_owned()),
            ("--node-ip", |c| {
                c.node_ip = IpAddr::V4(Ipv4Addr::UNSPECIFIED)
            }),
            ("--data-dir", |c| c.data_dir = PathBuf::from("data")),
            ("--run-dir", |c| c.run_dir = PathBuf::from("run")),
            ("--cgroup-root", |c| c.cgroup_root = "/a/../b".to_owned()),
            ("--max-pods", |c| c.max_pods = 0),
            ("--pod-max-pids", |c| c.pod_max_pids = Some(0)),
            ("--allowed-unsafe-sysctls", |c| {
                c.allowed_unsafe_sysctls = vec!["kernel.*".to_owned()]
            }),
        ];
        for (field, spoil) in cases {
            let mut config = config();
            spoil(&mut config);
            assert_eq!(config.validate().expect_err(field).field, field);
        }
    }
}
