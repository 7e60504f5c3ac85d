//! The node's own network: `coracle-cni`'s code in this process, on blocking threads.
//!
//! The configuration is generated from the node's podCIDR and remembered on disk, so that pods get
//! their network back while the API server is away. Nothing is executed for a pod unless it
//! publishes ports.

use std::{
    collections::{HashMap, HashSet},
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use coracle_cni::{
    Attachment, CniError, NetConf, bridge,
    conf::{DEFAULT_VERSION, IpamConf, ValidAttachment},
    masquerade,
    netlink::Netlink,
    veth,
};
use coracle_netfilter::iptables::Iptables;
use coracle_telemetry::ErrorChain;
use ipnet::{IpNet, Ipv4Net};

use super::{CniConfig, IFNAME};
use crate::{
    network::{NetworkError, OVERLAY_OVERHEAD, PodNetworkRequest, port_map::PortMaps},
    runtime::types::SandboxId,
};

const PLUGIN: &str = "coracle-cni";
const NETWORK: &str = "coracle";
/// A namespace's links are gone this long after it, or never...
const LINK_GRACE: Duration = Duration::from_secs(2);
/// ...but mostly much sooner.
const LINK_POLL: Duration = Duration::from_millis(100);

/// The generated network. Cheap to clone: the state is shared.
#[derive(Debug, Clone)]
pub(super) struct OwnNetwork {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: CniConfig,
    /// Where the configuration is remembered.
    file: PathBuf,
    conf: Mutex<Option<NetConf>>,
    /// Addresses of all nodes, told before or after the podCIDR.
    nodes: Mutex<Vec<IpAddr>>,
    /// When the rules were found to be right: see [`Iptables::generation`].
    verified: Mutex<Option<u32>>,
    /// What the way to other nodes takes of every packet; unknown until the nodes are.
    overhead: Mutex<Option<u32>>,
    /// Sandboxes whose setup runs, and whether they were torn down meanwhile: then the setup undoes
    /// itself.
    attaching: Mutex<HashMap<SandboxId, bool>>,
    /// Sandboxes whose address is kept until their link is gone.
    releasing: Mutex<HashSet<SandboxId>>,
    ports: PortMaps,
}

impl OwnNetwork {
    pub(super) fn new(config: CniConfig) -> Self {
        let file = config.state_dir.join("network.json");
        // Only what an earlier run of this code wrote; anything else waits for the podCIDR.
        let conf = fs::read(&file)
            .ok()
            .and_then(|bytes| NetConf::parse(&bytes).ok());
        let ports = PortMaps::load(config.state_dir.join("hostports"));
        Self {
            shared: Arc::new(Shared {
                config,
                file,
                conf: Mutex::new(conf),
                nodes: Mutex::default(),
                verified: Mutex::default(),
                overhead: Mutex::default(),
                attaching: Mutex::default(),
                releasing: Mutex::default(),
                ports,
            }),
        }
    }

    pub(super) fn conf(&self) -> Option<NetConf> {
        self.lock().clone()
    }

    /// Blocks.
    pub(super) fn set_pod_cidr(&self, cidr: IpNet) -> Result<(), NetworkError> {
        let IpNet::V4(subnet) = cidr else {
            return Err(NetworkError::NotReady {
                why: format!("podCIDR {cidr} is not IPv4"),
            });
        };
        let known = self.conf();
        if known
            .as_ref()
            .is_some_and(|conf| conf.ipam.subnet == subnet)
        {
            self.refresh_mtu()?;
            return self.repair();
        }
        let mtu = self.mtu(None);
        let conf = self.generate(subnet, mtu);
        conf.validate().map_err(failed("ADD"))?;
        prepare(&conf).map_err(failed("ADD"))?;
        self.remember(conf)
    }

    /// Blocks.
    pub(super) fn set_node_addresses(&self, addresses: &[IpAddr]) -> Result<(), NetworkError> {
        *self
            .shared
            .nodes
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = addresses.to_vec();
        let Some(mut conf) = self.conf() else {
            return Ok(());
        };
        let no_masquerade = self.no_masquerade();
        if conf.no_masquerade == no_masquerade {
            return Ok(());
        }
        conf.no_masquerade = no_masquerade;
        let iptables = Iptables::find()
            .map_err(CniError::from)
            .map_err(failed("ADD"))?;
        masquerade::ensure(&iptables, &conf)
            .map_err(CniError::from)
            .map_err(failed("ADD"))?;
        self.remember(conf)
    }

    /// Pods that are attached from now on leave room for the envelope of the overlay. Blocks.
    pub(super) fn set_overhead(&self, overhead: u32) -> Result<(), NetworkError> {
        *self
            .shared
            .overhead
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(overhead);
        self.refresh_mtu()
    }

    /// The uplink may have changed since the MTU was remembered: another network, another machine.
    fn refresh_mtu(&self) -> Result<(), NetworkError> {
        let Some(mut conf) = self.conf() else {
            return Ok(());
        };
        let mtu = self.mtu(conf.mtu);
        if mtu.is_none() || mtu == conf.mtu {
            return Ok(());
        }
        tracing::info!(before = ?conf.mtu, now = ?mtu, "pods get another MTU from now on");
        conf.mtu = mtu;
        let ensured = Netlink::open()
            .map_err(CniError::from)
            .and_then(|mut netlink| bridge::ensure(&mut netlink, &conf));
        ensured.map_err(failed("ADD"))?;
        self.remember(conf)
    }

    /// For new pods. As long as nobody told what the way to other nodes takes, what was true before
    /// is.
    fn mtu(&self, remembered: Option<u32>) -> Option<u32> {
        let config = &self.shared.config;
        if config.mtu.is_some() {
            return config.mtu;
        }
        let overhead = *self
            .shared
            .overhead
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Some(choose_mtu(
            uplink_mtu(config.node_ip)?,
            overhead,
            remembered,
        ))
    }

    /// Writes again what was removed from bridge and rules. Blocks.
    pub(super) fn repair(&self) -> Result<(), NetworkError> {
        let Some(conf) = self.conf() else {
            return Ok(());
        };
        self.try_repair(&conf).map_err(failed("CHECK"))
    }

    fn try_repair(&self, conf: &NetConf) -> Result<(), CniError> {
        let iptables = Iptables::find()?;
        let generation = iptables.generation();
        bridge::ensure(&mut Netlink::open()?, conf)?;
        let mut verified = self
            .shared
            .verified
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if generation.is_some() && *verified == generation {
            return Ok(());
        }
        masquerade::ensure(&iptables, conf)?;
        self.shared.ports.repair()?;
        // Read before the rules were: what was written since counts as a change and is looked at
        // once more.
        *verified = generation;
        Ok(())
    }

    /// Before [`Self::setup`] is even queued: a teardown that comes first must find it.
    pub(super) fn begin(&self, sandbox: &SandboxId) {
        self.attaching().insert(sandbox.clone(), false);
        self.shared
            .releasing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(sandbox);
    }

    fn attaching(&self) -> MutexGuard<'_, HashMap<SandboxId, bool>> {
        self.shared
            .attaching
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks, longer than whoever asked may want to wait: what is torn down meanwhile is undone.
    pub(super) fn setup(&self, request: &PodNetworkRequest) -> Result<Vec<IpAddr>, NetworkError> {
        let outcome = self.try_setup(request);
        if self.attaching().remove(&request.sandbox_id) != Some(true) {
            return outcome;
        }
        if outcome.is_ok()
            && let Some(conf) = self.conf()
        {
            let ports = self
                .shared
                .ports
                .withdraw(&request.sandbox_id)
                .map_err(CniError::from);
            if let Err(error) = ports.and(coracle_cni::del(&attachment(request), &conf)) {
                tracing::warn!(sandbox = %request.sandbox_id, error = %ErrorChain(&error), "a late ADD is not undone until the next start");
            }
        }
        Err(NetworkError::NotReady {
            why: "the sandbox was torn down while it was attached".into(),
        })
    }

    fn try_setup(&self, request: &PodNetworkRequest) -> Result<Vec<IpAddr>, NetworkError> {
        let conf = self.ready()?;
        let attachment = attachment(request);
        let result = coracle_cni::add(&attachment, &conf).map_err(failed("ADD"))?;
        let addresses = result.addresses();
        if !request.port_mappings.is_empty()
            && let Some(IpAddr::V4(address)) = addresses.first()
            && let Err(error) =
                self.shared
                    .ports
                    .publish(&request.sandbox_id, *address, &request.port_mappings)
        {
            // The caller hears why it failed; what cannot be undone is found by `gc`.
            if let Err(undo) = coracle_cni::del(&attachment, &conf) {
                tracing::warn!(sandbox = %request.sandbox_id, error = %undo, "a failed ADD left its link");
            }
            return Err(failed("ADD")(error.into()));
        }
        Ok(addresses)
    }

    /// Blocks, without waiting for the kernel to delete links. The address stays taken until then:
    /// whoever got it would be a second port with this pod's address.
    pub(super) fn teardown(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        let id = &request.sandbox_id;
        if let Some(cancelled) = self.attaching().get_mut(id) {
            *cancelled = true;
        }
        self.shared
            .releasing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.clone());
        self.shared
            .ports
            .withdraw(id)
            .map_err(CniError::from)
            .map_err(failed("DEL"))
    }

    /// Waits until the sandbox' link is gone, deletes it if the end of its namespace has not done
    /// so after a while, and gives the address back.
    pub(super) async fn collect_link(self, request: PodNetworkRequest) {
        let name = veth::host_name(&request.sandbox_id.0, IFNAME);
        for _ in 0..LINK_GRACE.as_millis() / LINK_POLL.as_millis() {
            tokio::time::sleep(LINK_POLL).await;
            let name = name.clone();
            let looked = tokio::task::spawn_blocking(move || Netlink::open()?.link(&name));
            if matches!(looked.await, Ok(Ok(None))) {
                break;
            }
        }
        match tokio::task::spawn_blocking(move || self.release(&request)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %ErrorChain(&error), "a link and its address stay until the next start")
            }
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "deleting a link ended early")
            }
        }
    }

    fn release(&self, request: &PodNetworkRequest) -> Result<(), CniError> {
        // Attached again meanwhile: link and address are in use.
        if !self
            .shared
            .releasing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&request.sandbox_id)
        {
            return Ok(());
        }
        let Some(conf) = self.conf() else {
            return Ok(());
        };
        coracle_cni::del(&attachment(request), &conf)
    }

    /// Blocks.
    pub(super) fn check(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        coracle_cni::check(&attachment(request), &self.ready()?).map_err(failed("CHECK"))
    }

    /// Blocks.
    pub(super) fn gc(&self, valid: &[SandboxId]) -> Result<(), NetworkError> {
        let Some(mut conf) = self.conf() else {
            return Ok(());
        };
        conf.valid_attachments = valid
            .iter()
            .map(|id| ValidAttachment {
                container_id: id.0.clone(),
                ifname: IFNAME.to_owned(),
            })
            .collect();
        coracle_cni::gc(&conf).map_err(failed("GC"))?;
        self.shared
            .ports
            .retain(valid)
            .map_err(CniError::from)
            .map_err(failed("GC"))
    }

    pub(super) fn ready(&self) -> Result<NetConf, NetworkError> {
        self.conf().ok_or_else(|| NetworkError::NotReady {
            why: "the node has no podCIDR yet".into(),
        })
    }

    fn generate(&self, subnet: Ipv4Net, mtu: Option<u32>) -> NetConf {
        NetConf {
            cni_version: DEFAULT_VERSION.into(),
            name: NETWORK.into(),
            kind: PLUGIN.into(),
            bridge: self.shared.config.bridge.clone(),
            mtu,
            hairpin_mode: true,
            anti_spoof: true,
            ip_masq: true,
            no_masquerade: self.no_masquerade(),
            ipam: IpamConf {
                kind: String::new(),
                subnet: subnet.trunc(),
                range_start: None,
                range_end: None,
                gateway: None,
                data_dir: self.shared.config.state_dir.join("networks"),
            },
            valid_attachments: Vec::new(),
            prev_result: None,
        }
    }

    fn no_masquerade(&self) -> Vec<Ipv4Net> {
        let cidrs = self
            .shared
            .config
            .cluster_cidrs
            .iter()
            .filter_map(|cidr| match cidr {
                IpNet::V4(cidr) => Some(cidr.trunc()),
                IpNet::V6(_) => None,
            });
        let addresses = self
            .shared
            .nodes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut nodes: Vec<Ipv4Net> = addresses
            .iter()
            .filter_map(|address| match address {
                IpAddr::V4(address) => Some(Ipv4Net::from(*address)),
                IpAddr::V6(_) => None,
            })
            .collect();
        nodes.sort();
        nodes.dedup();
        cidrs.chain(nodes).collect()
    }

    fn remember(&self, conf: NetConf) -> Result<(), NetworkError> {
        let path = &self.shared.file;
        let write = || {
            fs::create_dir_all(&self.shared.config.state_dir)?;
            let unfinished = path.with_extension("tmp");
            fs::write(&unfinished, serde_json::to_vec(&conf)?)?;
            fs::rename(&unfinished, path)
        };
        write().map_err(|source| {
            let path = path.clone();
            failed("ADD")(CniError::Io {
                operation: "write",
                path,
                source,
            })
        })?;
        *self.lock() = Some(conf);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<NetConf>> {
        // The value is replaced as a whole: a panic elsewhere leaves it sound.
        self.shared
            .conf
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn prepare(conf: &NetConf) -> Result<(), CniError> {
    coracle_cni::prepare(&mut Netlink::open()?, conf).map(drop)
}

fn attachment(request: &PodNetworkRequest) -> Attachment {
    Attachment {
        container_id: request.sandbox_id.0.clone(),
        ifname: IFNAME.to_owned(),
        netns: Some(request.netns.clone()),
    }
}

fn failed(command: &'static str) -> impl Fn(CniError) -> NetworkError {
    move |error| {
        let wire = error.to_wire(DEFAULT_VERSION);
        let message = if wire.details.is_empty() {
            wire.msg
        } else {
            format!("{}: {}", wire.msg, wire.details)
        };
        NetworkError::Plugin {
            plugin: PLUGIN.into(),
            command,
            code: wire.code,
            message,
        }
    }
}

/// The MTU of the link that has the node's address, else of the one that leads to the default
/// route.
fn uplink_mtu(node_ip: Option<IpAddr>) -> Option<u32> {
    let mut netlink = Netlink::open().ok()?;
    let own = netlink
        .addresses()
        .ok()?
        .into_iter()
        .find(|(_, net)| node_ip == Some(IpAddr::V4(net.addr())));
    let uplink = match own {
        Some((index, _)) => index,
        None => {
            let routes = netlink.routes().ok()?;
            routes
                .iter()
                .find(|route| route.destination.addr() == Ipv4Addr::UNSPECIFIED)?
                .interface?
        }
    };
    let links = netlink.links().ok()?;
    links
        .iter()
        .find(|link| link.index == uplink)
        .map(|link| link.mtu)
}

fn choose_mtu(uplink: u32, overhead: Option<u32>, remembered: Option<u32>) -> u32 {
    let overhead = overhead.unwrap_or_else(|| {
        if remembered == Some(uplink.saturating_sub(OVERLAY_OVERHEAD)) {
            OVERLAY_OVERHEAD
        } else {
            0
        }
    });
    uplink.saturating_sub(overhead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_follows_the_uplink_and_the_way_to_other_nodes() {
        let cases = [
            ((1500, None, None), 1500),
            ((1500, Some(0), None), 1500),
            ((1500, Some(50), Some(1500)), 1450),
            // Remembered from another network.
            ((1450, None, Some(9000)), 1450),
            // Remembered from the overlay, which is not known yet.
            ((1500, None, Some(1450)), 1450),
            ((1500, Some(0), Some(1450)), 1500),
        ];
        for ((uplink, overhead, remembered), expected) in cases {
            assert_eq!(
                choose_mtu(uplink, overhead, remembered),
                expected,
                "{uplink} {overhead:?} {remembered:?}"
            );
        }
    }
}
