//! Routes to the pods of other nodes: direct (host-gw) to those of the same subnet, through an
//! overlay (`vxlan`) to the others.
//!
//! Follows Nodes and keeps `podCIDR via InternalIP` in the main table, tagged with Coracle's own
//! protocol number, so that routes of others are never touched and those of a killed predecessor
//! are recognized. Which way is chosen for each node by itself; both sides choose alike, because
//! sharing a subnet is mutual and the server tells all nodes the same
//! ([`coracle_api::pod_network`]). Not for foreign networks, which keep routes of their own.

mod plan;
mod sync;
pub(crate) mod vxlan;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use coracle_api::pod_network::PodNetwork;
use coracle_client::{
    cache::{Cache, Change, Key},
    feed::Feed,
};
use coracle_cni::netlink::{Netlink, NetlinkError, Request, RouteNetlinkMessage};
use coracle_telemetry::{Backoff, ErrorChain};
use ipnet::{IpNet, Ipv4Net};
use nix::errno::Errno;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::sync::{Wanted, sync};
use crate::{
    informers::{Informers, NodeNetwork, SeenNode},
    network::cni::CniNetwork,
    notices::Notices,
};

/// Marks Coracle's routes (`ip route show proto 67`); free in iproute2's rt_protos.
pub const PROTOCOL: u8 = 67;

/// First wait after a failure; doubled up to the repair interval.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// What tables of the node's own rules are called.
const TABLES: &[&str] = &["coracle-node", "coracle-overlay"];
/// After a look, what the kernel tells of changes waits so long: who changes much does it step by
/// step.
const SETTLE: Duration = Duration::from_millis(20);
/// How often it is looked anyway whether somebody has removed rules; that costs microseconds.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What [`run`] needs to know.
#[derive(Debug, Clone)]
pub struct RoutesConfig {
    /// Own node: no route to itself.
    pub node_name: String,
    /// Own InternalIP: decides which nodes are neighbours. `None`: any directly connected subnet.
    pub node_ip: Option<IpAddr>,
    /// Told the addresses of all nodes, which pods reach without NAT.
    pub network: Option<Arc<CniNetwork>>,
    /// Where this node believes podCIDRs to be cut from: compared with what the server says.
    pub cluster_cidr: Option<IpNet>,
    /// How often the kernel's routes are compared even if no node changed.
    pub repair_interval: Duration,
    /// Somebody removed rules: the pod network's are looked after at once.
    pub rules_lost: Arc<Notify>,
}

/// Why routes cannot be kept at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoutesError {
    /// No rtnetlink socket.
    #[error("open a route socket")]
    Socket {
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The Nodes, and whether they have changed since. Clones are one.
#[derive(Debug, Clone)]
pub struct Source {
    feed: Feed,
    nodes: Arc<Cache<SeenNode>>,
}

impl Source {
    /// As the informers tell.
    #[must_use]
    pub fn new(informers: &mut Informers) -> Self {
        let mut feed = Feed::default();
        // Most events are heartbeats.
        feed.follow(&mut informers.nodes, |change| match change {
            Change::Updated { old, new } if old.part.network == new.part.network => None,
            change => Some(Key::of(change.latest().as_ref())),
        });
        Self {
            feed,
            nodes: informers.nodes.cache(),
        }
    }

    fn known(&self) -> BTreeMap<String, NodeNetwork> {
        // One look for all that has changed.
        let _ = self.feed.take();
        self.nodes
            .all()
            .iter()
            .map(|node| (Key::of(node.as_ref()).name, node.part.network.clone()))
            .collect()
    }
}

/// Keeps the routes until `shutdown`. They stay when it ends, so that running pods keep talking.
///
/// # Errors
/// Only what makes going on useless; failures of single routes are logged and tried again.
pub async fn run(
    source: Source,
    config: RoutesConfig,
    shutdown: CancellationToken,
) -> Result<(), RoutesError> {
    let interval = config.repair_interval;
    let mut retry = Backoff::new(RETRY_DELAY, interval);
    let mut keeper = Keeper {
        looks: Backoff::new(LOOK_INTERVAL, interval.max(LOOK_INTERVAL)),
        config,
        told: PodNetwork::default(),
        taken: Vec::new(),
    };
    let mut next = Instant::now() + interval;
    let mut notices = Notices::listen();
    let mut look = Instant::now() + LOOK_INTERVAL;
    // Whatever the kernel tells.
    let mut no_look_before = Instant::now();
    let mut listed = false;
    loop {
        let is_due = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            // Before, routes of nodes not seen yet would be removed.
            () = source.feed.listed(), if !listed => {
                listed = true;
                true
            }
            () = source.feed.changed(), if listed => true,
            () = keeper.config.rules_lost.notified() => {
                keeper.repair().await;
                false
            }
            () = notices.next_of(TABLES), if look > no_look_before => {
                look = no_look_before.max(Instant::now());
                false
            }
            // Also before anybody has told of nodes: the server may be away.
            () = sleep_until(look) => {
                let seen = keeper.look().await;
                look = Instant::now() + seen.unwrap_or(LOOK_INTERVAL);
                no_look_before = Instant::now() + seen.unwrap_or(SETTLE);
                false
            }
            () = sleep_until(next) => {
                keeper.repair().await;
                next = Instant::now() + interval;
                listed
            }
        };
        if is_due {
            let pause = if keeper.apply(&source.known()).await {
                retry.reset();
                interval
            } else {
                retry.pause()
            };
            next = Instant::now() + pause;
        }
    }
}

