//! The ranges that addresses of Services come from: what the ServiceCIDRs say.
//!
//! They are read anew for each Service that needs an address: the cache has caught up by then, and
//! there are few. One that is being deleted gives out nothing more; what it has given out stays.
//!
//! Source: `pkg/registry/core/service/ipallocator/cidrallocator.go` at v1.37. Upstream draws from
//! any of them; here the one of the cluster comes first, and then the oldest.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use coracle_api::meta;
use ipnet::{IpNet, Ipv4Net};
use serde_json::Value;

use super::{
    DEFAULT_SERVICE_CIDR,
    allocation::Allocation,
    claims::Claims,
    ip_allocator::{Asked, IpAllocator, IpError},
};
use crate::{
    resource::Registry,
    value::{items, string},
    watch_cache::{Entry, KeyScope, ResourceCache, Selection},
};

/// What the ServiceCIDRs say now.
pub(super) struct Ranges {
    /// In the order they are drawn from.
    all: Vec<ServiceRange>,
    /// The address of the Service by which pods reach the API. Nobody else gets it.
    kept: Ipv4Addr,
}

/// One range of one ServiceCIDR.
#[derive(Debug, Clone, Copy)]
struct ServiceRange {
    addresses: IpAllocator,
    /// Whether more of it is given out.
    is_ready: bool,
}

impl Ranges {
    /// Those of the cache of ServiceCIDRs.
    pub(super) fn read(cache: &ResourceCache, kept: Ipv4Addr) -> Self {
        let mut objects = entries(cache);
        objects.sort_by_key(|entry| {
            let is_default = entry.name() == DEFAULT_SERVICE_CIDR;
            (!is_default, entry.create_revision())
        });
        let all = objects.iter().flat_map(|entry| ranges_of(entry)).collect();
        Self { all, kept }
    }

    /// Whether some range has this address, also one that gives out nothing more.
    pub(super) fn contain(&self, ip: Ipv4Addr) -> bool {
        self.all.iter().any(|range| range.addresses.contains(ip))
    }

    /// Gives the address that was chosen.
    ///
    /// # Errors
    /// All but [`IpError::Full`].
    pub(super) fn allocate(
        &self,
        asked: Asked,
        claims: &mut Claims<'_>,
    ) -> Result<Ipv4Addr, IpError> {
        let IpAddr::V4(ip) = asked.ip else {
            return Err(self.refused(asked));
        };
        let allocation = Allocation::Address(ip);
        // Also one that is out of range by now, or kept for another.
        if claims.is_own(allocation) {
            return Ok(ip);
        }
        if !self.ready().any(|addresses| addresses.contains(ip)) {
            return Err(self.refused(asked));
        }
        // Also while there is no such Service: without its address pods do not reach the API.
        let is_kept = ip == self.kept && !asked.for_kubernetes;
        if is_kept || !claims.is_free(allocation) {
            return Err(IpError::Allocated);
        }
        claims.take(allocation);
        Ok(ip)
    }

    /// Gives any address, of the first range that has one left.
    ///
    /// # Errors
    /// [`IpError::Full`].
    pub(super) fn allocate_next(&self, claims: &mut Claims<'_>) -> Result<Ipv4Addr, IpError> {
        let is_free = |ip: Ipv4Addr| ip != self.kept && claims.is_free(Allocation::Address(ip));
        let drawn = self.ready().find_map(|addresses| addresses.draw(is_free));
        let drawn = drawn.ok_or(IpError::Full)?;
        claims.take(Allocation::Address(drawn));
        Ok(drawn)
    }

    fn ready(&self) -> impl Iterator<Item = IpAllocator> {
        let ready = self.all.iter().filter(|range| range.is_ready);
        ready.map(|range| range.addresses)
    }

    /// An address of no range. A dry run is told one.
    fn refused(&self, asked: Asked) -> IpError {
        match self.ready().next() {
            Some(addresses) if asked.dry_run => IpError::NotInRange {
                ip: asked.ip,
                cidr: addresses.cidr(),
            },
            _ => IpError::MismatchedNetwork,
        }
    }
}

/// The ranges of all ServiceCIDRs, of either family, ready or not: nobody but Services has an
/// address in them.
#[must_use]
pub fn of_services(registry: &Registry) -> Vec<IpNet> {
    let kind = registry.get("networking.k8s.io", "v1", "servicecidrs");
    let all = kind.map(|kind| entries(&kind.cache)).unwrap_or_default();
    let cidrs = all.iter().flat_map(|entry| {
        let object = object_of(entry);
        let cidrs = items(&object["spec"]["cidrs"]).iter();
        let cidrs = cidrs.filter_map(|cidr| string(cidr).parse().ok());
        cidrs.collect::<Vec<_>>()
    });
    cidrs.collect()
}

fn ranges_of(entry: &Entry) -> Vec<ServiceRange> {
    let object = object_of(entry);
    let is_ready = !entry.is_terminating() && is_ready(&object);
    let cidrs = items(&object["spec"]["cidrs"]).iter();
    // Another family's is not this cluster's.
    let cidrs = cidrs.filter_map(|cidr| string(cidr).parse::<Ipv4Net>().ok());
    cidrs
        .map(|cidr| ServiceRange {
            addresses: IpAllocator::new(cidr),
            is_ready,
        })
        .collect()
}

/// All of a kind, as far as the cache has come.
pub(super) fn entries(cache: &ResourceCache) -> Vec<Arc<Entry>> {
    let (snapshot, all) = (cache.snapshot(), Selection::of(KeyScope::Resource));
    snapshot
        .select(&all, &cache.config().prefix)
        .cloned()
        .collect()
}

pub(super) fn object_of(entry: &Entry) -> Value {
    serde_json::from_slice(&entry.unmanaged()).unwrap_or_default()
}

/// What a ServiceCIDR says of itself.
pub(super) fn ready_condition(object: &Value) -> Option<&Value> {
    let mut conditions = meta::get_array(object, &["status", "conditions"]).iter();
    conditions.find(|condition| condition["type"] == "Ready")
}

/// One of which nobody says anything is: there may be no controllers.
fn is_ready(object: &Value) -> bool {
    ready_condition(object).is_none_or(|condition| condition["status"] == "True")
}
