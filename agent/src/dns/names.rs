//! What of the informers' caches has a name. No copy: each question is looked up there.

use std::{net::IpAddr, sync::Arc};

use coracle_client::cache::{By, Cache, Index, Key};
use coracle_dns::directory::{Directory, Endpoint, Port, Service, ServiceName};
use coracle_netfilter::service::Protocol;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

use crate::{
    informers::{Informers, SeenService, SeenSlice, slice_service},
    pod::PodExt as _,
};

/// Clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    services: Arc<Cache<SeenService>>,
    services_by_address: By<SeenService>,
    slices: By<SeenSlice>,
    /// Those with endpoints that have a name of their own.
    slices_by_address: By<SeenSlice>,
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
        let slices_by_address = Index::new("named address", |slice: &SeenSlice, put| {
            for endpoint in named(slice) {
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

    fn has_services(&self, namespace: &str) -> bool {
        let mut is_first = true;
        // The first is enough.
        let found = self
            .services
            .in_namespace(namespace, |_| std::mem::take(&mut is_first));
        !found.is_empty()
    }

    fn endpoints(&self, namespace: &str, service: &str) -> Vec<Endpoint> {
        let slices = self.slices.get(&Key::new(namespace, service).to_string());
        let of_slice = |slice: &Arc<SeenSlice>| {
            let ports = slice.part.ports.iter();
            let ports = ports.map(|(name, protocol, number)| port(name, *protocol, *number));
            let ports: Arc<[Port]> = ports.collect();
            let ready = slice
                .part
                .endpoints
                .iter()
                .filter(|endpoint| endpoint.ready);
            let endpoint = |endpoint: &crate::informers::SliceEndpoint| Endpoint {
                address: endpoint.address,
                hostname: endpoint.hostname.as_deref().map(str::to_owned),
                ports: Arc::clone(&ports),
            };
            ready.map(endpoint).collect::<Vec<_>>()
        };
        slices.iter().flat_map(of_slice).collect()
    }

    fn service_at(&self, address: IpAddr) -> Option<ServiceName> {
        let found = self.services_by_address.get(&address.to_string()).pop()?;
        let Key { namespace, name } = Key::of(&*found);
        Some(ServiceName { namespace, name })
    }

    fn endpoint_at(&self, address: IpAddr) -> Option<(ServiceName, String)> {
        let slices = self.slices_by_address.get(&address.to_string());
        slices.iter().find_map(|slice| {
            let endpoint = named(slice).find(|endpoint| endpoint.address == address)?;
            let Key { namespace, name } = slice_service(slice)?;
            let hostname = endpoint.hostname.as_deref()?.to_owned();
            Some((ServiceName { namespace, name }, hostname))
        })
    }

    fn namespace_of(&self, asker: IpAddr) -> Option<String> {
        let pods = self.pods.get(&asker.to_string());
        // An address that has just gone from one to another is nobody's for a moment.
        let [pod] = &pods[..] else { return None };
        pod.metadata.namespace.clone()
    }
}

/// The endpoints with a name of their own.
fn named(slice: &SeenSlice) -> impl Iterator<Item = &crate::informers::SliceEndpoint> {
    let endpoints = slice.part.endpoints.iter();
    endpoints.filter(|endpoint| endpoint.ready && endpoint.hostname.is_some())
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
