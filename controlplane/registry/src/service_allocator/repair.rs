//! Sets right what other ways have brought out of step: Services that were stored before these
//! entries were, entries that somebody deleted, entries of Services that are no more. What it
//! cannot set right, such as two Services with one address, it tells: which of them is to have
//! another is not its choice.
//!
//! Source: `pkg/registry/core/service/ipallocator/controller/repairip.go`,
//! `pkg/registry/core/service/portallocator/controller/repair.go` at v1.37.

mod finding;

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use coracle_api::{meta, status::Status};
use coracle_store::{Compare, Op};
use serde_json::json;

pub use self::finding::{About, Finding};
use super::{
    Allocators, DEFAULT_SERVICE_CIDR,
    allocation::{Allocation, MANAGED_BY, MANAGER, of},
    is_kubernetes, node_ports,
    ranges::{self, Ranges, entries, object_of},
};
use crate::{
    resource::{Registry, Resource},
    store::{Store, amend::Amendment},
    watch_cache::Entry,
};

/// A change, and what it is told as.
type Change = (Amendment, Option<Finding>);

/// Makes the entries that Services lack, and removes those that none has. Whoever does so at the
/// same time does no harm. Says what was not as it should be; what is still so, each time.
///
/// # Errors
/// The store cannot be read or written.
pub async fn repair(
    store: &Store,
    registry: &Registry,
    allocators: Option<&Allocators>,
) -> Result<Vec<Finding>, Status> {
    let (Some(services), Some(addresses), Some(ports)) = (
        registry.core("services"),
        registry.get("networking.k8s.io", "v1", "ipaddresses"),
        store.cache.resource(node_ports::PREFIX),
    ) else {
        return Ok(Vec::new());
    };
    // Entries first: one that is there was written with a Service that the later look then finds.
    let known = entries(&addresses.cache).into_iter().chain(entries(&ports));
    let mut known: HashMap<Allocation, Arc<Entry>> = known
        .filter_map(|entry| Some((Allocation::at(entry.key())?, entry)))
        .collect();
    let (mut findings, mut changes) = (Vec::new(), Vec::new());
    findings.extend(allocators.and_then(own_range));
    let ranges = allocators.map(Allocators::ranges);
    let mut holders: BTreeMap<Allocation, Vec<Arc<Entry>>> = BTreeMap::new();
    for service in entries(&services.cache) {
        let has = of_entry(&service);
        if let (Some(allocators), Some(ranges)) = (allocators, &ranges) {
            findings.extend(out_of_range(allocators, ranges, &service, &has));
        }
        for allocation in has {
            let holders = holders.entry(allocation).or_default();
            holders.push(Arc::clone(&service));
        }
    }
    let kept = allocators.map(|allocators| allocators.own.first());
    for (allocation, holders) in &holders {
        let entry = known.remove(allocation);
        let parent = entry.as_deref().map(Parent::of);
        let Some(owner) = owner(holders, parent.as_ref()) else {
            continue;
        };
        if !parent.is_some_and(|parent| parent.is(owner)) {
            let entry = entry.as_deref();
            changes.extend(claim(store, services, owner, *allocation, entry).await?);
        }
        let others = holders
            .iter()
            .filter(|holder| holder.key() != owner.key() || is_kept(kept, *allocation, holder));
        findings.extend(others.map(|other| finding::already_allocated(other, *allocation)));
    }
    for (allocation, entry) in known {
        let is_port = matches!(allocation, Allocation::Port(_));
        if is_port || entry.label(MANAGED_BY) == Some(MANAGER) {
            changes.extend(orphan(store, services, allocation, &entry).await?);
        }
    }
    let (amendments, told): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
    let made = store.amend(amendments).await?;
    let told = told.into_iter().zip(made).filter(|(_, made)| *made);
    findings.extend(told.filter_map(|(finding, _)| finding));
    Ok(findings)
}

/// Of those that have one and the same, the one whose it is: by its entry, or the oldest.
fn owner<'a>(holders: &'a [Arc<Entry>], parent: Option<&Parent>) -> Option<&'a Arc<Entry>> {
    let rank = |holder: &&Arc<Entry>| {
        let is_parent = parent.is_some_and(|parent| parent.is(holder));
        let namespace = holder.namespace().unwrap_or_default();
        let is_kubernetes = is_kubernetes(namespace, holder.name());
        (!is_parent, !is_kubernetes, holder.create_revision())
    };
    holders.iter().min_by_key(rank)
}

/// Whether it is the address that is kept for the `kubernetes` Service, and another's.
fn is_kept(kept: Option<Ipv4Addr>, allocation: Allocation, holder: &Entry) -> bool {
    let namespace = holder.namespace().unwrap_or_default();
    kept.map(Allocation::Address) == Some(allocation) && !is_kubernetes(namespace, holder.name())
}

/// What a Service has, as it is in the cache. Most have no ports: they are not decoded.
fn of_entry(service: &Entry) -> Vec<Allocation> {
    if matches!(
        service.field("spec.type"),
        Some("NodePort" | "LoadBalancer")
    ) {
        return of(&object_of(service)).into_iter().collect();
    }
    let address = service.field("spec.clusterIP");
    let address = address.and_then(|address| address.parse().ok());
    address.map(Allocation::Address).into_iter().collect()
}

