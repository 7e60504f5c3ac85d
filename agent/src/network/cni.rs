//! Attaches pods through CNI: either the network that the user configured, or Coracle's own.
//!
//! With a configuration directory the first `*.conflist`, `*.conf` or `*.json` in it (by name) is
//! used and its plugins are executed as the CNI specification says. Without one the network is made
//! from the node's podCIDR and the code of `coracle-cni` runs in this process, on a blocking
//! thread; others may chain plugins onto it (`chain`). Does not watch the node: the podCIDR is
//! told through [`CniNetwork::set_pod_cidr`].

mod capabilities;
pub(crate) mod chain;
mod conflist;
mod exec;
mod former;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod own;

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use coracle_netfilter::{ProxyMode, node::Overlay};
use coracle_telemetry::ErrorChain;
use ipnet::{IpNet, Ipv4Net};
use tokio_util::sync::CancellationToken;

use self::{former::Former, own::OwnNetwork};
use crate::{
    blocking::blocking,
    network::{NetworkError, PodNetwork, PodNetworkRequest},
    runtime::types::SandboxId,
};

/// Where things are and what the own network looks like.
#[derive(Debug, Clone)]
pub struct CniConfig {
    /// The user's CNI configuration directory (`/etc/cni/net.d`). `None`: the node's own network.
    pub conf_dir: Option<PathBuf>,
    /// Where the own network is written to, for plugins of others after it; read back for each pod.
    pub chain_dir: Option<PathBuf>,
    /// Where plugins are searched, in order. Empty: `/opt/cni/bin`, `/usr/lib/cni`,
    /// `/usr/libexec/cni`.
    pub plugin_dirs: Vec<PathBuf>,
    /// Cached results, address reservations; survives a reboot harmlessly (`DATA/agent/cni`).
    pub state_dir: PathBuf,
    /// Addresses of all pods of the cluster: traffic to them is never masqueraded.
    pub cluster_cidrs: Vec<IpNet>,
    /// Name of the own network's bridge: `coracle0`.
    pub bridge: String,
    /// MTU of the own network's links; `None` takes that of the node's uplink, less what the
    /// overlay needs, else 1500.
    pub mtu: Option<u32>,
    /// What keeps the own network's rules.
    pub rules: ProxyMode,
    /// The node's address: says which link is the uplink. `None`: the one of the default route.
    pub node_ip: Option<IpAddr>,
}

/// The own network's plugin and name.
const PLUGIN: &str = "coracle-cni";
const NETWORK: &str = "coracle";
/// The link's name inside a pod.
const IFNAME: &str = "eth0";

/// The node's pod network. Cheap to clone: the state is shared.
#[derive(Debug, Clone)]
pub struct CniNetwork {
    backend: Backend,
}

#[derive(Debug, Clone)]
enum Backend {
    /// The user's plugins, and what an earlier run without them has left.
    Configured(Arc<exec::Plugins>, Former),
    /// Coracle's own, and what others have put after it, now or in an earlier run.
    Own(OwnNetwork, Arc<exec::Plugins>),
}

impl CniNetwork {
    /// Makes the object; changes nothing on the node.
    #[must_use]
    pub fn new(config: CniConfig) -> Self {
        let (dirs, state) = (&config.plugin_dirs, &config.state_dir);
        let backend = match &config.conf_dir {
            Some(dir) => {
                let plugins = exec::Plugins::new(dir.clone(), dirs, state);
                let bridge = config.bridge.clone();
                let former = Former::new(OwnNetwork::new(config), bridge);
                Backend::Configured(Arc::new(plugins), former)
            }
            None => {
                let file = config.chain_dir.as_ref().map(|dir| chain::path(dir));
                let chained = exec::Plugins::chained(file, dirs, state);
                Backend::Own(OwnNetwork::new(config), Arc::new(chained))
            }
        };
        Self { backend }
    }

    /// Tells the node's `spec.podCIDR`. Prepares bridge and rules, and repairs them if they were
    /// there before. Remembered on disk. Without effect where the user configured the network.
    ///
    /// # Errors
    /// [`NetworkError::NotReady`] for an IPv6 CIDR; [`NetworkError::Plugin`]: retry.
    pub async fn set_pod_cidr(&self, cidr: IpNet) -> Result<(), NetworkError> {
        self.on_own(move |own| own.set_pod_cidr(cidr)).await
    }

    /// Tells the addresses of all nodes: pods reach them without NAT. Cheap when nothing changed.
    ///
    /// # Errors
    /// [`NetworkError::Plugin`]: retry.
    pub async fn set_node_addresses(&self, addresses: Vec<IpAddr>) -> Result<(), NetworkError> {
        self.on_own(move |own| own.set_node_addresses(&addresses))
            .await
    }

    /// Tells what the way to other nodes takes of every packet: pods attached from now on have so
    /// much smaller an MTU. Cheap when nothing changed.
    ///
    /// # Errors
    /// [`NetworkError::Plugin`]: retry.
    pub async fn set_overhead(&self, overhead: u32) -> Result<(), NetworkError> {
        self.on_own(move |own| own.set_overhead(overhead)).await
    }

