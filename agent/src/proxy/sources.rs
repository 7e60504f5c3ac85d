//! What Services and EndpointSlices say of packets, and which Services have changed since last
//! asked. No I/O.

mod views;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use coracle_api::cluster_dns;
use coracle_client::{
    cache::{By, Cache, Change, Key},
    feed::Feed,
};
use coracle_netfilter::service::{Endpoint, Port, PortView, ServiceKey, ServiceView};

use super::{
    health_checks::HealthCheck, holdings::Place, nearness, owned::Owned,
    service_ranges::ServiceCidrs, translated::Translated,
};
use crate::{
    admission::listening::Listeners,
    informers::{Informers, SeenNode, SeenService, SeenSlice, SliceEndpoint, slice_service},
    inquiries::Inquiries,
    network::published::PublishedPorts,
};

/// The Service of the API servers: its endpoints are where they are.
const API_SERVERS: &str = "default/kubernetes";

/// A Service, and what it is now; `None`: gone, or not this proxy's. What its status does not give
/// it is withheld.
pub(super) type Changed = (ServiceKey, Option<ServiceView>);

/// Everything known, and what of it the proxy has still to look at. Clones are one.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Of Services.
    feed: Feed,
    services: Arc<Cache<SeenService>>,
    slices: By<SeenSlice>,
    nodes: Arc<Cache<SeenNode>>,
    service_cidrs: ServiceCidrs,
    /// Where the node answers itself.
    own_service_ip: Option<IpAddr>,
    /// What pods publish on the node.
    published: PublishedPorts,
    /// Who listens on it.
    listeners: Listeners,
    inquiries: Inquiries<Owned>,
}

impl Sources {
    /// As the informers tell.
    #[must_use]
    pub fn new(informers: &mut Informers) -> Self {
        let mut feed = Feed::default();
        feed.follow(&mut informers.services, service_news);
        feed.follow(&mut informers.slices, slice_news);
        // Endpoints may be meant for the zone that this node is in now, and its addresses say where
        // balancers' traffic comes.
        let (moved, all) = (feed.clone(), informers.services.cache());
        informers.nodes.on_change(move |change| {
            let place = |node: &SeenNode| {
                let zone = node.part.own_zone().map(str::to_owned);
                (zone, translated(node))
            };
            let (before, now) = match change {
                Change::Added(new) => ((None, None), place(new)),
                Change::Updated { old, new } => (place(old), place(new)),
                Change::Deleted(old) => (place(old), (None, None)),
            };
            if before != now {
                moved.add(all.all().iter().map(|service| Key::of(service.as_ref())));
            }
        });
        let (services, nodes) = (informers.services.cache(), informers.nodes.cache());
        Self {
            feed,
            services,
            slices: informers.slices_by_service(),
            nodes,
            service_cidrs: ServiceCidrs::new(informers),
            own_service_ip: None,
            published: PublishedPorts::default(),
            listeners: Listeners::default(),
            inquiries: Inquiries::default(),
        }
    }

    /// Who asks the proxy what it alone knows.
    pub(super) fn inquiries(&self) -> &Inquiries<Owned> {
        &self.inquiries
    }

    /// Beside pods that publish ports of the node, and daemons that listen on it.
    #[must_use]
    pub(crate) fn beside(self, published: PublishedPorts, listeners: Listeners) -> Self {
        Self {
            published,
            listeners,
            ..self
        }
    }

    pub(super) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    pub(super) fn service_cidrs(&self) -> &ServiceCidrs {
        &self.service_cidrs
    }

    pub(super) fn published(&self) -> &PublishedPorts {
        &self.published
    }

    /// Without the Service for names at this address, at which the node answers itself. One of
    /// somebody else that has the address is proxied as any.
    #[must_use]
    pub(crate) fn without(self, own_service_ip: Option<IpAddr>) -> Self {
        Self {
            own_service_ip,
            ..self
        }
    }

    fn is_answered_here(&self, key: &Key, service: &SeenService) -> bool {
        let address = service.part.cluster_ip;
        address.is_some()
            && address == self.own_service_ip
            && (&*key.namespace, &*key.name) == (cluster_dns::NAMESPACE, cluster_dns::SERVICE)
    }

