//! Sets right what other ways have brought out of step: Services that were stored before these
//! entries were, entries that somebody deleted, entries of Services that are no more.
//!
//! Source: `pkg/registry/core/service/ipallocator/controller/repairip.go`,
//! `pkg/registry/core/service/portallocator/controller/repair.go` at v1.37.

use std::{collections::HashMap, sync::Arc};

use coracle_api::{meta, status::Status};
use coracle_store::{Compare, Op};
use serde_json::Value;

use super::{Allocation, MANAGED_BY, MANAGER, of, ports};
use crate::{
    resource::{Registry, Resource},
    store::{Store, amend::Amendment},
    watch_cache::{Entry, KeyScope, ResourceCache, Selection},
};

/// Makes the entries that Services lack, and removes those that none has. Whoever does so at the
/// same time does no harm.
///
/// # Errors
/// The store cannot be read or written.
pub async fn repair(store: &Store, registry: &Registry) -> Result<(), Status> {
    let (Some(services), Some(addresses), Some(ports)) = (
        registry.core("services"),
        registry.get("networking.k8s.io", "v1", "ipaddresses"),
        store.cache.resource(ports::PREFIX),
    ) else {
        return Ok(());
    };
    // Entries first: one that is there was written with a Service that the later look then finds.
    let known = entries(&addresses.cache).into_iter().chain(entries(&ports));
    let mut known: HashMap<Allocation, Arc<Entry>> = known
        .filter_map(|entry| Some((Allocation::at(entry.key())?, entry)))
        .collect();
    let mut changes = Vec::new();
    for service in entries(&services.cache) {
        let lacking = of_entry(&service)
            .into_iter()
            .filter(|allocation| known.remove(allocation).is_none());
        changes.extend(lacking.map(|allocation| entry_for(&service, allocation)));
    }
    for (allocation, entry) in known {
        let is_port = matches!(allocation, Allocation::Port(_));
        if is_port || entry.label(MANAGED_BY) == Some(MANAGER) {
            changes.extend(orphan(store, services, allocation, &entry).await?);
        }
    }
    store.amend(changes).await
}

/// What a Service has, as it is in the cache. Most have no ports: they are not decoded.
fn of_entry(service: &Entry) -> Vec<Allocation> {
    if matches!(
        service.field("spec.type"),
        Some("NodePort" | "LoadBalancer")
    ) {
        let object: Value = serde_json::from_slice(service.unmanaged()).unwrap_or_default();
        return of(&object).into_iter().collect();
    }
    let address = service.field("spec.clusterIP");
    let address = address.and_then(|address| address.parse().ok());
    address.map(Allocation::Address).into_iter().collect()
}

fn entry_for(service: &Entry, allocation: Allocation) -> Amendment {
    let namespace = service.namespace().unwrap_or_default();
    let compare = vec![
        Compare::Absent(allocation.key()),
        Compare::ModRevision(service.key().into(), service.revision()),
    ];
    let op = allocation.put(namespace, service.name());
    Amendment { compare, op }
}

/// Removes an entry if its Service has it no more. The cache may be behind for one kind and not for
/// the other: the store has the last word.
async fn orphan(
    store: &Store,
    services: &Resource,
    allocation: Allocation,
    entry: &Entry,
) -> Result<Option<Amendment>, Status> {
    let object: Value = serde_json::from_slice(entry.unmanaged()).unwrap_or_default();
    let parent = |field: &str| meta::get_str(&object, &["spec", "parentRef", field]);
    let service_key = services.key(parent("namespace"), parent("name"));
    let service = store.fresh(&service_key).await?;
    let orphaned = match &service {
        None => Compare::Absent(service_key.into()),
        Some(service) if of(&service.object).contains(&allocation) => return Ok(None),
        Some(service) => Compare::ModRevision(service_key.into(), service.revision),
    };
    let unchanged = Compare::ModRevision(entry.key().into(), entry.revision());
    let (compare, key) = (vec![unchanged, orphaned], entry.key().into());
    let op = Op::Delete { key };
    Ok(Some(Amendment { compare, op }))
}

fn entries(cache: &ResourceCache) -> Vec<Arc<Entry>> {
    let (snapshot, all) = (cache.snapshot(), Selection::of(KeyScope::Resource));
    snapshot
        .select(&all, &cache.config().prefix)
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{store::WriteOptions, testing};

    async fn found(store: &Store, registry: &Registry) -> Vec<String> {
        store.cache.catch_up().await.unwrap();
        let addresses = registry.get("networking.k8s.io", "v1", "ipaddresses");
        let ports = store.cache.resource(ports::PREFIX).unwrap();
        [entries(&addresses.unwrap().cache), entries(&ports)]
            .iter()
            .flatten()
            .map(|entry| entry.name().to_owned())
            .collect()
    }

    #[tokio::test]
    async fn what_is_out_of_step_is_set_right() {
        let (store, registry) = testing::started().await;
        let services = registry.core("services").unwrap();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "default"},
            "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30090,
                "clusterIP": "10.96.3.3", "clusterIPs": ["10.96.3.3"],
                "ports": [{"port": 53, "nodePort": 30053, "protocol": "UDP", "name": "u"},
                    {"port": 53, "nodePort": 30053, "protocol": "TCP", "name": "t"}]}});
        let options = WriteOptions::default();
        let made = store.create(services, "default", service, options).await;
        made.unwrap();
        let all = ["10.96.3.3", "30053", "30090"];
        assert_eq!(found(&store, &registry).await, all);
        let both = |address: &str, port| {
            [
                Allocation::Address(address.parse().unwrap()),
                Allocation::Port(port),
            ]
        };
        for lost in both("10.96.3.3", 30053) {
            let op = Op::Delete { key: lost.key() };
            let compare = Vec::new();
            store.amend(vec![Amendment { compare, op }]).await.unwrap();
        }
        for stray in both("10.96.9.9", 30099) {
            let op = stray.put("default", "gone");
            let compare = Vec::new();
            store.amend(vec![Amendment { compare, op }]).await.unwrap();
        }
        assert_eq!(
            found(&store, &registry).await,
            ["10.96.9.9", "30090", "30099"]
        );
        repair(&store, &registry).await.unwrap();
        assert_eq!(found(&store, &registry).await, all);
        let options = Default::default();
        let gone = store.delete(services, "default", "a", &options);
        gone.await.unwrap();
        assert_eq!(found(&store, &registry).await, [""; 0]);
    }
}
