//! Which Service gets which addresses of the pool: an address, port and protocol is one Service's,
//! that of the one that has it, and of those that ask anew the oldest's. Pure.
//!
//! Who has what is in the statuses, which tenants do not write: the age of an object says nothing
//! of how long it has asked for a port. What is [`occupied`] otherwise is nobody's to take.
//!
//! [`occupied`]: super::occupied
//!
//! A Service has an address for all of its ports or not at all, so that nobody reaches half of it.
//! One whose traffic stays on the node (`externalTrafficPolicy: Local`) holds its ports on every
//! node, also where it has no endpoints now: else a younger one would come and go with the pods of
//! the older.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use coracle_api::load_balancer::Served;
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Time};

use super::{occupied::Occupied, pool::Pool};
use crate::{cache::Key, service_endpoints::Family};

/// As long as a Service has it, it may have an address.
///
/// Source: `LoadBalancerCleanupFinalizer` in
/// `staging/src/k8s.io/cloud-provider/service/helpers/helper.go` at v1.37.
pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// So many others are named to who gets nothing.
const NAMED: usize = 3;

/// A port with its protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub(super) number: i32,
    pub(super) protocol: String,
}

impl Port {
    pub(super) fn new(number: i32, protocol: Option<&str>) -> Self {
        Self {
            number,
            protocol: protocol.unwrap_or("TCP").to_owned(),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.protocol)
    }
}

/// What a Service asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) key: Key,
    created: Option<Time>,
    ports: BTreeSet<Port>,
    /// `spec.loadBalancerIP`.
    address: Option<String>,
    families: Vec<Family>,
    /// What its status gives it.
    holds: BTreeSet<(IpAddr, Port)>,
}

impl Claim {
    /// `None` for a Service that asks for no address of a node.
    pub(super) fn of(service: &Service, served: Served) -> Option<Self> {
        if !is_balanced(service)
            || is_of_others(service, served)
            || service.metadata.deletion_timestamp.is_some()
        {
            return None;
        }
        let spec = service.spec.as_ref()?;
        let address = spec.load_balancer_ip.clone();
        Some(Self {
            key: Key::of(service),
            created: service.metadata.creation_timestamp.clone(),
            ports: ports(service),
            address: address.filter(|address| !address.is_empty()),
            families: Family::of(service),
            holds: held_by(service),
        })
    }

    /// Whether others may get more or less than `before`. What it is given is no news: whoever gave
    /// it has counted it.
    pub(super) fn is_news_after(&self, before: &Self) -> bool {
        let asked = |claim: &Self| Self {
            holds: BTreeSet::new(),
            ..claim.clone()
        };
        asked(self) != asked(before) || !before.holds.is_subset(&self.holds)
    }

    /// Those of the pool that it asks for.
    fn addresses(&self, pool: &Pool) -> Result<Vec<IpAddr>, Pending> {
        let mut wanted: Vec<IpAddr> = pool.addresses().filter(|one| self.wants(*one)).collect();
        if wanted.is_empty() {
            return Err(Pending::NoNodes);
        }
        if let Some(chosen) = &self.address {
            let address = chosen.parse::<IpAddr>().ok();
            if !address.is_some_and(|address| wanted.contains(&address)) {
                return Err(Pending::NotInPool {
                    wanted: chosen.clone(),
                    pool: wanted,
                });
            }
            wanted.retain(|one| Some(*one) == address);
        }
        Ok(wanted)
    }

    fn wants(&self, address: IpAddr) -> bool {
        let family = match address {
            IpAddr::V4(_) => Family::IPv4,
            IpAddr::V6(_) => Family::IPv6,
        };
        self.families.contains(&family)
    }
}

/// The ports of a Service.
pub(super) fn ports(service: &Service) -> BTreeSet<Port> {
    let ports = service.spec.iter().flat_map(|spec| &spec.ports).flatten();
    ports
        .map(|port| Port::new(port.port, port.protocol.as_deref()))
        .collect()
}

/// What the status gives a Service; an address without ports is all of it, as statuses were written
/// before.
fn held_by(service: &Service) -> BTreeSet<(IpAddr, Port)> {
    let status = service.status.as_ref().filter(|_| has_finalizer(service));
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref());
    let mut held = BTreeSet::new();
    for one in ingress.unwrap_or_default() {
        let Some(address) = one.ip.as_ref().and_then(|ip| ip.parse().ok()) else {
            continue;
        };
        let listed = one.ports.iter().flatten();
        let mut listed: BTreeSet<Port> = listed
            .map(|port| Port::new(port.port, Some(&port.protocol)))
            .collect();
        if listed.is_empty() {
            listed = ports(service);
        }
        held.extend(listed.into_iter().map(|port| (address, port)));
    }
    held
}

pub(super) fn has_finalizer(service: &Service) -> bool {
    let finalizers = service.metadata.finalizers.as_ref();
    finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
}

/// Whether a Service is of type LoadBalancer.
pub(super) fn is_balanced(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
}

/// Whether it is for somebody else to serve.
pub(super) fn is_of_others(service: &Service, served: Served) -> bool {
    let spec = service.spec.as_ref();
    let class = spec.and_then(|spec| spec.load_balancer_class.as_deref());
    is_balanced(service) && !served.include(class)
}