    /// Returns once the lists are complete: before, rules made from this would tear down what
    /// works. Cancel-safe.
    pub(super) async fn listed(&self) {
        self.service_cidrs.listed_with(self.feed.listed()).await;
    }

    /// For a proxy that begins anew: everything counts as changed.
    pub(super) fn restart(&self) {
        self.feed.add(
            self.services
                .all()
                .iter()
                .map(|service| Key::of(service.as_ref())),
        );
    }

    /// Returns once [`Self::take_changes`] has something to return. Cancel-safe.
    pub(super) async fn changed(&self) {
        self.feed.changed().await;
    }

    /// Whether [`Self::take_changes`] would return anything.
    pub(super) fn has_changes(&self) -> bool {
        !self.feed.is_empty()
    }

    /// The Services that changed since the last call.
    pub(super) fn take_changes(&self) -> Vec<Changed> {
        let own = self.nodes.filter(|node| node.part.own.is_some()).pop();
        let zone = own.as_ref().and_then(|node| node.part.own_zone());
        let translated = own.as_ref().and_then(|node| translated(node));
        let changed = self.feed.take().into_iter().map(|key| {
            let service = self.services.get(&key);
            let is_proxied = |slice: &SeenSlice| slice.part.is_proxied;
            let slices = self.slices.filter(&key.to_string(), is_proxied);
            let service = service.filter(|service| !self.is_answered_here(&key, service));
            let mut view = service.and_then(|service| view(&service, &slices, zone));
            if let (Some(view), Some(translated)) = (&mut view, &translated) {
                translated.complete(view);
            }
            (
                ServiceKey {
                    namespace: key.namespace,
                    name: key.name,
                },
                view,
            )
        });
        changed.collect()
    }

    /// How load balancers ask for a Service: its endpoints here count as those of upstream's
    /// `LocalReadyEndpoints`, by address.
    pub(super) fn health_check(&self, key: &ServiceKey) -> Option<HealthCheck> {
        let key = Key::new(&*key.namespace, &*key.name);
        let service = self.services.get(&key)?;
        let port = service.part.rules.as_ref()?.health_port?;
        let slices = self.slices.get(&key.to_string());
        Some(HealthCheck {
            uid: service.metadata.uid.clone(),
            port,
            local_endpoints: local_endpoints(&slices),
        })
    }

    /// Whether the node may take new traffic, as far as it is known: it is not about to go.
    pub(super) fn is_node_eligible(&self) -> bool {
        !self.nodes.all().iter().any(|node| node.part.is_going())
    }

    /// The addresses of the nodes that are known.
    pub(super) fn nodes(&self) -> BTreeSet<IpAddr> {
        self.nodes
            .all()
            .iter()
            .filter_map(|node| node.part.network.address)
            .map(IpAddr::V4)
            .collect()
    }

    /// Where the API servers are.
    pub(super) fn api_servers(&self) -> BTreeSet<Place> {
        let slices = self.slices.get(API_SERVERS);
        let places = slices.iter().map(|slice| &slice.part).flat_map(|slice| {
            let ports = slice.ports.iter();
            ports.flat_map(|(_, protocol, port)| {
                slice
                    .endpoints
                    .iter()
                    .map(|one| (one.address, *protocol, *port))
            })
        });
        places.collect()
    }
}

fn translated(node: &SeenNode) -> Option<Translated> {
    node.part.own.as_deref().and_then(Translated::of)
}

/// Most changes are of no interest to packets.
fn service_news(change: &Change<'_, SeenService>) -> Option<Key> {
    let is_news = match change {
        Change::Updated { old, new } => old.part != new.part,
        Change::Added(_) | Change::Deleted(_) => true,
    };
    let before = if let Change::Updated { old, .. } = change {
        old
    } else {
        change.latest()
    };
    let has_rules = before.part.rules.is_some() || change.latest().part.rules.is_some();
    (is_news && has_rules).then(|| Key::of(before.as_ref()))
}

