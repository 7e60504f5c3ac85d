//! The elements of one Service. Pure.
//!
//! Where a packet may go depends on where it comes from: see [`crate::iptables::rules`], whose
//! packets end at the same places.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use ipnet::{IpNet, Ipv4Net};

use super::{
    super::{
        batch::{Data, Key},
        expression::Verdict,
        vip::{Vip, endpoint_value, parse_value},
    },
    parts::name,
    pick::{Branch, Pick},
};
use crate::{
    flows::Targets,
    service::{Endpoint, PortView, ServiceKey, ServiceNetwork, ServiceView},
};

/// An element, by the set that it is in and its key.
pub(super) type Elements = BTreeMap<(&'static str, Key), Data>;

/// In which order a port's endpoints are numbered: by VIP, and whether they are those for traffic
/// that stays on the node. An endpoint keeps its number as long as it can.
pub(super) type Order = BTreeMap<(Vip, bool), Vec<SocketAddr>>;

/// What the kernel shall hold of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServiceElements {
    pub(super) elements: Elements,
    pub(super) order: Order,
    /// What packets to it are sent to.
    pub(super) vips: BTreeSet<Vip>,
    /// More would be, but is another's.
    pub(super) lacks_vips: bool,
    /// Chains that it leads to.
    pub(super) branches: BTreeSet<Branch>,
    /// Local endpoint addresses; other Services may have them, too.
    pub(super) hairpins: BTreeSet<Ipv4Addr>,
    pub(super) udp: Targets,
}

impl ServiceElements {
    /// Where clients are remembered, and the endpoints that they may be remembered with.
    pub(super) fn sticky(&self) -> BTreeMap<Vip, BTreeSet<SocketAddr>> {
        let mut sticky: BTreeMap<Vip, BTreeSet<SocketAddr>> = BTreeMap::new();
        let is_memory = |branch: &Branch| matches!(branch, Branch::Memory(_));
        if self.branches.iter().any(is_memory) {
            for ((vip, _), order) in &self.order {
                sticky.entry(*vip).or_default().extend(order);
            }
        }
        sticky
    }
}

/// A Service on its way to elements.
struct Plan<'a> {
    network: &'a ServiceNetwork,
    view: &'a ServiceView,
    before: &'a Order,
    is_taken: &'a dyn Fn(&Vip) -> bool,
    to: ServiceElements,
}

/// What the kernel shall hold of a Service; numbered as `before` where that is possible. VIPs that
/// are taken belong to another.
pub(super) fn of_service(
    network: &ServiceNetwork,
    key: &ServiceKey,
    view: &ServiceView,
    before: &Order,
    is_taken: &dyn Fn(&Vip) -> bool,
) -> ServiceElements {
    let view = view.without_stolen_addresses(network, key);
    let mut plan = Plan {
        network,
        view: &view,
        before,
        is_taken,
        to: ServiceElements {
            udp: Targets::of(&view),
            ..ServiceElements::default()
        },
    };
    for ports in &view.ports {
        plan.add(ports);
    }
    plan.to
}

/// Which endpoints a VIP leads to.
#[derive(Clone, Copy)]
enum Way {
    /// That of traffic from inside.
    Internal,
    /// Under `externalTrafficPolicy: Cluster`.
    External,
    /// Under `externalTrafficPolicy: Local`.
    ExternalLocal,
}