    /// Writes again what others removed of the bridge, its rules and the published ports.
    ///
    /// # Errors
    /// [`NetworkError::Plugin`]: retry.
    pub async fn repair(&self) -> Result<(), NetworkError> {
        self.on_own(|own| own.repair()).await
    }

    /// Whether others may have removed some of that, as far as looking is cheap.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        match &self.backend {
            Backend::Configured(..) => false,
            Backend::Own(own, _) => own.is_disturbed(),
        }
    }

    /// Keeps pods from what only nodes write to. Blocks. Without effect where the user configured
    /// the network.
    ///
    /// # Errors
    /// [`NetworkError::Plugin`]: retry.
    pub fn set_overlay(&self, overlay: Overlay) -> Result<(), NetworkError> {
        match &self.backend {
            Backend::Configured(..) => Ok(()),
            Backend::Own(own, _) => own.set_overlay(overlay),
        }
    }

    /// What it keeps pods from.
    pub(crate) fn overlay(&self) -> Overlay {
        match &self.backend {
            Backend::Configured(..) => Overlay::None,
            Backend::Own(own, _) => own.overlay(),
        }
    }

    /// Releases what belongs to sandboxes not in `valid`: for the agent's start, after it has seen
    /// its sandboxes.
    ///
    /// # Errors
    /// [`NetworkError`]; calling again is the way on.
    pub async fn gc(&self, valid: &[SandboxId]) -> Result<(), NetworkError> {
        match &self.backend {
            Backend::Configured(plugins, former) => {
                let plugins = plugins.gc(valid).await;
                former.gc(valid).await.and(plugins)
            }
            Backend::Own(_, chained) => {
                let chained = chained.gc(valid).await;
                let valid = valid.to_vec();
                let own = self.on_own(move |own| own.gc(&valid)).await;
                own.and(chained)
            }
        }
    }

    /// Tells of one that an earlier run has attached: [`Self::repair`] looks after it, too.
    pub fn know(&self, request: &PodNetworkRequest) {
        if let Backend::Own(own, _) = &self.backend {
            own.know(request);
        }
    }

    /// Asks others' plugins whether they could attach a pod, until `shutdown`: [`Self::ready`]
    /// tells what they said last. Only waits where the network is the own one alone.
    pub async fn keep_status(&self, shutdown: CancellationToken) {
        match &self.backend {
            Backend::Configured(plugins, _) | Backend::Own(_, plugins) => {
                plugins.keep_status(shutdown).await;
            }
        }
    }

    /// The range of this node's own network, all of whose pods it has attached.
    #[must_use]
    pub fn own_range(&self) -> Option<Ipv4Net> {
        match &self.backend {
            Backend::Configured(..) => None,
            Backend::Own(own, _) => own.conf().map(|conf| conf.ipam.subnet),
        }
    }

    /// Runs blocking work of the own network; does nothing where the user configured one.
    async fn on_own<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&OwnNetwork) -> Result<T, NetworkError> + Send + 'static,
    ) -> Result<T, NetworkError> {
        match &self.backend {
            Backend::Configured(..) => Ok(T::default()),
            Backend::Own(own, _) => {
                let own = own.clone();
                blocking(move || work(&own)).await
            }
        }
    }
}

#[async_trait]
impl PodNetwork for CniNetwork {
    async fn setup(&self, request: &PodNetworkRequest) -> Result<Vec<IpAddr>, NetworkError> {
        match &self.backend {
            Backend::Configured(plugins, _) => plugins.add(request, None).await,
            Backend::Own(own, chained) => {
                own.begin(&request.sandbox_id);
                let wanted = request.clone();
                let result = self.on_own(move |own| own.setup(&wanted)).await?;
                let added = chained.add(request, Some(&result)).await;
                if added.is_err()
                    && let Err(undo) = self.teardown(request).await
                {
                    tracing::warn!(sandbox = %request.sandbox_id, error = %ErrorChain(&undo), "cannot undo a failed ADD");
                }
                added
            }
        }
    }

    async fn teardown(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        match &self.backend {
            Backend::Configured(plugins, former) => {
                let plugins = plugins.del(request).await;
                former.teardown(request).await.and(plugins)
            }
            Backend::Own(own, chained) => {
                // Last come, first gone; whoever fails keeps no other from its part.
                let chained = chained.del(request).await;
                let released = request.clone();
                self.on_own(move |own| own.teardown(&released)).await?;
                // Ends by itself after two seconds; what it would miss at the agent's end, `gc`
                // finds.
                drop(coracle_telemetry::spawn(
                    "collect a link",
                    own.clone().collect_link(request.clone()),
                ));
                chained
            }
        }
    }

    async fn check(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        match &self.backend {
            Backend::Configured(plugins, _) => plugins.check(request).await,
            Backend::Own(_, chained) => {
                let asked = request.clone();
                self.on_own(move |own| own.check(&asked)).await?;
                chained.check(request).await
            }
        }
    }

    fn ready(&self) -> Result<(), NetworkError> {
        match &self.backend {
            Backend::Configured(plugins, former) => former.ready().and(plugins.ready()),
            Backend::Own(own, chained) => {
                own.ready()?;
                chained.ready()
            }
        }
    }
}
