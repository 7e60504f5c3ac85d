//! What of the informers' caches has a name. No copy: each question is looked up there.
//!
//! Before the caches know, after a start, what the agent before has [`remembered`] counts, unless a
//! server answers soon.
//!
//! [`remembered`]: super::remembered

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use coracle_client::{
    cache::{By, Cache, Change, Index, Key},
    feed::Feed,
    part::Part,
};
use coracle_dns::directory::{Directory, Endpoint, Port, Service, ServiceName};
use coracle_netfilter::service::Protocol;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::remembered::{Kept, Remembered};
use crate::{
    blocking::blocking,
    informers::{Informers, SeenNamespace, SeenService, SeenSlice, SliceEndpoint, slice_service},
    pod::PodExt as _,
};

/// How long a server may take to say what there is, before what was known last counts: with one
/// that answers, a Service that has changed meanwhile is not answered as it was.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two writes of what there is.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// Clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    services: Arc<Cache<SeenService>>,
    services_by_address: By<SeenService>,
    slices: By<SeenSlice>,
    slices_by_address: By<SeenSlice>,
    namespaces: Arc<Cache<SeenNamespace>>,
    namespaces_synced: watch::Receiver<bool>,
    pods: By<Pod>,
    synced: [watch::Receiver<bool>; 2],
    changes: Feed,
    began: Instant,
    /// What the agent before has known, until it is known anew.
    before: Arc<Mutex<Option<Arc<Remembered>>>>,
}

impl Names {
    /// Before the informers run.
    pub(crate) fn new(informers: &mut Informers) -> Self {
        let mut changes = Feed::default();
        changes.follow(&mut informers.services, differs);
        changes.follow(&mut informers.slices, differs);
        let services_by_address = Index::new("address", |service: &SeenService, put| {
            if let Some(address) = service.part.cluster_ip {
                put(&address.to_string());
            }
        });
        let slices_by_address = Index::new("ready address", |slice: &SeenSlice, put| {
            for endpoint in ready(slice) {
                put(&endpoint.address.to_string());
            }
        });
        let pods = Index::new("address", |pod: &Pod, put| {
            let addresses = pod
                .status
                .iter()
                .filter_map(|status| status.pod_ip.as_ref());
            // Who has the node's address may be anybody there.
            addresses
                .filter(|_| !pod.host_network())
                .for_each(|address| put(address));
        });
        Self {
            services: informers.services.cache(),
            services_by_address: informers.services.index(services_by_address),
            slices: informers.slices_by_service(),
            slices_by_address: informers.slices.index(slices_by_address),
            namespaces: informers.namespaces.cache(),
            namespaces_synced: informers.namespaces.synced(),
            pods: informers.pods.index(pods),
            synced: [informers.services.synced(), informers.slices.synced()],
            changes,
            began: Instant::now(),
            before: Arc::default(),
        }
    }

    /// Keeps at `path` what there is, for the next agent; and until it is known here, has what the
    /// one before has kept there.
    pub(crate) async fn remember(self, path: PathBuf, stop: CancellationToken) {
        let (mut kept, before) = blocking(move || Kept::load(path)).await;
        *self.before.lock() = before.map(Arc::new);
        let listed = stop.run_until_cancelled(self.listed()).await;
        if listed.is_none() && !self.is_known() {
            return;
        }
        *self.before.lock() = None;
        let mut is_over = false;
        loop {
            if !self.changes.take().is_empty() {
                let names = self.clone();
                let saved = blocking(move || {
                    kept.save(&names.all());
                    kept
                });
                kept = saved.await;
            }
            if is_over {
                return;
            }
            let more = async {
                self.changes.changed().await;
                // What else changes goes with it.
                sleep(WRITE_INTERVAL).await;
            };
            is_over = stop.run_until_cancelled(more).await.is_none();
        }
    }

    fn all(&self) -> Remembered {
        let services = self.services.all().into_iter();
        Remembered::new(services.map(|service| {
            let Key { namespace, name } = Key::of(&*service);
            let endpoints = self.endpoints(&namespace, &name);
            (ServiceName { namespace, name }, told(&service), endpoints)
        }))
    }

    fn is_known(&self) -> bool {
        self.synced.iter().all(|synced| *synced.borrow())
    }

    /// What counts for as long as nothing is known.
    fn before(&self) -> Option<Arc<Remembered>> {
        if self.is_known() || self.began.elapsed() < PATIENCE {
            return None;
        }
        self.before.lock().clone()
    }

