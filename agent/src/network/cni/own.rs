//! The node's own network: `coracle-cni`'s code in this process, on blocking threads.
//!
//! The configuration is generated from the node's podCIDR and remembered on disk, so that pods get
//! their network back while the API server is away. Nothing is executed for a pod unless it
//! publishes ports. This file keeps what the network is; `attachment` has the pods, `repair` what
//! others have removed.

mod attachment;
mod mtu;
mod repair;

use std::{
    collections::{HashMap, HashSet},
    fs,
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
};

use coracle_cni::{
    CniError, NetConf, bridge,
    conf::{DEFAULT_VERSION, IpamConf, RuntimeConfig},
    masquerade,
    netlink::{Link, Netlink},
};
use coracle_netfilter::node::{NodePlan, Overlay};
use coracle_telemetry::ErrorChain;
use ipnet::{IpNet, Ipv4Net};
use parking_lot::Mutex;

use super::{CniConfig, NETWORK, PLUGIN, chain};
use crate::{
    network::{
        NetworkError, PodNetworkRequest,
        node_rules::NodeRules,
        port_map::{PortMaps, Remembered},
    },
    runtime::types::SandboxId,
};

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
    /// Why there is none, if it is not for want of a podCIDR.
    trouble: Mutex<Option<String>>,
    /// Addresses of all nodes, told before or after the podCIDR.
    nodes: Mutex<Vec<IpAddr>>,
    /// What the way to other nodes takes of every packet; unknown until the nodes are.
    overhead: Mutex<Option<u32>>,
    /// Sandboxes whose setup runs, and whether they were torn down meanwhile: then the setup undoes
    /// itself.
    attaching: Mutex<HashMap<SandboxId, bool>>,
    /// Sandboxes that have a link, and what they had asked for.
    attached: Mutex<HashMap<SandboxId, PodNetworkRequest>>,
    /// Sandboxes whose address is kept until their link is gone.
    releasing: Mutex<HashSet<SandboxId>>,
    ports: PortMaps,
    rules: Arc<NodeRules>,
}

impl OwnNetwork {
    pub(super) fn new(config: CniConfig) -> Self {
        let file = config.state_dir.join("network.json");
        // Only what an earlier run of this code wrote; anything else waits for the podCIDR.
        let conf = fs::read(&file)
            .ok()
            .and_then(|bytes| NetConf::parse(&bytes).ok());
        let ports = Remembered::load(config.state_dir.join("hostports"));
        let plan = NodePlan {
            masquerade: conf.as_ref().map(masquerade::plan),
            host_ports: ports.plan(),
            overlay: Overlay::Unknown,
        };
        let rules = Arc::new(NodeRules::new(config.rules, &config.state_dir, plan));
        Self {
            shared: Arc::new(Shared {
                config,
                file,
                conf: Mutex::new(conf),
                trouble: Mutex::default(),
                nodes: Mutex::default(),
                overhead: Mutex::default(),
                attaching: Mutex::default(),
                attached: Mutex::default(),
                releasing: Mutex::default(),
                ports: PortMaps::new(ports, Arc::clone(&rules)),
                rules,
            }),
        }
    }

    pub(super) fn conf(&self) -> Option<NetConf> {
        self.shared.conf.lock().clone()
    }

    /// Blocks. What fails is told by [`OwnNetwork::ready`] as well.
    pub(super) fn set_pod_cidr(&self, cidr: IpNet) -> Result<(), NetworkError> {
        let set = self.try_set_pod_cidr(cidr);
        let trouble = set.as_ref().err().map(|error| match error {
            NetworkError::NotReady { why } => why.clone(),
            other => ErrorChain(other).to_string(),
        });
        *self.shared.trouble.lock() = trouble;
        set
    }

    fn try_set_pod_cidr(&self, cidr: IpNet) -> Result<(), NetworkError> {
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
        self.refuse_others(subnet)?;
        let mtu = self.mtu(None);
        let conf = self.generate(subnet, mtu);
        conf.validate().map_err(failed("ADD"))?;
        let ensured = Netlink::open()
            .map_err(CniError::from)
            .and_then(|mut netlink| self.prepare(&mut netlink, &conf));
        ensured.map_err(failed("ADD"))?;
        self.remember(conf)
    }

