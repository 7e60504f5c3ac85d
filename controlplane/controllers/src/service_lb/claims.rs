//! Which Service gets which addresses of the pool: an address, port and protocol is one Service's,
//! the oldest's. Pure.
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

use coracle_api::load_balancer;
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Time};

use super::pool::Pool;
use crate::{cache::Key, service_endpoints::Family};

/// So many others are named to who gets nothing.
const NAMED: usize = 3;

/// A port with its protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    number: i32,
    protocol: String,
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
}

impl Claim {
    /// `None` for a Service that asks for no address of a node.
    pub(super) fn of(service: &Service) -> Option<Self> {
        if !is_balanced(service)
            || is_of_others(service)
            || service.metadata.deletion_timestamp.is_some()
        {
            return None;
        }
        let spec = service.spec.as_ref()?;
        let ports = spec.ports.iter().flatten().map(|port| Port {
            number: port.port,
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
        });
        let address = spec.load_balancer_ip.clone();
        Some(Self {
            key: Key::of(service),
            created: service.metadata.creation_timestamp.clone(),
            ports: ports.collect(),
            address: address.filter(|address| !address.is_empty()),
            families: Family::of(service),
        })
    }

    fn wants(&self, address: IpAddr) -> bool {
        let family = match address {
            IpAddr::V4(_) => Family::IPv4,
            IpAddr::V6(_) => Family::IPv6,
        };
        self.families.contains(&family)
    }
}

/// Whether a Service is of type LoadBalancer.
pub(super) fn is_balanced(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
}

/// Whether it is for somebody else to serve.
pub(super) fn is_of_others(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let class = spec.and_then(|spec| spec.load_balancer_class.as_deref());
    is_balanced(service) && !load_balancer::is_served(class)
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
    Taken(BTreeSet<(Port, Key)>),
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

fn holders(taken: &BTreeSet<(Port, Key)>) -> String {
    let mut named: Vec<String> = taken
        .iter()
        .map(|(port, key)| format!("Service {key} has {port}"))
        .collect();
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

/// What everybody gets.
pub(super) fn assign(mut claims: Vec<Claim>, pool: &Pool) -> BTreeMap<Key, Share> {
    claims.sort_by(|a, b| (&a.created, &a.key).cmp(&(&b.created, &b.key)));
    let mut held: BTreeMap<(IpAddr, Port), Key> = BTreeMap::new();
    let mut shares = BTreeMap::new();
    for claim in claims {
        let share = share(&claim, pool, &held);
        for address in share.iter().flatten() {
            let places = claim.ports.iter().map(|port| (*address, port.clone()));
            held.extend(places.map(|place| (place, claim.key.clone())));
        }
        shares.insert(claim.key, share);
    }
    shares
}

fn share(claim: &Claim, pool: &Pool, held: &BTreeMap<(IpAddr, Port), Key>) -> Share {
    let mut wanted: Vec<IpAddr> = pool.addresses().filter(|one| claim.wants(*one)).collect();
    if wanted.is_empty() {
        return Err(Pending::NoNodes);
    }
    if let Some(chosen) = &claim.address {
        let address = chosen.parse::<IpAddr>().ok();
        if !address.is_some_and(|address| wanted.contains(&address)) {
            return Err(Pending::NotInPool {
                wanted: chosen.clone(),
                pool: wanted,
            });
        }
        wanted.retain(|one| Some(*one) == address);
    }
    let mut taken = BTreeSet::new();
    wanted.retain(|address| {
        let others = claim.ports.iter().filter_map(|port| {
            let holder = held.get(&(*address, port.clone()))?;
            Some((port.clone(), holder.clone()))
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