    /// Returns once all Services and slices have been seen.
    pub(crate) async fn listed(&self) {
        for synced in &self.synced {
            // The informers end with the agent, and so does who waits here.
            let _ = synced.clone().wait_for(|synced| *synced).await;
        }
    }
}

impl Directory for Names {
    fn is_complete(&self) -> bool {
        self.is_known() || self.before().is_some()
    }

    fn service(&self, namespace: &str, name: &str) -> Option<Service> {
        if let Some(before) = self.before() {
            return before.service(namespace, name);
        }
        let service = self.services.get(&Key::new(namespace, name))?;
        Some(told(&service))
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        // Their names are all that namespaces are for here: nothing else waits for them.
        !*self.namespaces_synced.borrow() || self.namespaces.get(&Key::new("", namespace)).is_some()
    }

    fn endpoints(&self, namespace: &str, service: &str) -> Vec<Endpoint> {
        if let Some(before) = self.before() {
            return before.endpoints(namespace, service);
        }
        let slices = self.slices.get(&Key::new(namespace, service).to_string());
        slices
            .iter()
            .flat_map(|slice| of_slice(slice, |_| true))
            .collect()
    }

    fn service_at(&self, address: IpAddr) -> Option<ServiceName> {
        if let Some(before) = self.before() {
            return before.service_at(address);
        }
        let found = self.services_by_address.get(&address.to_string()).pop()?;
        let Key { namespace, name } = Key::of(&*found);
        Some(ServiceName { namespace, name })
    }

    fn endpoints_at(&self, address: IpAddr) -> Vec<(ServiceName, Endpoint)> {
        if let Some(before) = self.before() {
            return before.endpoints_at(address);
        }
        let slices = self.slices_by_address.get(&address.to_string());
        let of_service = |slice: &Arc<SeenSlice>| {
            let Key { namespace, name } = slice_service(slice)?;
            let service = ServiceName { namespace, name };
            let found = of_slice(slice, |one| one.address == address).into_iter();
            Some(found.map(move |one| (service.clone(), one)))
        };
        slices.iter().filter_map(of_service).flatten().collect()
    }

    fn namespace_of(&self, asker: IpAddr) -> Option<String> {
        let pods = self.pods.get(&asker.to_string());
        // An address that has just gone from one to another is nobody's for a moment.
        let [pod] = &pods[..] else { return None };
        pod.metadata.namespace.clone()
    }
}

/// One key for all: whatever changes, everything is written.
fn differs<O: kube::Resource, T: PartialEq>(change: &Change<'_, Part<O, T>>) -> Option<Key> {
    let is_news = match change {
        Change::Updated { old, new } => old.part != new.part,
        Change::Added(_) | Change::Deleted(_) => true,
    };
    is_news.then(|| Key::new("", "names"))
}

/// What names say of it.
fn told(service: &SeenService) -> Service {
    let part = &service.part;
    match (&part.external_name, part.cluster_ip) {
        (Some(other), _) => Service::External(other.to_string()),
        (None, None) => Service::Headless,
        (None, Some(address)) => {
            let ports = part.ports.iter();
            let ports = ports.map(|one| port(&one.name, one.protocol, one.port));
            Service::Addresses {
                addresses: vec![address],
                ports: ports.collect(),
            }
        }
    }
}

fn ready(slice: &SeenSlice) -> impl Iterator<Item = &SliceEndpoint> {
    let endpoints = slice.part.endpoints.iter();
    endpoints.filter(|endpoint| endpoint.ready)
}

/// The ready endpoints that pass `keep`.
fn of_slice(slice: &SeenSlice, keep: impl Fn(&SliceEndpoint) -> bool) -> Vec<Endpoint> {
    let ports = slice.part.ports.iter();
    let ports = ports.map(|(name, protocol, number)| port(name, *protocol, *number));
    let ports: Arc<[Port]> = ports.collect();
    let endpoint = |endpoint: &SliceEndpoint| Endpoint {
        address: endpoint.address,
        hostname: endpoint.hostname.as_deref().map(str::to_owned),
        ports: Arc::clone(&ports),
    };
    let endpoints = ready(slice).filter(|endpoint| keep(endpoint));
    endpoints.map(endpoint).collect()
}

fn port(name: &str, protocol: Protocol, number: u16) -> Port {
    Port {
        name: name.to_owned(),
        protocol: match protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        },
        number,
    }
}

#[cfg(test)]
mod tests;
