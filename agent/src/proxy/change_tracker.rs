//! What Services and EndpointSlices say, and which Services changed since last asked. No I/O.
//!
//! Keeps the few fields that rules are made of, not the objects. Watches are restarted with a complete list: objects
//! that are not in it are dropped when it ends. IPv4 only.

mod parse;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::SocketAddr,
};

use coracle_netfilter::service::{Endpoint, Port, PortView, ServiceKey, ServiceView};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::runtime::watcher::Event;

use self::parse::{Slice, SliceEndpoint, Spec, key, parse_service, parse_slice};

/// The label selector of what concerns this proxy.
#[must_use]
pub fn label_selector() -> String {
    format!("!{},!{}", parse::HEADLESS, parse::PROXY_NAME)
}

/// Everything known.
#[derive(Debug, Default)]
pub struct ChangeTracker {
    node_name: String,
    services: HashMap<ServiceKey, Spec>,
    /// Slices by Service, then by their own name.
    slices: HashMap<ServiceKey, BTreeMap<String, Slice>>,
    /// Which Service a slice belongs to, by the slice's namespace and name.
    slice_owner: HashMap<ServiceKey, ServiceKey>,
    changed: BTreeSet<ServiceKey>,
    relisted_services: Option<HashSet<ServiceKey>>,
    relisted_slices: Option<HashSet<ServiceKey>>,
    services_known: bool,
    slices_known: bool,
}

impl ChangeTracker {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(node_name: &str) -> Self {
        Self { node_name: node_name.to_owned(), ..Self::default() }
    }