impl Plan<'_> {
    fn add(&mut self, ports: &PortView) {
        let (view, port) = (self.view, &ports.port);
        let vip = |address: IpAddr, number| match address {
            IpAddr::V4(address) => Some(Vip {
                address,
                protocol: port.protocol,
                port: number,
            }),
            IpAddr::V6(_) => None,
        };
        let external = match view.external_local {
            true => Way::ExternalLocal,
            false => Way::External,
        };
        let internal = view.cluster_ips.iter();
        let internal = internal.filter_map(|ip| vip(*ip, port.port));
        let outside = view.external_ips_of(port);
        let outside = outside.filter_map(|ip| vip(ip, port.port));
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let node_ports = port.node_port.and_then(|number| vip(any, number));
        let ways: Vec<(Vip, Way)> = internal
            .map(|vip| (vip, Way::Internal))
            .chain(outside.chain(node_ports).map(|vip| (vip, external)))
            .collect();
        for (vip, way) in ways {
            if self.take(vip) {
                self.lead(name::SERVICES, vip, way, ports);
            }
        }
        let balancers = view.balancer_ips_of(port);
        let balancers: Vec<Vip> = balancers.filter_map(|ip| vip(ip, port.port)).collect();
        for vip in balancers {
            if self.take(vip) {
                match view.source_ranges {
                    Some(_) => self.guard(vip, external, ports),
                    None => self.lead(name::SERVICES, vip, external, ports),
                }
            }
        }
    }

    fn take(&mut self, vip: Vip) -> bool {
        let is_taken = (self.is_taken)(&vip);
        self.to.lacks_vips |= is_taken;
        if !is_taken {
            self.to.vips.insert(vip);
        }
        !is_taken
    }

    /// A way from `map` to the endpoints, or to what is said where there is none.
    fn lead(&mut self, map: &'static str, vip: Vip, way: Way, ports: &PortView) {
        let is_local = match way {
            Way::Internal => self.view.internal_local,
            Way::External => false,
            Way::ExternalLocal => true,
        };
        let here = if is_local {
            &ports.local
        } else {
            &ports.cluster
        };
        if ports.cluster.is_empty() || here.is_empty() {
            self.leave_unserved(vip, ports);
        }
        if ports.cluster.is_empty() {
            return;
        }
        match way {
            Way::Internal | Way::External => {
                let masquerade = matches!(way, Way::External);
                self.pick(map, vip, here, (false, masquerade));
            }
            Way::ExternalLocal => {
                let chain = match vip.is_of_node() {
                    true => name::NODE_EXTERNAL_LOCAL,
                    false => name::EXTERNAL_LOCAL,
                };
                self.verdict(map, vip, Verdict::Goto(chain.to_owned()));
                self.pick(name::ANYWHERE, vip, &ports.cluster, (false, false));
                self.pick(name::HERE, vip, &ports.local, (true, false));
            }
        }
    }

    /// A way that only some may go; others are not served.
    fn guard(&mut self, vip: Vip, way: Way, ports: &PortView) {
        if !ports.cluster.is_empty() {
            let guard = Verdict::Goto(name::GUARD.to_owned());
            self.verdict(name::SERVICES, vip, guard);
            self.lead(name::GUARDED, vip, way, ports);
            for range in self.allowed(vip.address) {
                let end = |address: Ipv4Addr| [vip.key(), address.octets().to_vec()].concat();
                let key = Key::between(end(range.network()), end(range.broadcast()));
                self.to.elements.insert((name::ALLOWED, key), Data::None);
            }
        }
        self.leave_unserved(vip, ports);
    }

    /// Who may use a balancer's address, without overlaps.
    fn allowed(&self, balancer: Ipv4Addr) -> Vec<Ipv4Net> {
        let ranges = self.view.source_ranges.iter().flatten();
        let mut ranges: Vec<Ipv4Net> = ranges
            .filter_map(|range| match range {
                IpNet::V4(range) => Some(range.trunc()),
                IpNet::V6(_) => None,
            })
            .collect();
        let node = self.network.node_ip;
        if node.is_some_and(|ip| ranges.iter().any(|range| IpNet::V4(*range).contains(&ip))) {
            // Where the balancer's address is also on the node, its own packets come from there.
            ranges.push(Ipv4Net::from(balancer));
        }
        Ipv4Net::aggregate(&ranges)
    }

    /// Leads from `map` to one of the endpoints.
    fn pick(
        &mut self,
        map: &'static str,
        vip: Vip,
        endpoints: &[Endpoint],
        (local, masquerade): (bool, bool),
    ) {
        let before = self.before.get(&(vip, local));
        let order = arrange(before.map_or(&[], Vec::as_slice), endpoints);
        let Ok(count) = u32::try_from(order.len()) else {
            return;
        };
        if count == 0 {
            return;
        }
        let pick = Pick {
            count,
            local,
            masquerade,
            of_node: vip.is_of_node(),
            sticky_secs: self.view.affinity_secs,
        };
        self.verdict(map, vip, Verdict::Goto(pick.chain()));
        self.to.branches.insert(Branch::Pick(pick));
        if let Some(memory) = pick.memory() {
            self.verdict(name::AFFINITY, vip, Verdict::Goto(memory.chain()));
            self.to.branches.insert(Branch::Memory(memory));
        }
        let set = if local {
            name::LOCAL_ENDPOINTS
        } else {
            name::ENDPOINTS
        };
        for (number, endpoint) in (0_u32..).zip(&order) {
            let key = Key::one([vip.key(), number.to_ne_bytes().to_vec()].concat());
            let data = Data::Value(endpoint_value(endpoint));
            self.to.elements.insert((set, key), data);
        }
        let hairpins = endpoints.iter().filter(|endpoint| endpoint.local);
        self.to
            .hairpins
            .extend(hairpins.filter_map(|endpoint| match endpoint.address.ip() {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            }));
        self.to.order.insert((vip, local), order);
    }

    fn verdict(&mut self, map: &'static str, vip: Vip, verdict: Verdict) {
        let key = Key::one(vip.key());
        self.to.elements.insert((map, key), Data::Verdict(verdict));
    }

    /// Without any endpoint the sender is told. With some elsewhere only it asks again, and may be
    /// lucky.
    fn leave_unserved(&mut self, vip: Vip, ports: &PortView) {
        let nobody = ports.cluster.is_empty();
        if nobody && self.network.is_of_services(&vip.address.into()) {
            // What is left of the Services' range is refused anyway.
            return;
        }
        let verdict = match nobody {
            true => Verdict::Goto(name::REFUSE.to_owned()),
            false => Verdict::Drop,
        };
        self.verdict(name::UNSERVED, vip, verdict);
    }
}

