//! Makes routes and the overlay what they should be. Blocks.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use coracle_api::pod_network::PodNetwork;
use coracle_cni::netlink::{
    AddressFamily, Netlink, NetlinkError, Request, Route, RouteNetlinkMessage,
};
use coracle_netfilter::node::{Envelopes, Overlay};
use ipnet::{IpNet, Ipv4Net};
use nix::errno::Errno;

use super::{
    plan::{Plan, Ways},
    vxlan,
};
use crate::{
    informers::NodeNetwork,
    network::{NetworkError, OVERLAY_OVERHEAD, cni::CniNetwork},
};

/// Of an uplink that says nothing.
const DEFAULT_MTU: u32 = 1500;

/// What routes are made of.
pub(super) struct Wanted {
    pub(super) others: Vec<NodeNetwork>,
    pub(super) node_ip: Option<IpAddr>,
    pub(super) own_cidr: Option<Ipv4Net>,
    /// All pods' addresses.
    pub(super) pods: Option<IpNet>,
    pub(super) told: PodNetwork,
    /// What keeps pods and strangers out of the overlay.
    pub(super) network: Option<Arc<CniNetwork>>,
}

impl Wanted {
    fn guard(&self, overlay: Overlay) -> Result<(), NetworkError> {
        let network = self.network.as_ref();
        network.map_or(Ok(()), |network| network.set_overlay(overlay))
    }
}

/// Why routes are not as they should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error(transparent)]
    Kernel(#[from] NetlinkError),
    #[error("keep pods and strangers out of the overlay")]
    Guard(#[source] NetworkError),
}

/// What came of it.
pub(super) struct Outcome {
    /// Addresses of the nodes that know this one's pods.
    pub(super) near: Vec<Ipv4Addr>,
    /// Destinations that somebody else routes.
    pub(super) taken: Vec<Ipv4Net>,
    /// What the way to other nodes takes of every packet.
    pub(super) overhead: u32,
}

pub(super) fn sync(wanted: &Wanted) -> Result<Outcome, SyncError> {
    let mut netlink = Netlink::open()?;
    let addresses = netlink.addresses()?;
    let ways = Ways::choose(wanted.told.mode, &wanted.others, wanted.node_ip, &addresses);
    let mut requests = Vec::new();
    let mut routes = ways.direct;
    let mut overlay = None;
    if let (false, Some(IpAddr::V4(local)), Some(own_cidr)) =
        (ways.overlay.is_empty(), wanted.node_ip, wanted.own_cidr)
    {
        let wanted_link = vxlan::Wanted {
            local,
            own_cidr,
            uplink_mtu: uplink_mtu(&mut netlink, &addresses, local)?,
            port: wanted.told.vxlan_port,
        };
        // A link that listens elsewhere would be unguarded there.
        vxlan::remove_unfit(&mut netlink, &wanted_link)?;
        // Without it a pod speaks for another, so it comes before the link. Whose cluster has not
        // told where its pods are keeps at least this node's out.
        let guard = Overlay::Port(Envelopes {
            pods: wanted.pods.unwrap_or(own_cidr.into()),
            port: wanted_link.port,
            nodes: Some(
                wanted
                    .others
                    .iter()
                    .filter_map(|node| node.address)
                    .collect(),
            ),
        });
        wanted.guard(guard).map_err(SyncError::Guard)?;
        let link = vxlan::ensure_link(&mut netlink, &wanted_link)?;
        overlay = Some(link.index);
        for family in [AddressFamily::Inet, AddressFamily::Bridge] {
            let present = netlink.neighbours(link.index, family)?;
            requests.extend(vxlan::difference(
                &ways.overlay,
                &present,
                link.index,
                family,
            ));
        }
        routes.extend(
            ways.overlay
                .iter()
                .map(|peer| vxlan::route(peer, link.index)),
        );
    } else if ways.overlay.is_empty() {
        if netlink.link(vxlan::LINK)?.is_some() {
            vxlan::remove_link(&mut netlink)?;
        }
        wanted.guard(Overlay::None).map_err(SyncError::Guard)?;
    }
    let plan = Plan::new(routes, &netlink.routes()?);
    requests.extend(plan_requests(&plan, overlay));
    netlink.batch(requests)?;
    let overhead = if overlay.is_some() {
        OVERLAY_OVERHEAD
    } else {
        0
    };
    Ok(Outcome {
        near: ways.near,
        taken: plan.taken,
        overhead,
    })
}

/// Of the link that has the node's address.
fn uplink_mtu(
    netlink: &mut Netlink,
    addresses: &[(u32, Ipv4Net)],
    local: Ipv4Addr,
) -> Result<u32, NetlinkError> {
    let uplink = addresses.iter().find(|(_, net)| net.addr() == local);
    let uplink = uplink.map(|(index, _)| *index);
    let links = netlink.links()?;
    let link = links.iter().find(|link| Some(link.index) == uplink);
    Ok(link.map_or(DEFAULT_MTU, |link| link.mtu))
}

fn plan_requests(plan: &Plan, overlay: Option<u32>) -> Vec<Request> {
    let message = |route: &Route| {
        tracing::info!(cidr = %route.destination, gateway = ?route.gateway, "route the pods of a node");
        let onlink = overlay.is_some() && route.interface == overlay;
        RouteNetlinkMessage::NewRoute(if onlink {
            vxlan::route_message(route)
        } else {
            route.message()
        })
    };
    // Somebody else may be quicker: the next comparison sees his route.
    let missing = plan
        .missing
        .iter()
        .map(|r| Request::create("add a route", message(r)).tolerate(&[Errno::EEXIST]));
    let changed = plan
        .changed
        .iter()
        .map(|route| Request::replace("change a route", message(route)));
    let wrong = plan.wrong.iter().map(|route| {
        tracing::info!(cidr = %route.destination, "remove the route to the pods of a node that is gone");
        let request = Request::change("remove a route", RouteNetlinkMessage::DelRoute(route.message()));
        request.tolerate(&[Errno::ESRCH])
    });
    missing.chain(changed).chain(wrong).collect()
}
