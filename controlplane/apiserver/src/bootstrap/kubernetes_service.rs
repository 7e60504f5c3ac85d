//! The Service by which pods reach this server, at the first address of the range.
//!
//! Another Service may have that address, in a store of a release that gave it away. That keeps no
//! server from starting: it is told, once, and the `kubernetes` Service gets its address as soon as
//! it is free.

use std::net::IpAddr;

use coracle_registry::watch_cache::{KeyScope, Selection};
use serde_json::json;

use super::{Kind, ensure_object};
use crate::{config::first_service_ip, error::ApiServerError, state::State};

/// The Service by which pods reach this server.
pub(super) async fn ensure(server: &State) -> Result<(), ApiServerError> {
    let config = &server.config;
    let address = first_service_ip(&config.service_cidr);
    let service_ip = address.to_string();
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP", "sessionAffinity": "None",
            "clusterIP": service_ip, "clusterIPs": [service_ip],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": config.advertise.port()}],
        },
    });
    // As upstream, only made where there may be others: servers whose ports differ would change it
    // to and fro.
    let is_shared = server.store.backend.is_shared();
    let owned: &[_] = if is_shared { &[] } else { &["spec"] };
    match ensure_object(server, Kind::core("services"), service, owned).await {
        Err(_) if is_held(server, address) => Ok(()),
        ensured => {
            server.first_address.is_news(None);
            ensured
        }
    }
}

/// Says who has `address` in the `kubernetes` Service's stead. Whether somebody has.
fn is_held(server: &State, address: IpAddr) -> bool {
    let holder = holder(server, &address.to_string(), "default/kubernetes");
    if server.first_address.is_news(holder.as_deref()) {
        let holder = holder.as_deref().unwrap_or_default();
        tracing::warn!(
            "the Service {holder} has the cluster address {address}, which is kept for the Service default/kubernetes; \
             please recreate service {holder}, without spec.clusterIP: until then pods do not find the API by its Service"
        );
    }
    holder.is_some()
}

/// `NAMESPACE/NAME` of a Service with this address, other than `own`.
pub(super) fn holder(server: &State, address: &str, own: &str) -> Option<String> {
    let services = &server.registry.core("services")?.cache;
    let (snapshot, all) = (services.snapshot(), Selection::of(KeyScope::Resource));
    let mut others = snapshot
        .select(&all, &services.config().prefix)
        .map(|service| {
            let is_it = service.field("spec.clusterIP") == Some(address);
            let namespace = service.namespace().unwrap_or_default();
            is_it.then(|| format!("{namespace}/{}", service.name()))
        });
    others.find_map(|name| name.filter(|name| name != own))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coracle_registry::{
        resource::Registry,
        store::{Store, WriteOptions},
    };
    use coracle_store::{Backend, memory::MemoryBackend};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{server::ApiServer, testing};

    /// A store in which the Service `a` has the first address.
    async fn held() -> Arc<dyn Backend> {
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
        let stop = CancellationToken::new();
        let (registry, cache) = Registry::start(&backend, stop.clone()).await.unwrap();
        let store = Store {
            backend: Arc::clone(&backend),
            cache,
        };
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "default"},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}});
        let services = registry.core("services").unwrap();
        let made = store.create(services, "default", service, WriteOptions::default());
        made.await.unwrap();
        stop.cancel();
        backend
    }

    async fn address(server: &ApiServer, name: &str) -> Option<String> {
        let state = &server.state;
        state.store.cache.catch_up().await.unwrap();
        let services = state.registry.core("services").unwrap();
        let entry = services.cache.get(&services.key("default", name))?;
        entry.field("spec.clusterIP").map(str::to_owned)
    }

    #[tokio::test]
    async fn another_service_at_the_first_address_keeps_no_server_from_starting() {
        let server = testing::server_over(held().await).await;
        assert_eq!(address(&server, "kubernetes").await, None);
        assert_eq!(address(&server, "a").await.unwrap(), "10.96.0.1");
        ensure(&server.state).await.unwrap();
        let services = server.state.registry.core("services").unwrap();
        let options = Default::default();
        let deleted = server
            .state
            .store
            .delete(services, "default", "a", &options);
        deleted.await.unwrap();
        server.state.store.cache.catch_up().await.unwrap();
        ensure(&server.state).await.unwrap();
        assert_eq!(address(&server, "kubernetes").await.unwrap(), "10.96.0.1");
    }
}
