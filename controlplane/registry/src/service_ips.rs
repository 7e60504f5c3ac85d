//! IPAddress objects of Services: every cluster address has one, which says whose it is.
//!
//! They are written and removed in the Service's own transactions, so an address is never given out
//! twice and never left behind, whoever hangs up in between. What other ways have brought out of
//! step (Services stored before these objects were, objects that somebody deleted) is set right at
//! the start and then now and again.
//!
//! Source: `pkg/registry/core/service/ipallocator/ipallocator.go`,
//! `pkg/registry/core/service/ipallocator/controller/repairip.go` at v1.37.

use std::{collections::HashMap, net::Ipv4Addr, sync::Arc};

use coracle_api::{meta, status::Status};
use coracle_store::{Compare, Op, Txn};
use serde_json::{Value, json};

use super::{
    encode, object_meta,
    resource::{Registry, Resource},
    store::{Store, store_status},
};
use crate::{
    store::companions::Companions,
    watch_cache::{Entry, KeyScope, Selection},
};

const GROUP: &str = "networking.k8s.io";
const PLURAL: &str = "ipaddresses";
/// Where they are stored.
const PREFIX: &str = "/registry/networking.k8s.io/ipaddresses/";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const MANAGER: &str = "ipallocator.k8s.io";

/// What has to be written with a Service that is made (`old` is `None`), changed, or removed (`new`
/// is `None`).
pub(crate) fn companions(
    resource: &Resource,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Companions {
    let mut companions = Companions::default();
    if !resource.is_core("services") {
        return companions;
    }
    let (before, after) = (old.and_then(address), new.and_then(address));
    if before == after {
        return companions;
    }
    companions
        .ops
        .extend(before.map(|address| Op::Delete { key: key(address) }));
    if let (Some(address), Some(service)) = (after, new) {
        companions.compare.push(Compare::Absent(key(address)));
        companions
            .ops
            .push(put(address, meta::namespace(service), meta::name(service)));
    }
    companions
}

/// The key of an address' object.
pub(crate) fn key(address: Ipv4Addr) -> Arc<str> {
    format!("{PREFIX}{address}").into()
}

/// The cluster address of a Service.
pub(crate) fn address(service: &Value) -> Option<Ipv4Addr> {
    meta::get_str(service, &["spec", "clusterIP"]).parse().ok()
}

fn put(address: Ipv4Addr, namespace: &str, name: &str) -> Op {
    let mut object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": address.to_string(),
            "labels": {"ipaddress.kubernetes.io/ip-family": "IPv4", MANAGED_BY: MANAGER}},
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
    });
    object_meta::fill_new(&mut object);
    Op::Put {
        key: key(address),
        value: encode::encode(&object).expect("it is a few levels deep"),
    }
}

/// Makes the objects that Services lack, and removes those that none has.
///
/// # Errors
/// The store cannot be read or written.
pub async fn repair(store: &Store, registry: &Registry) -> Result<(), Status> {
    let (Some(services), Some(addresses)) =
        (registry.core("services"), registry.get(GROUP, "v1", PLURAL))
    else {
        return Ok(());
    };
    // Addresses first: one that is there was written with a Service that the later look then finds.
    let mut known: HashMap<Ipv4Addr, Arc<Entry>> = HashMap::new();
    for entry in entries(addresses) {
        known.extend(entry.name().parse().ok().map(|address| (address, entry)));
    }
    for service in entries(services) {
        let Some(address) = service
            .field("spec.clusterIP")
            .and_then(|address| address.parse().ok())
        else {
            continue;
        };
        if known.remove(&address).is_none() {
            let op = put(
                address,
                service.namespace().unwrap_or_default(),
                service.name(),
            );
            let unchanged = Compare::ModRevision(service.key().into(), service.revision());
            commit(store, vec![Compare::Absent(key(address)), unchanged], op).await?;
        }
    }
    for (address, entry) in known
        .into_iter()
        .filter(|(_, entry)| entry.label(MANAGED_BY) == Some(MANAGER))
    {
        // The cache may be behind for one kind and not for the other: the store has the last word.
        let object: Value = serde_json::from_slice(entry.unmanaged()).unwrap_or_default();
        let parent = |field: &str| meta::get_str(&object, &["spec", "parentRef", field]);
        let service_key = services.key(parent("namespace"), parent("name"));
        let service = store.fresh(&service_key).await?;
        let orphaned = match &service {
            None => Compare::Absent(service_key.into()),
            Some(service) if self::address(&service.object) == Some(address) => continue,
            Some(service) => Compare::ModRevision(service_key.into(), service.revision),
        };
        let unchanged = Compare::ModRevision(entry.key().into(), entry.revision());
        commit(
            store,
            vec![unchanged, orphaned],
            Op::Delete {
                key: entry.key().into(),
            },
        )
        .await?;
    }
    Ok(())
}

fn entries(resource: &Resource) -> Vec<Arc<Entry>> {
    let snapshot = resource.cache.snapshot();
    snapshot
        .select(&Selection::of(KeyScope::Resource), &resource.prefix)
        .cloned()
        .collect()
}

/// Writes unless something has changed meanwhile: then the next round sees it.
async fn commit(store: &Store, compare: Vec<Compare>, op: Op) -> Result<(), Status> {
    store
        .backend
        .txn(Txn {
            compare,
            ops: vec![op],
            ..Txn::default()
        })
        .await
        .map(drop)
        .map_err(store_status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{store::WriteOptions, testing};

    const ADDRESS: &str = "10.96.3.3";

    async fn objects(store: &Store, registry: &Registry) -> Vec<String> {
        store.cache.catch_up().await.unwrap();
        let resource = registry.get(GROUP, "v1", PLURAL).unwrap();
        assert_eq!(resource.prefix, PREFIX);
        entries(resource)
            .iter()
            .map(|entry| entry.name().to_owned())
            .collect()
    }

    #[tokio::test]
    async fn what_is_out_of_step_is_set_right() {
        let (store, registry) = testing::started().await;
        let services = registry.core("services").unwrap();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "default"},
            "spec": {"clusterIP": ADDRESS, "clusterIPs": [ADDRESS], "ports": [{"port": 80}]}});
        store
            .create(services, "default", service, WriteOptions::default())
            .await
            .unwrap();
        assert_eq!(objects(&store, &registry).await, [ADDRESS]);
        let address: Ipv4Addr = ADDRESS.parse().unwrap();
        commit(&store, Vec::new(), Op::Delete { key: key(address) })
            .await
            .unwrap();
        assert_eq!(objects(&store, &registry).await, [""; 0]);
        let stray: Ipv4Addr = "10.96.9.9".parse().unwrap();
        commit(&store, Vec::new(), put(stray, "default", "gone"))
            .await
            .unwrap();
        objects(&store, &registry).await;
        repair(&store, &registry).await.unwrap();
        assert_eq!(objects(&store, &registry).await, [ADDRESS]);
    }
}
