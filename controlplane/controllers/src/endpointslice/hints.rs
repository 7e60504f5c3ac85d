//! For whom an endpoint is meant: those of its zone or node, if its Service wants traffic to stay
//! near. Pure.
//!
//! Source: `k8s.io/endpointslice/trafficdist/trafficdist.go` and `reconciler.go` (hintsEnabled) at
//! v1.37.

use k8s_openapi::api::{
    core::v1::Service,
    discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForNode, ForZone},
};

/// Annotations of Services that ask for zones in proportion to their CPUs; the first is the older
/// one, which wins.
pub(crate) const TOPOLOGY: [&str; 2] = [
    "service.kubernetes.io/topology-aware-hints",
    "service.kubernetes.io/topology-mode",
];

/// What a Service says of where its traffic goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distribution {
    /// Anywhere.
    Cluster,
    /// To the zone that it comes from, where it can.
    Zone,
    /// To the node that it comes from, or else its zone, where it can.
    Node,
    /// To zones by their share of the CPUs: [`super::topology`] decides.
    Auto,
}

impl Distribution {
    pub(super) fn of(service: &Service) -> Self {
        if is_auto(service) {
            return Self::Auto;
        }
        let spec = service.spec.as_ref();
        match spec.and_then(|spec| spec.traffic_distribution.as_deref()) {
            Some("PreferClose" | "PreferSameZone") => Self::Zone,
            Some("PreferSameNode") => Self::Node,
            _ => Self::Cluster,
        }
    }

    /// The hints of an endpoint that has none yet.
    pub(super) fn hints(self, endpoint: &Endpoint) -> Option<EndpointHints> {
        if !matches!(self, Self::Zone | Self::Node) || !is_ready(endpoint) {
            return None;
        }
        let zone = endpoint.zone.as_deref().map(for_zone);
        let node = endpoint.node_name.clone().filter(|_| self == Self::Node);
        let hints = EndpointHints {
            for_zones: zone.map(|zone| vec![zone]),
            for_nodes: node.map(|name| vec![ForNode { name }]),
        };
        (hints != EndpointHints::default()).then_some(hints)
    }
}

pub(super) fn is_auto(service: &Service) -> bool {
    let annotations = service.metadata.annotations.as_ref();
    let mode = annotations.and_then(|all| TOPOLOGY.iter().find_map(|name| all.get(*name)));
    mode.is_some_and(|mode| mode == "Auto" || mode == "auto")
}

pub(super) fn for_zone(name: &str) -> ForZone {
    ForZone {
        name: name.to_owned(),
    }
}

pub(super) fn is_ready(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.and_then(|conditions| conditions.ready) == Some(true)
}

/// Whether any endpoint is meant for somebody.
pub(super) fn has_any(slice: &EndpointSlice) -> bool {
    let mut endpoints = slice.endpoints.iter().flatten();
    endpoints.any(|endpoint| endpoint.hints.is_some())
}

/// Takes all hints away.
pub(super) fn remove(slice: &mut EndpointSlice) {
    let endpoints = slice.endpoints.iter_mut().flatten();
    endpoints.for_each(|endpoint| endpoint.hints = None);
}