    /// Whether both lists were seen completely: before, rules made from this would tear down what works.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.services_known && self.slices_known
    }

    /// Takes an event of the Services' watch in.
    pub fn service(&mut self, event: Event<Service>) {
        match event {
            Event::Apply(service) => {
                self.apply_service(&service);
            }
            Event::Delete(service) => {
                if let Some(key) = key(&service.metadata) {
                    self.drop_service(&key);
                }
            }
            Event::Init => self.relisted_services = Some(HashSet::new()),
            Event::InitApply(service) => {
                if let Some(key) = self.apply_service(&service)
                    && let Some(seen) = &mut self.relisted_services
                {
                    seen.insert(key);
                }
            }
            Event::InitDone => {
                let seen = self.relisted_services.take().unwrap_or_default();
                let gone: Vec<_> = self.services.keys().filter(|key| !seen.contains(*key)).cloned().collect();
                gone.iter().for_each(|key| self.drop_service(key));
                self.services_known = true;
            }
        }
    }

    /// Takes an event of the EndpointSlices' watch in.
    pub fn slice(&mut self, event: Event<EndpointSlice>) {
        match event {
            Event::Apply(slice) => {
                self.apply_slice(&slice);
            }
            Event::Delete(slice) => {
                if let Some(key) = key(&slice.metadata) {
                    self.drop_slice(&key);
                }
            }
            Event::Init => self.relisted_slices = Some(HashSet::new()),
            Event::InitApply(slice) => {
                if let Some(key) = self.apply_slice(&slice)
                    && let Some(seen) = &mut self.relisted_slices
                {
                    seen.insert(key);
                }
            }
            Event::InitDone => {
                let seen = self.relisted_slices.take().unwrap_or_default();
                let gone: Vec<_> = self.slice_owner.keys().filter(|key| !seen.contains(*key)).cloned().collect();
                gone.iter().for_each(|key| self.drop_slice(key));
                self.slices_known = true;
            }
        }
    }

    /// The Services that changed since the last call, with what they are now (`None`: gone).
    pub fn take_changes(&mut self) -> Vec<(ServiceKey, Option<ServiceView>)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|key| {
                let view = self.view(&key);
                (key, view)
            })
            .collect()
    }

    /// Whether [`Self::take_changes`] would return anything.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    fn view(&self, key: &ServiceKey) -> Option<ServiceView> {
        let spec = self.services.get(key)?;
        Some(ServiceView {
            uid: spec.uid.clone(),
            cluster_ips: spec.cluster_ips.clone(),
            external_ips: spec.external_ips.clone(),
            balancer_ips: spec.balancer_ips.clone(),
            source_ranges: spec.source_ranges.clone(),
            affinity_secs: spec.affinity_secs,
            internal_local: spec.internal_local,
            external_local: spec.external_local,
            ports: spec.ports.iter().map(|port| self.port_view(key, port)).collect(),
        })
    }

    fn port_view(&self, key: &ServiceKey, port: &Port) -> PortView {
        // By address: the same endpoint in two slices is one, and local if either says so.
        let mut endpoints: BTreeMap<SocketAddr, SliceEndpoint> = BTreeMap::new();
        for slice in self.slices.get(key).into_iter().flat_map(BTreeMap::values) {
            for (_, _, target) in slice.ports.iter().filter(|(n, p, _)| *n == port.name && *p == port.protocol) {
                for endpoint in &slice.endpoints {
                    let address = SocketAddr::new(endpoint.address, *target);
                    endpoints.entry(address).and_modify(|known| merge(known, endpoint)).or_insert(*endpoint);
                }
            }
        }
        let serving = endpoints.values().filter(|e| e.serving || e.ready).map(|e| e.address);
        PortView {
            port: port.clone(),
            cluster: usable(&endpoints, |_| true),
            local: usable(&endpoints, |endpoint| endpoint.local),
            serving: serving.collect::<BTreeSet<_>>().into_iter().collect(),
        }
    }

    fn apply_service(&mut self, service: &Service) -> Option<ServiceKey> {
        let key = key(&service.metadata)?;
        match parse_service(service) {
            Some(spec) => {
                if self.services.get(&key) != Some(&spec) {
                    self.changed.insert(key.clone());
                    self.services.insert(key.clone(), spec);
                }
                Some(key)
            }
            None => {
                self.drop_service(&key);
                None
            }
        }
    }

    fn drop_service(&mut self, key: &ServiceKey) {
        if self.services.remove(key).is_some() {
            self.changed.insert(key.clone());
        }
    }

    fn apply_slice(&mut self, object: &EndpointSlice) -> Option<ServiceKey> {
        let key = key(&object.metadata)?;
        let Some((service, slice)) = parse_slice(object, &self.node_name) else {
            self.drop_slice(&key);
            return None;
        };
        if self.slice_owner.get(&key).is_some_and(|before| *before != service) {
            self.drop_slice(&key);
        }
        let slices = self.slices.entry(service.clone()).or_default();
        if slices.get(&key.name) != Some(&slice) {
            slices.insert(key.name.clone(), slice);
            self.changed.insert(service.clone());
        }
        self.slice_owner.insert(key.clone(), service);
        Some(key)
    }

    fn drop_slice(&mut self, key: &ServiceKey) {
        let Some(service) = self.slice_owner.remove(key) else { return };
        if let Some(slices) = self.slices.get_mut(&service) {
            slices.remove(&key.name);
            if slices.is_empty() {
                self.slices.remove(&service);
            }
        }
        self.changed.insert(service);
    }
}

fn merge(known: &mut SliceEndpoint, other: &SliceEndpoint) {
    known.local |= other.local;
    known.ready |= other.ready;
    known.serving |= other.serving;
    known.terminating &= other.terminating;
}

/// Terminating pods serve only when nobody else does, as upstream has it (KEP-1669).
fn usable(endpoints: &BTreeMap<SocketAddr, SliceEndpoint>, wanted: impl Fn(&SliceEndpoint) -> bool) -> Vec<Endpoint> {
    let choose = |fits: &dyn Fn(&SliceEndpoint) -> bool| -> Vec<Endpoint> {
        let chosen = endpoints.iter().filter(|(_, endpoint)| wanted(endpoint) && fits(endpoint));
        chosen.map(|(address, endpoint)| Endpoint { address: *address, local: endpoint.local }).collect()
    };
    let ready = choose(&|endpoint| endpoint.ready);
    if ready.is_empty() { choose(&|endpoint| endpoint.serving && endpoint.terminating) } else { ready }
}

#[cfg(test)]
mod tests;
