//! Pod networking as the runtime sees it: attach a network namespace, get addresses; detach it
//! again.

mod bandwidth;
pub mod cni;
mod node_rules;
mod overlay_record;
pub(crate) mod places;
pub mod port_map;
pub(crate) mod published;
pub mod routes;

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use async_trait::async_trait;

use crate::runtime::types::{PodDns, PodRef, PortMapping, SandboxId};

/// What the overlay takes of every packet: outer IPv4 (20) and UDP (8), VXLAN (8), inner Ethernet
/// (14).
pub(crate) const OVERLAY_OVERHEAD: u32 = 50;

/// What is to be attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNetworkRequest {
    /// CNI_CONTAINERID.
    pub sandbox_id: SandboxId,
    /// CNI_ARGS: K8S_POD_NAMESPACE, K8S_POD_NAME, K8S_POD_UID, K8S_POD_INFRA_CONTAINER_ID.
    pub pod: PodRef,
    /// CNI_NETNS: the pinned namespace file.
    pub netns: PathBuf,
    /// Capability `portMappings`.
    pub port_mappings: Vec<PortMapping>,
    /// Capability `dns`.
    pub dns: PodDns,
    /// Capability `cgroupPath`.
    pub cgroup_parent: String,
    /// What policies select it by.
    pub labels: BTreeMap<String, String>,
    /// Capability `io.kubernetes.cri.pod-annotations`; two of them are the capability `bandwidth`.
    pub annotations: BTreeMap<String, String>,
}

#[cfg(test)]
impl PodNetworkRequest {
    /// Of a pod and its sandbox of one name, which asks for nothing.
    pub(crate) fn named(name: &str) -> Self {
        use crate::runtime::types::PodUid;

        Self {
            sandbox_id: SandboxId(name.to_owned()),
            pod: PodRef {
                namespace: "ns".to_owned(),
                name: name.to_owned(),
                uid: PodUid(name.to_owned()),
            },
            netns: "/nowhere".into(),
            port_mappings: Vec::new(),
            dns: PodDns::default(),
            cgroup_parent: String::new(),
            annotations: BTreeMap::new(),
            labels: BTreeMap::new(),
        }
    }
}

/// Why attaching or detaching failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// No usable configuration in the CNI directory, or no podCIDR yet. Retried until there is one.
    #[error("network is not ready: {why}")]
    NotReady {
        /// What is missing and who provides it.
        why: String,
    },
    /// An annotation of the pod says what no pod can have. Stays so until the pod is made anew.
    #[error("reading pod bandwidth annotations: {why}")]
    Bandwidth {
        /// In upstream's words.
        why: String,
    },
    /// A plugin answered with an error.
    #[error("plugin {plugin} failed ({command}): {message} (code {code})")]
    Plugin {
        /// `type` in the configuration.
        plugin: String,
        /// `ADD`, `DEL`, `CHECK`.
        command: &'static str,
        /// The CNI error code.
        code: u32,
        /// The plugin's `msg` and `details`.
        message: String,
    },
    /// A plugin could not be run.
    #[error("run plugin {plugin} ({command})")]
    Exec {
        /// `type` in the configuration.
        plugin: String,
        /// `ADD`, `DEL`, `CHECK`.
        command: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Attaches pods to the node's network. Implemented by [`cni`].
#[async_trait]
pub trait PodNetwork: Send + Sync + 'static {
    /// CNI ADD. Idempotent for the same sandbox; on failure everything it made is gone (DEL was
    /// called).
    async fn setup(&self, request: &PodNetworkRequest) -> Result<Vec<IpAddr>, NetworkError>;
    /// CNI DEL. Succeeds when there is nothing left to do, also when the namespace is gone.
    async fn teardown(&self, request: &PodNetworkRequest) -> Result<(), NetworkError>;
    /// CNI CHECK.
    async fn check(&self, request: &PodNetworkRequest) -> Result<(), NetworkError>;
    /// `Ok` when pods can be attached: becomes the node's Ready condition (`NetworkReady`).
    fn ready(&self) -> Result<(), NetworkError>;
}
