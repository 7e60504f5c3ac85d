//! What of the informers' caches has a name. No copy: each question is looked up there.

use std::{net::IpAddr, sync::Arc};

use coracle_client::cache::{By, Cache, Index, Key};
use coracle_dns::directory::{Directory, Endpoint, Port, Service, ServiceName};
use coracle_netfilter::service::Protocol;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

use crate::{
    informers::{Informers, SeenNamespace, SeenService, SeenSlice, SliceEndpoint, slice_service},
    pod::PodExt as _,
};

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
}

impl Names {
    pub(crate) fn new(informers: &Informers) -> Self {
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
        }
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
        self.synced.iter().all(|synced| *synced.borrow())
    }

    fn service(&self, namespace: &str, name: &str) -> Option<Service> {
        let service = self.services.get(&Key::new(namespace, name))?;
        let part = &service.part;
        Some(match (&part.external_name, part.cluster_ip) {
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
        })
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        // Their names are all that namespaces are for here: nothing else waits for them.
        !*self.namespaces_synced.borrow() || self.namespaces.get(&Key::new("", namespace)).is_some()
    }

    fn endpoints(&self, namespace: &str, service: &str) -> Vec<Endpoint> {
        let slices = self.slices.get(&Key::new(namespace, service).to_string());
        slices
            .iter()
            .flat_map(|slice| of_slice(slice, |_| true))
            .collect()
    }

    fn service_at(&self, address: IpAddr) -> Option<ServiceName> {
        let found = self.services_by_address.get(&address.to_string()).pop()?;
        let Key { namespace, name } = Key::of(&*found);
        Some(ServiceName { namespace, name })
    }

    fn endpoints_at(&self, address: IpAddr) -> Vec<(ServiceName, Endpoint)> {
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