/// What is wrong with the ServiceCIDR that is the server's own range.
///
/// Source: `syncStatus` in `pkg/controlplane/controller/defaultservicecidr` at v1.37.
fn own_range(allocators: &Allocators) -> Option<Finding> {
    let mut all = entries(&allocators.ranges).into_iter();
    let entry = all.find(|entry| entry.name() == DEFAULT_SERVICE_CIDR)?;
    if entry.is_terminating() {
        return None;
    }
    let object = object_of(&entry);
    let (found, own) = (&object["spec"]["cidrs"], allocators.own.cidr().to_string());
    if *found != json!([own]) {
        return Some(finding::another_range(&entry, found, &own));
    }
    let condition = ranges::ready_condition(&object)?;
    (condition["status"] == "False").then(|| finding::range_not_ready(&entry, condition))
}

/// What no Service could get.
fn out_of_range(
    allocators: &Allocators,
    ranges: &Ranges,
    service: &Entry,
    has: &[Allocation],
) -> Vec<Finding> {
    let ports = has.iter().filter_map(|allocation| match allocation {
        Allocation::Port(port) if !allocators.ports.contains(*port) => Some(
            finding::port_out_of_range(service, *port, &allocators.ports.text()),
        ),
        _ => None,
    });
    let text = service.field("spec.clusterIP").unwrap_or_default();
    let address = match text.parse() {
        _ if matches!(text, "" | "None") || service.field("spec.type") == Some("ExternalName") => {
            None
        }
        Ok(IpAddr::V4(ip)) if ranges.contain(ip) => None,
        Ok(ip) => Some(finding::ip_out_of_range(service, ip)),
        Err(_) => Some(finding::ip_not_valid(service, text)),
    };
    address.into_iter().chain(ports).collect()
}

/// Whose an entry says that something is.
struct Parent {
    namespace: String,
    name: String,
    is_service: bool,
}

impl Parent {
    fn of(entry: &Entry) -> Self {
        let object = object_of(entry);
        let field = |field: &str| meta::get_str(&object, &["spec", "parentRef", field]).to_owned();
        Self {
            is_service: field("group").is_empty() && field("resource") == "services",
            namespace: field("namespace"),
            name: field("name"),
        }
    }

    fn is(&self, service: &Entry) -> bool {
        self.is_service
            && (self.namespace.as_str(), self.name.as_str())
                == (service.namespace().unwrap_or_default(), service.name())
    }

    /// What must be so for it not to have `allocation`, and whether it has gone; `None` if it has
    /// it. The cache may be behind for one kind and not for the other: the store has the last word.
    async fn lacks(
        &self,
        store: &Store,
        services: &Resource,
        allocation: Allocation,
    ) -> Result<Option<(Vec<Compare>, bool)>, Status> {
        if !self.is_service {
            return Ok(Some((Vec::new(), false)));
        }
        let key = services.key(&self.namespace, &self.name);
        Ok(match store.fresh(&key).await? {
            None => Some((vec![Compare::Absent(key.into())], true)),
            Some(service) if of(&service.object).contains(&allocation) => None,
            Some(service) => {
                let unchanged = Compare::ModRevision(key.into(), service.revision);
                Some((vec![unchanged], false))
            }
        })
    }
}

/// Makes a Service's entry, or has it say whose it is.
async fn claim(
    store: &Store,
    services: &Resource,
    service: &Entry,
    allocation: Allocation,
    entry: Option<&Entry>,
) -> Result<Option<Change>, Status> {
    let mut compare = vec![Compare::ModRevision(
        service.key().into(),
        service.revision(),
    )];
    let finding = match entry {
        None => {
            compare.push(Compare::Absent(allocation.key()));
            finding::not_allocated(service, allocation)
        }
        Some(entry) => {
            let parent = Parent::of(entry);
            let lacks = parent.lacks(store, services, allocation);
            let Some((lacks, _)) = lacks.await? else {
                return Ok(None);
            };
            compare.extend(lacks);
            compare.push(Compare::ModRevision(entry.key().into(), entry.revision()));
            finding::wrong_reference(service, allocation)
        }
    };
    let op = allocation.put(service.namespace().unwrap_or_default(), service.name());
    Ok(Some((Amendment { compare, op }, Some(finding))))
}

/// Removes an entry if its Service has it no more.
async fn orphan(
    store: &Store,
    services: &Resource,
    allocation: Allocation,
    entry: &Entry,
) -> Result<Option<Change>, Status> {
    let parent = Parent::of(entry);
    let lacks = parent.lacks(store, services, allocation);
    let Some((mut compare, is_gone)) = lacks.await? else {
        return Ok(None);
    };
    compare.push(Compare::ModRevision(entry.key().into(), entry.revision()));
    let op = Op::Delete {
        key: entry.key().into(),
    };
    let finding = matches!(allocation, Allocation::Address(_)).then(|| {
        let service = format!("{}/{}", parent.namespace, parent.name);
        finding::stray(entry, &service, is_gone)
    });
    Ok(Some((Amendment { compare, op }, finding)))
}

#[cfg(test)]
mod tests;