/// What is numbered in a map of endpoints.
pub(super) fn parse_endpoint(key: &Key, data: &Data) -> Option<((Vip, u32), SocketAddr)> {
    let vip = Vip::parse(&key.first)?;
    let number = u32::from_ne_bytes(key.first.get(12..16)?.try_into().ok()?);
    let Data::Value(value) = data else {
        return None;
    };
    Some(((vip, number), parse_value(value)?))
}

/// Numbers endpoints so that as few as possible change their number: those that stay keep theirs,
/// new ones come into the holes, and the last fill what is left of those.
fn arrange(before: &[SocketAddr], wanted: &[Endpoint]) -> Vec<SocketAddr> {
    let wanted = wanted.iter().map(|endpoint| endpoint.address);
    let wanted: BTreeSet<SocketAddr> = wanted.filter(SocketAddr::is_ipv4).collect();
    let known: BTreeSet<SocketAddr> = before.iter().copied().collect();
    let mut new = wanted.difference(&known).copied();
    let mut order: Vec<Option<SocketAddr>> = Vec::with_capacity(wanted.len());
    for address in before {
        let stays = wanted.contains(address).then_some(*address);
        order.push(stays.or_else(|| new.next()));
    }
    order.extend(new.map(Some));
    let mut at = 0;
    while at < order.len() {
        match order[at] {
            Some(_) => at += 1,
            None => {
                order.swap_remove(at);
            }
        }
    }
    order.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(names: &str) -> Vec<SocketAddr> {
        let address = |name: char| SocketAddr::from(([10, 0, 0, name as u8], 80));
        names.chars().map(address).collect()
    }

    fn endpoints(names: &str) -> Vec<Endpoint> {
        let endpoint = |address| Endpoint {
            address,
            local: false,
        };
        addresses(names).into_iter().map(endpoint).collect()
    }

    #[test]
    fn endpoints_keep_their_numbers() {
        for (before, wanted, after) in [
            ("", "cab", "abc"),
            ("abc", "abc", "abc"),
            ("abcd", "acd", "adc"),
            ("abcd", "abc", "abc"),
            ("abcd", "abed", "abed"),
            ("abcd", "abcde", "abcde"),
            ("abcd", "d", "d"),
            ("abcd", "", ""),
            ("abcd", "xyz", "xyz"),
        ] {
            assert_eq!(
                arrange(&addresses(before), &endpoints(wanted)),
                addresses(after),
                "{before} > {wanted}"
            );
        }
    }

    #[test]
    fn one_that_leaves_moves_no_more_than_one() {
        let all: Vec<SocketAddr> = (0..1000_u16)
            .map(|port| ([10, 0, 0, 1], port).into())
            .collect();
        for gone in [0, 1, 500, 999] {
            let left = all.iter().filter(|address| address.port() != gone);
            let left: Vec<Endpoint> = left
                .map(|address| Endpoint {
                    address: *address,
                    local: false,
                })
                .collect();
            let order = arrange(&all, &left);
            let moved = order.iter().zip(&all).filter(|(now, then)| now != then);
            assert!(order.len() == 999 && moved.count() <= 1, "{gone}");
        }
    }
}