    /// Of two bridges with addresses of one range only one gets its packets.
    fn refuse_others(&self, subnet: Ipv4Net) -> Result<(), NetworkError> {
        let looked = || -> Result<_, CniError> {
            let mut netlink = Netlink::open()?;
            Ok((netlink.links()?, netlink.addresses()?))
        };
        let (links, addresses) = looked().map_err(failed("ADD"))?;
        let other = addresses.iter().find_map(|(index, net)| {
            let link = links.iter().find(|link| link.index == *index)?;
            let is_others = link.is_bridge && link.name != self.shared.config.bridge;
            (is_others && subnet.contains(&net.addr())).then_some((&link.name, net))
        });
        match other {
            None => Ok(()),
            Some((name, net)) => Err(NetworkError::NotReady {
                why: format!(
                    "bridge {name} has {net}, of this node's range for pods, {subnet}: if the network that it belongs to is gone, `ip link delete {name}`"
                ),
            }),
        }
    }

    /// Blocks.
    pub(super) fn set_node_addresses(&self, addresses: &[IpAddr]) -> Result<(), NetworkError> {
        *self.shared.nodes.lock() = addresses.to_vec();
        let Some(mut conf) = self.conf() else {
            return Ok(());
        };
        let no_masquerade = self.no_masquerade();
        if conf.no_masquerade == no_masquerade {
            return Ok(());
        }
        conf.no_masquerade = no_masquerade;
        let written = self.shared.rules.set_masquerade(masquerade::plan(&conf));
        written.map_err(CniError::from).map_err(failed("ADD"))?;
        self.remember(conf)
    }

    /// Pods that are attached from now on leave room for the envelope of the overlay. Blocks.
    pub(super) fn set_overhead(&self, overhead: u32) -> Result<(), NetworkError> {
        *self.shared.overhead.lock() = Some(overhead);
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
        let overhead = *self.shared.overhead.lock();
        Some(mtu::choose(
            mtu::of_uplink(config.node_ip)?,
            overhead,
            remembered,
        ))
    }

    /// Keeps pods out of the overlay. Blocks.
    pub(super) fn set_overlay(&self, overlay: Overlay) -> Result<(), NetworkError> {
        let written = self.shared.rules.set_overlay(overlay);
        written.map_err(CniError::from).map_err(failed("ADD"))
    }

    pub(super) fn overlay(&self) -> Overlay {
        self.shared.rules.overlay()
    }

    /// Makes what all pods share: bridge and rules.
    fn prepare(&self, netlink: &mut Netlink, conf: &NetConf) -> Result<Link, CniError> {
        let link = bridge::ensure(netlink, conf)?;
        self.shared.rules.set_masquerade(masquerade::plan(conf))?;
        Ok(link)
    }

    pub(super) fn ready(&self) -> Result<NetConf, NetworkError> {
        self.conf().ok_or_else(|| {
            let trouble = self.shared.trouble.lock().clone();
            NetworkError::NotReady {
                why: trouble.unwrap_or_else(|| "the node has no podCIDR yet".into()),
            }
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
            ip_masq_backend: None,
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
            runtime_config: RuntimeConfig::default(),
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
        let addresses = self.shared.nodes.lock();
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
        self.publish(&conf).map_err(failed("ADD"))?;
        *self.shared.conf.lock() = Some(conf);
        Ok(())
    }

    /// Another network has followed it.
    pub(super) fn forget(&self) -> Result<(), CniError> {
        let path = &self.shared.file;
        match fs::remove_file(path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(CniError::Io {
                    operation: "remove",
                    path: path.clone(),
                    source,
                });
            }
            _ => {}
        }
        *self.shared.conf.lock() = None;
        self.shared.rules.forget_overlay()?;
        chain::withdraw(&self.shared.config.state_dir).map_err(|source| CniError::Io {
            operation: "take back the network's configuration that is named by",
            path: self.shared.config.state_dir.clone(),
            source,
        })
    }

    /// For those who chain onto it; takes back what an earlier run has written for nobody.
    fn publish(&self, conf: &NetConf) -> Result<(), CniError> {
        let config = &self.shared.config;
        let published = match &config.chain_dir {
            Some(dir) => chain::write(dir, &config.state_dir, conf),
            None => chain::withdraw(&config.state_dir),
        };
        published.map_err(|source| CniError::Io {
            operation: "write the network's configuration in",
            path: config.chain_dir.clone().unwrap_or_default(),
            source,
        })
    }
}

fn failed(command: &'static str) -> impl Fn(CniError) -> NetworkError {
    move |error| {
        let advice = match &error {
            CniError::BridgeAddress { .. } => {
                " (pods of another podCIDR are attached to it: stop this agent, run `coracle reset`, and start it again)"
            }
            _ => "",
        };
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
            message: message + advice,
        }
    }
}