fn slice_news(change: &Change<'_, SeenSlice>) -> BTreeSet<Key> {
    match change {
        Change::Updated { old, new } if old.part == new.part => BTreeSet::new(),
        // It may be another's now.
        Change::Updated { old, new } => {
            service_of(old).into_iter().chain(service_of(new)).collect()
        }
        Change::Added(slice) | Change::Deleted(slice) => service_of(slice).into_iter().collect(),
    }
}

fn service_of(slice: &SeenSlice) -> Option<Key> {
    slice
        .part
        .is_proxied
        .then(|| slice_service(slice))
        .flatten()
}

/// `zone` is that of this node.
fn view(
    service: &SeenService,
    slices: &[Arc<SeenSlice>],
    zone: Option<&str>,
) -> Option<ServiceView> {
    let rules = service.part.rules.as_ref()?;
    Some(ServiceView {
        uid: service.metadata.uid.clone(),
        cluster_ips: rules.cluster_ips.clone(),
        external_ips: rules.external_ips.clone(),
        balancer_ips: rules.balancer_ips.clone(),
        withheld: rules.not_given.clone(),
        source_ranges: rules.source_ranges.clone(),
        affinity_secs: rules.affinity_secs,
        internal_local: rules.internal_local,
        external_local: rules.external_local,
        ports: service
            .part
            .ports
            .iter()
            .map(|port| port_view(port, slices, zone))
            .collect(),
    })
}

/// Addresses on this node that are ready.
fn local_endpoints(slices: &[Arc<SeenSlice>]) -> usize {
    let proxied = slices.iter().filter(|slice| slice.part.is_proxied);
    let endpoints = proxied.flat_map(|slice| &slice.part.endpoints);
    let here = endpoints.filter(|endpoint| endpoint.local && endpoint.ready);
    let addresses: BTreeSet<IpAddr> = here.map(|endpoint| endpoint.address).collect();
    addresses.len()
}

fn port_view(port: &Port, slices: &[Arc<SeenSlice>], zone: Option<&str>) -> PortView {
    // By address: the same endpoint in two slices is one, and local if either says so.
    let mut endpoints: BTreeMap<SocketAddr, SliceEndpoint> = BTreeMap::new();
    for slice in slices.iter().map(|slice| &slice.part) {
        for (_, _, target) in slice
            .ports
            .iter()
            .filter(|(n, p, _)| *n == port.name && *p == port.protocol)
        {
            for endpoint in &slice.endpoints {
                let address = SocketAddr::new(endpoint.address, *target);
                endpoints
                    .entry(address)
                    .and_modify(|known| merge(known, endpoint))
                    .or_insert_with(|| endpoint.clone());
            }
        }
    }
    let serving = endpoints
        .values()
        .filter(|e| e.serving || e.ready)
        .map(|e| e.address);
    let nearness = nearness::of(endpoints.values(), zone);
    PortView {
        port: port.clone(),
        cluster: usable(&endpoints, |endpoint| nearness.covers(endpoint, zone)),
        local: usable(&endpoints, |endpoint| endpoint.local),
        serving: serving.collect::<BTreeSet<_>>().into_iter().collect(),
    }
}

fn merge(known: &mut SliceEndpoint, other: &SliceEndpoint) {
    known.local |= other.local;
    known.ready |= other.ready;
    known.serving |= other.serving;
    known.terminating &= other.terminating;
}

/// Terminating pods serve only when nobody else does, as upstream has it (KEP-1669). Where traffic
/// stays near, somebody near is ready.
fn usable(
    endpoints: &BTreeMap<SocketAddr, SliceEndpoint>,
    wanted: impl Fn(&SliceEndpoint) -> bool,
) -> Vec<Endpoint> {
    let choose = |fits: &dyn Fn(&SliceEndpoint) -> bool| -> Vec<Endpoint> {
        let chosen = endpoints
            .iter()
            .filter(|(_, endpoint)| wanted(endpoint) && fits(endpoint));
        chosen
            .map(|(address, endpoint)| Endpoint {
                address: *address,
                local: endpoint.local,
            })
            .collect()
    };
    let ready = choose(&|endpoint| endpoint.ready);
    if ready.is_empty() {
        choose(&|endpoint| endpoint.serving && endpoint.terminating)
    } else {
        ready
    }
}

#[cfg(test)]
mod tests;