/// What is remembered between two comparisons.
struct Keeper {
    config: RoutesConfig,
    /// Between looks whose repair fails.
    looks: Backoff,
    /// What the server told last, if it could be read.
    told: PodNetwork,
    /// Destinations that somebody else routes, told once.
    taken: Vec<Ipv4Net>,
}

impl Keeper {
    /// Returns whether all is as it should be.
    async fn repair(&self) -> bool {
        if let Some(network) = &self.config.network
            && let Err(error) = network.repair().await
        {
            tracing::warn!(error = %ErrorChain(&error), "cannot repair the pod network; trying again");
            return false;
        }
        true
    }

    /// Repairs what others may have removed. Returns how long it is not looked again then.
    async fn look(&mut self) -> Option<Duration> {
        let network = self.config.network.as_ref();
        let is_disturbed = network.is_some_and(|network| network.is_disturbed());
        if is_disturbed && !self.repair().await {
            return Some(self.looks.pause());
        }
        self.looks.reset();
        is_disturbed.then_some(LOOK_INTERVAL)
    }

    /// Returns whether everything is as it should be.
    async fn apply(&mut self, known: &BTreeMap<String, NodeNetwork>) -> bool {
        let own = known.get(&self.config.node_name);
        self.listen(own.and_then(|own| own.told.as_deref()));
        let others = known
            .iter()
            .filter(|(name, _)| **name != self.config.node_name)
            .map(|(_, node)| node.clone());
        let wanted = Wanted {
            others: others.collect(),
            node_ip: self.config.node_ip,
            own_cidr: own.and_then(|own| own.pod_cidrs.first().copied()),
            pods: self
                .told
                .cluster_cidr
                .parse()
                .ok()
                .or(self.config.cluster_cidr),
            told: self.told.clone(),
            network: self.config.network.clone(),
        };
        let outcome = match tokio::task::spawn_blocking(move || sync(&wanted)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot keep routes to other nodes; trying again");
                return false;
            }
            Err(error) => {
                tracing::error!(error = %ErrorChain(&error), "cannot keep routes to other nodes; trying again");
                return false;
            }
        };
        if outcome.taken != self.taken {
            self.taken = outcome.taken;
            if !self.taken.is_empty() {
                tracing::warn!(cidrs = ?self.taken, "somebody else routes the pods of other nodes: left as it is");
            }
        }
        // A node of another subnet would answer a pod's own address into the void: its network does
        // not know it.
        let is_own = |name: &str| name == self.config.node_name;
        let addresses = known
            .iter()
            .filter_map(|(name, node)| Some((name, node.address?)));
        let addresses =
            addresses.filter(|(name, address)| is_own(name) || outcome.near.contains(address));
        let addresses = addresses.map(|(_, address)| IpAddr::V4(address)).collect();
        let Some(network) = &self.config.network else {
            return true;
        };
        let exempted = network.set_node_addresses(addresses).await;
        if let Err(error) = exempted.and(network.set_overhead(outcome.overhead).await) {
            tracing::warn!(error = %ErrorChain(&error), "cannot tell the pod network of other nodes; trying again");
            return false;
        }
        true
    }

    /// Takes in what the server says of all nodes. What cannot be read changes nothing.
    fn listen(&mut self, annotation: Option<&str>) {
        let Some(text) = annotation else { return };
        let told = match PodNetwork::from_annotation(text) {
            Ok(told) => told,
            Err(error) => {
                return tracing::warn!(error, mode = %self.told.mode, "the pod network stays as it is");
            }
        };
        if told == self.told {
            return;
        }
        tracing::info!(mode = %told.mode, vxlan_port = told.vxlan_port, "the server tells how nodes are connected");
        let own = self
            .config
            .cluster_cidr
            .map(|cidr| cidr.trunc().to_string());
        if let Some(own) =
            own.filter(|own| !told.cluster_cidr.is_empty() && *own != told.cluster_cidr)
        {
            tracing::error!(
                own,
                server = told.cluster_cidr,
                "--cluster-cidr differs from the server's: pods of other nodes are taken for strangers"
            );
        }
        self.told = told;
    }
}

/// Removes every route and the overlay: for nodes that were given a foreign network.
///
/// # Errors
/// [`NetlinkError`].
pub(crate) fn remove_all() -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open()?;
    let routes = netlink.routes()?;
    let ours = routes
        .iter()
        .filter(|route| route.protocol == PROTOCOL && route.gateway.is_some());
    let requests = ours.map(|route| {
        let request = Request::change(
            "remove a route",
            RouteNetlinkMessage::DelRoute(route.message()),
        );
        request.tolerate(&[Errno::ESRCH])
    });
    netlink.batch(requests.collect())?;
    vxlan::remove_link(&mut netlink)
}
