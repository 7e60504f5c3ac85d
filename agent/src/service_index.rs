//! The Services of the cluster, as far as containers' environments need them.

use std::{sync::Arc, time::Duration};

use coracle_client::cache::{Cache, Key};
use coracle_netfilter::service::Port;
use tokio::sync::watch;

use crate::informers::{Informers, SeenService};

/// A Service with a cluster IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceEntry {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) cluster_ip: String,
    pub(crate) ports: Vec<Port>,
}

/// All Services by namespace and name.
pub(crate) struct ServiceIndex {
    services: Arc<Cache<SeenService>>,
    synced: watch::Receiver<bool>,
}

impl ServiceIndex {
    pub(crate) fn new(informers: &Informers) -> Self {
        Self {
            services: informers.services.cache(),
            synced: informers.services.synced(),
        }
    }

    /// Waits, but not forever, until the Services have been listed once.
    pub(crate) async fn wait_synced(&self, limit: Duration) {
        let mut synced = self.synced.clone();
        // Too late is not fatal: the container gets fewer variables than it could.
        let _ = tokio::time::timeout(limit, synced.wait_for(|synced| *synced)).await;
    }

    /// The Services that a pod of this namespace may see, the API's among them.
    pub(crate) fn of_namespace(&self, namespace: &str) -> Vec<ServiceEntry> {
        let mut found = self.services.in_namespace(namespace, |_| true);
        if namespace != "default" {
            found.extend(self.services.get(&Key::new("default", "kubernetes")));
        }
        found.iter().filter_map(|service| entry(service)).collect()
    }
}

/// `None` for Services without an address of their own.
fn entry(service: &SeenService) -> Option<ServiceEntry> {
    let cluster_ip = service.part.cluster_ip?.to_string();
    let Key { namespace, name } = Key::of(service);
    Some(ServiceEntry {
        namespace,
        name,
        cluster_ip,
        ports: service.part.ports.clone(),
    })
}
