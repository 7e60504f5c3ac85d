//! What the servers of a cluster share: files, settings, and where etcd is. Pure, but for reading
//! etcd's certificates.
//!
//! As k3s' `CriticalControlArgs`: what would make two servers of one cluster contradict each other.
//! Not here: what belongs to a machine (addresses, directories, `--tls-san`, `--token-auth-file`).

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use coracle_api::{load_balancer::Served, pod_network::Mode};
use coracle_apiserver::pki::Pki;
use coracle_store_etcd::EtcdConfig;
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::JoinError;
use crate::config::ServerConfig;

/// The form of [`Shared`].
const VERSION: u32 = 1;
/// Files that every server has: what is not among them is refused, so that nothing else is written.
const FILES: [&str; 5] = [
    "ca.crt",
    "ca.key",
    "kubelet-ca.crt",
    "kubelet-ca.key",
    "sa.key",
];

/// All of it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shared {
    version: u32,
    /// Of `DATA/server/pki`, by name.
    pub(super) files: BTreeMap<String, String>,
    pub(super) settings: Settings,
    pub(super) etcd: SharedEtcd,
}

/// What the flags of all servers say alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Settings {
    service_cidr: Ipv4Net,
    cluster_cidr: Ipv4Net,
    /// The port of the API, which the `kubernetes` Service names once for all servers.
    port: u16,
    pod_network: Mode,
    vxlan_port: u16,
    /// Of releases before there was any nothing is known, and none of them made the class.
    #[serde(default = "yes")]
    local_storage: bool,
    /// Servers of before have none to say so.
    #[serde(default = "yes")]
    dns: bool,
    /// Before, all that had no class were served.
    #[serde(default)]
    load_balancer: Served,
    node_monitor_grace_secs: u64,
    eviction_timeout_secs: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    control_plane_endpoint: Option<String>,
}

/// Where etcd is, with its certificates as text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SharedEtcd {
    pub(super) endpoints: Vec<String>,
    pub(super) prefix: String,
    #[serde(default)]
    pub(super) ca: Option<String>,
    #[serde(default)]
    pub(super) cert: Option<String>,
    #[serde(default)]
    pub(super) key: Option<String>,
}

impl Shared {
    /// What a server shares that has not joined.
    ///
    /// # Errors
    /// [`JoinError::File`]: a certificate of etcd's cannot be read. Blocks.
    pub(super) fn of(
        config: &ServerConfig,
        pki: &Pki,
        etcd: &EtcdConfig,
    ) -> Result<Self, JoinError> {
        let files = pki.shared_files();
        Ok(Self {
            version: VERSION,
            files: files
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .into(),
            settings: Settings::of(config),
            etcd: SharedEtcd::of(etcd)?,
        })
    }

    /// Reads it; `None` for what this release does not know.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let shared: Self = serde_json::from_slice(text).ok()?;
        let is_whole = shared.files.keys().map(String::as_str).eq(FILES);
        (shared.version == VERSION && is_whole).then_some(shared)
    }

    /// The hash of the cluster's authority, if it is one.
    pub(super) fn ca_hash(&self) -> Option<String> {
        Pki::hash_of(self.files.get("ca.crt")?).ok()
    }

    /// What differs in `other`, by the names that users know.
    pub(super) fn differences(&self, other: &Self) -> Vec<&str> {
        let files = self
            .files
            .iter()
            .filter(|(name, text)| other.files.get(*name) != Some(*text));
        let mut differing: Vec<&str> = files.map(|(name, _)| name.as_str()).collect();
        let settings = self.settings.told().into_iter().zip(other.settings.told());
        let settings = settings.filter(|((_, ours), (_, theirs))| ours != theirs);
        differing.extend(settings.map(|((flag, _), _)| flag));
        if self.etcd != other.etcd {
            differing.push("--store");
        }
        differing
    }
}

fn yes() -> bool {
    true
}

impl Settings {
    pub(super) fn of(config: &ServerConfig) -> Self {
        Self {
            service_cidr: config.service_cidr,
            cluster_cidr: config.cluster_cidr,
            port: config.bind.port(),
            pod_network: config.pod_network,
            vxlan_port: config.vxlan_port,
            local_storage: config.local_storage,
            dns: config.dns,
            load_balancer: config.load_balancer,
            node_monitor_grace_secs: config.node_monitor_grace.as_secs(),
            eviction_timeout_secs: config.eviction_timeout.as_secs(),
            control_plane_endpoint: config.control_plane_endpoint.clone(),
        }
    }