/// Who has a port of an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    /// Of those that have addresses, this Service.
    Balanced(Key),
    /// It is a node port of this Service.
    NodePort(Key),
    /// It is a host port of this pod.
    HostPort(Key),
}

/// Why a Service has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Pending {
    /// As upstream says it.
    #[error("There are no available nodes for LoadBalancer")]
    NoNodes,
    #[error(
        "spec.loadBalancerIP {wanted} is the address of no node that takes traffic of load balancers; set one of {}, or leave it out",
        list(.pool)
    )]
    NotInPool { wanted: String, pool: Vec<IpAddr> },
    #[error(
        "no address of a node is free for all of its ports: {}; choose other ports, or remove what has them",
        holders(.0)
    )]
    Taken(BTreeSet<(Port, Holder)>),
    #[error(
        "no node that takes traffic of load balancers has a ready endpoint, and spec.externalTrafficPolicy is Local"
    )]
    NoEndpoints,
}

fn list(addresses: &[IpAddr]) -> String {
    let mut named: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    cut(&mut named);
    named.join(", ")
}

fn holders(taken: &BTreeSet<(Port, Holder)>) -> String {
    let named = taken.iter().map(|(port, holder)| match holder {
        Holder::Balanced(key) => format!("Service {key} has {port}"),
        Holder::NodePort(key) => format!("Service {key} has the node port {port}"),
        Holder::HostPort(key) => format!("Pod {key} has the host port {port}"),
    });
    let mut named: Vec<String> = named.collect();
    cut(&mut named);
    named.join(", ")
}

fn cut(named: &mut Vec<String>) {
    let more = named.len().saturating_sub(NAMED);
    if more > 0 {
        named.truncate(NAMED);
        named.push(format!("and {more} more"));
    }
}

/// Its addresses in their order, of which there is one at least.
pub(super) type Share = Result<Vec<IpAddr>, Pending>;

/// Which Service has which port of which address.
type Held = BTreeMap<(IpAddr, Port), Key>;

/// What everybody gets.
pub(super) fn assign(
    mut claims: Vec<Claim>,
    pool: &Pool,
    occupied: &Occupied,
) -> BTreeMap<Key, Share> {
    claims.sort_by(|a, b| (&a.created, &a.key).cmp(&(&b.created, &b.key)));
    let mut held = kept(&claims, pool);
    let mut shares = BTreeMap::new();
    for claim in claims {
        let share = share(&claim, pool, &held, occupied);
        let given: BTreeSet<IpAddr> = share.iter().flatten().copied().collect();
        for place in places(&claim, pool.addresses()) {
            if given.contains(&place.0) {
                held.insert(place, claim.key.clone());
            } else if held.get(&place) == Some(&claim.key) {
                // An address that it cannot have for all of its ports is free for those after it.
                held.remove(&place);
            }
        }
        shares.insert(claim.key, share);
    }
    shares
}

/// What is not given anew: the places that somebody has and still asks for, and then the same ports
/// of other addresses, so that a node that was away comes back to who had it.
fn kept(claims: &[Claim], pool: &Pool) -> Held {
    let mut held = Held::new();
    let asked: Vec<(&Claim, Vec<IpAddr>)> = claims
        .iter()
        .filter_map(|claim| Some((claim, claim.addresses(pool).ok()?)))
        .collect();
    for (claim, addresses) in &asked {
        for place in places(claim, addresses.iter().copied()) {
            if claim.holds.contains(&place) {
                held.entry(place).or_insert_with(|| claim.key.clone());
            }
        }
    }
    for (claim, addresses) in &asked {
        let ports: BTreeSet<&Port> = claim.holds.iter().map(|(_, port)| port).collect();
        for place in places(claim, addresses.iter().copied()) {
            if ports.contains(&place.1) {
                held.entry(place).or_insert_with(|| claim.key.clone());
            }
        }
    }
    held
}

fn places(
    claim: &Claim,
    addresses: impl Iterator<Item = IpAddr>,
) -> impl Iterator<Item = (IpAddr, Port)> {
    addresses.flat_map(|address| claim.ports.iter().map(move |port| (address, port.clone())))
}

fn share(claim: &Claim, pool: &Pool, held: &Held, occupied: &Occupied) -> Share {
    let mut wanted = claim.addresses(pool)?;
    let mut taken = BTreeSet::new();
    wanted.retain(|address| {
        let others = claim.ports.iter().filter_map(|port| {
            let nodes = pool.nodes_at(*address);
            if let Some(holder) = occupied.holder(&claim.key, (*address, port), nodes) {
                return Some((port.clone(), holder));
            }
            let holder = held.get(&(*address, port.clone()))?;
            (*holder != claim.key).then(|| (port.clone(), Holder::Balanced(holder.clone())))
        });
        let others: Vec<_> = others.collect();
        let is_free = others.is_empty();
        taken.extend(others);
        is_free
    });
    if wanted.is_empty() {
        return Err(Pending::Taken(taken));
    }
    Ok(wanted)
}

/// Of a share what is on `nodes`, those with endpoints of the Service.
pub(super) fn only_on(share: Share, pool: &Pool, nodes: &BTreeSet<String>) -> Share {
    let mut addresses = share?;
    addresses.retain(|address| pool.is_on(*address, nodes));
    if addresses.is_empty() {
        return Err(Pending::NoEndpoints);
    }
    Ok(addresses)
}