    /// Flags, and what they say.
    fn told(&self) -> [(&'static str, String); 11] {
        [
            ("--service-cidr", self.service_cidr.to_string()),
            ("--cluster-cidr", self.cluster_cidr.to_string()),
            ("--bind", format!("port {}", self.port)),
            ("--pod-network", self.pod_network.to_string()),
            ("--vxlan-port", self.vxlan_port.to_string()),
            ("--no-local-storage", (!self.local_storage).to_string()),
            ("--no-dns", (!self.dns).to_string()),
            ("--load-balancer", self.load_balancer.to_string()),
            (
                "--node-monitor-grace-period",
                self.node_monitor_grace_secs.to_string(),
            ),
            (
                "--pod-eviction-timeout",
                self.eviction_timeout_secs.to_string(),
            ),
            (
                "--control-plane-endpoint",
                self.control_plane_endpoint.clone().unwrap_or_default(),
            ),
        ]
    }

    /// Has a server go by these.
    ///
    /// # Errors
    /// [`JoinError::Contradiction`] names the first flag that was given and says something else.
    pub(super) fn impose(
        &self,
        config: &mut ServerConfig,
        given: &BTreeSet<&'static str>,
    ) -> Result<(), JoinError> {
        let here = Self::of(config).told();
        for ((flag, given_here), (_, theirs)) in here.into_iter().zip(self.told()) {
            if given.contains(flag) && given_here != theirs {
                return Err(JoinError::Contradiction {
                    flag,
                    given: given_here,
                    theirs: if theirs.is_empty() {
                        "none".to_owned()
                    } else {
                        theirs
                    },
                });
            }
        }
        config.service_cidr = self.service_cidr;
        config.cluster_cidr = self.cluster_cidr;
        config.bind.set_port(self.port);
        config.pod_network = self.pod_network;
        config.vxlan_port = self.vxlan_port;
        config.local_storage = self.local_storage;
        config.dns = self.dns;
        config.load_balancer = self.load_balancer;
        config.node_monitor_grace = Duration::from_secs(self.node_monitor_grace_secs);
        config.eviction_timeout = Duration::from_secs(self.eviction_timeout_secs);
        config
            .control_plane_endpoint
            .clone_from(&self.control_plane_endpoint);
        Ok(())
    }
}

impl SharedEtcd {
    fn of(etcd: &EtcdConfig) -> Result<Self, JoinError> {
        let read = |path: &Option<PathBuf>| match path {
            None => Ok(None),
            Some(path) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(Some(text)),
                Err(source) => Err(JoinError::File {
                    operation: "read",
                    path: path.clone(),
                    source,
                }),
            },
        };
        Ok(Self {
            endpoints: etcd.endpoints.clone(),
            prefix: etcd.prefix.clone(),
            ca: read(&etcd.tls.ca)?,
            cert: read(&etcd.tls.cert)?,
            key: read(&etcd.tls.key)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use coracle_apiserver::pki::ServerNames;

    use super::*;

    fn config() -> ServerConfig {
        ServerConfig::new("/data", "127.0.0.1:6443".parse().unwrap())
    }

    #[test]
    fn settings_go_over_and_contradictions_are_told() {
        let mut first = config();
        first.service_cidr = "10.97.0.0/16".parse().unwrap();
        first.pod_network = Mode::Overlay;
        first.control_plane_endpoint = Some("api.example:6443".to_owned());
        let settings = Settings::of(&first);
        let mut second = config();
        settings.impose(&mut second, &BTreeSet::new()).unwrap();
        assert_eq!(Settings::of(&second), settings);
        let mut agreeing = config();
        agreeing.pod_network = Mode::Overlay;
        settings
            .impose(&mut agreeing, &BTreeSet::from(["--pod-network"]))
            .unwrap();
        for (flag, expected) in [
            ("--service-cidr", "--service-cidr 10.96.0.0/16 contradicts"),
            ("--pod-network", "which have overlay"),
            ("--control-plane-endpoint", "which have api.example:6443"),
        ] {
            let refused = settings
                .impose(&mut config(), &BTreeSet::from([flag]))
                .unwrap_err();
            assert!(refused.to_string().contains(expected), "{refused}");
        }
        let mut other = config();
        other.bind.set_port(7443);
        let refused = Settings::of(&config()).impose(&mut other, &BTreeSet::from(["--bind"]));
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.starts_with("--bind port 7443 contradicts"),
            "{refused}"
        );
    }

    #[test]
    fn only_files_that_servers_share_are_taken() {
        let pki = Pki::ephemeral(&ServerNames::default()).unwrap();
        let etcd = EtcdConfig::new(vec!["http://127.0.0.1:2379".to_owned()]);
        let shared = Shared::of(&config(), &pki, &etcd).unwrap();
        let text = serde_json::to_vec(&shared).unwrap();
        assert!(Shared::parse(&text).is_some_and(|again| again == shared));
        assert_eq!(shared.ca_hash(), Some(pki.ca_hash().unwrap()));
        for change in [
            |shared: &mut Shared| drop(shared.files.remove("sa.key")),
            |shared: &mut Shared| {
                drop(shared.files.insert("../store.db".to_owned(), String::new()))
            },
            |shared: &mut Shared| shared.version += 1,
        ] {
            let mut other = shared.clone();
            change(&mut other);
            assert!(Shared::parse(&serde_json::to_vec(&other).unwrap()).is_none());
        }
        let mut other = shared.clone();
        other.settings.vxlan_port = 1;
        other.files.insert("sa.key".to_owned(), "other".to_owned());
        assert_eq!(shared.differences(&other), ["sa.key", "--vxlan-port"]);
    }
}
