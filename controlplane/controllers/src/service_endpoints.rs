//! What EndpointSlices and Endpoints have in common: which pods a Service has, on which ports, and
//! when to look.
//!
//! Pure but for [`wake_services`], which only adds keys to queues.
//!
//! Source: `k8s.io/endpointslice/util` and `pkg/api/v1/pod/util.go` (FindPort) at v1.37.

pub(crate) mod trigger_times;

use std::{collections::BTreeSet, sync::Arc};

use coracle_api::scheduling::is_sidecar_policy;
use k8s_openapi::{
    api::{
        core::v1::{Service, ServicePort},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{
    builder::{Builder, Queue},
    cache::{
        By, Change, Index, Key,
        labels::{Pair, pair_key, selecting},
    },
    pod::{Container, Pod},
    pod_state,
};

/// The label of a headless Service's endpoints.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";

/// The label that names the Service of a slice.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The Service that a slice is of, whoever made it.
pub(crate) fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    let namespace = slice.metadata.namespace.clone().unwrap_or_default();
    Some(Key::new(namespace, name.clone()))
}

/// An address family, as `spec.ipFamilies` and `addressType` name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    IPv4,
    IPv6,
}

impl Family {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::IPv4 => "IPv4",
            Self::IPv6 => "IPv6",
        }
    }

    /// The families of a Service; IPv4 unless it says something else.
    pub(crate) fn of(service: &Service) -> Vec<Self> {
        let names = service
            .spec
            .as_ref()
            .and_then(|spec| spec.ip_families.as_ref());
        let families: Vec<Self> = names
            .into_iter()
            .flatten()
            .filter_map(|name| match name.as_str() {
                "IPv4" => Some(Self::IPv4),
                "IPv6" => Some(Self::IPv6),
                _ => None,
            })
            .collect();
        if families.is_empty() {
            vec![Self::IPv4]
        } else {
            families
        }
    }

    fn has(self, address: &str) -> bool {
        address.contains(':') == (self == Self::IPv6)
    }
}

/// Whether the controllers make endpoints for `service`: it has a selector and addresses of its
/// own.
pub(crate) fn is_managed(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| {
        spec.selector
            .as_ref()
            .is_some_and(|selector| !selector.is_empty())
            && spec.type_.as_deref() != Some("ExternalName")
    })
}

/// Whether `service` has no virtual address.
pub(crate) fn is_headless(service: &Service) -> bool {
    service
        .spec
        .as_ref()
        .and_then(|spec| spec.cluster_ip.as_deref())
        == Some("None")
}

/// Whether not-ready pods are published as ready.
pub(crate) fn publishes_not_ready(service: &Service) -> bool {
    service
        .spec
        .as_ref()
        .and_then(|spec| spec.publish_not_ready_addresses)
        .unwrap_or(false)
}

/// A pair of labels that every pod of `service` has.
pub(crate) fn pair_of(service: &Service) -> Option<Pair<'_>> {
    let selector = service.spec.as_ref()?.selector.as_ref()?;
    selector
        .iter()
        .next()
        .map(|(key, value)| (key.as_str(), value.as_str()))
}

/// Whether `service` selects `pod`; both are in one namespace.
pub(crate) fn selects(service: &Service, pod: &Pod) -> bool {
    let Some(selector) = service
        .spec
        .as_ref()
        .and_then(|spec| spec.selector.as_ref())
    else {
        return false;
    };
    let Some(labels) = &pod.metadata.labels else {
        return false;
    };
    !selector.is_empty()
        && selector
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
}

/// The pod's address of one family.
pub(crate) fn address(pod: &Pod, family: Family) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let all = status
        .pod_ips
        .iter()
        .flatten()
        .map(|ip| ip.ip.as_str())
        .chain(status.pod_ip.as_deref());
    all.filter(|ip| !ip.is_empty()).find(|ip| family.has(ip))
}

/// The number of `port` in `pod`; `None` if the pod has no port of that name.
pub(crate) fn port_number(pod: &Pod, port: &ServicePort) -> Option<i32> {
    match &port.target_port {
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            named_port(pod, name, port.protocol.as_deref().unwrap_or("TCP"))
        }
    }
}

fn named_port(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let spec = pod.spec.as_ref()?;
    let is_sidecar = |init: &&Container| is_sidecar_policy(init.restart_policy.as_deref());
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let mut ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    let found = ports.find(|port| {
        port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol
    })?;
    Some(found.container_port)
}

/// The pod's own DNS name under `service`, if it asks for one.
pub(crate) fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.clone().filter(|name| !name.is_empty())?;
    (spec.subdomain == service.metadata.name).then_some(hostname)
}

/// Wakes a controller of Services for those whose endpoints may have changed, and finds them.
pub(crate) fn wake_services(controller: &mut Builder<'_>) -> By<Service> {
    let selecting = controller.index(Index::new("selects", |service: &Service, put| {
        // Without a selector it has no pods.
        if let Some(pair) = pair_of(service) {
            put(&pair_key(
                service.metadata.namespace.as_deref().unwrap_or_default(),
                Some(pair),
            ));
        }
    }));
    controller.on_change(&Arc::new(selecting.clone()), pod_changed);
    selecting
}

/// The Services that select `pod`.
pub(crate) fn services_of(by_pair: &By<Service>, pod: &Pod) -> Vec<Key> {
    let Some(labels) = &pod.metadata.labels else {
        return Vec::new();
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut services = selecting(by_pair, namespace, labels);
    services.retain(|service| selects(service, pod));
    services
        .iter()
        .map(|service| Key::of(service.as_ref()))
        .collect()
}

fn pod_changed(by_pair: &By<Service>, change: &Change<'_, Pod>, queue: &Queue) {
    let mut keys = BTreeSet::new();
    let mut collect = |pod: &Pod| keys.extend(services_of(by_pair, pod));
    match change {
        Change::Added(pod) | Change::Deleted(pod) => collect(pod),
        Change::Updated { old, new } => {
            let relabelled = old.metadata.labels != new.metadata.labels;
            if relabelled || matters(old, new) {
                collect(new);
            }
            if relabelled {
                collect(old);
            }
        }
    }
    keys.into_iter().for_each(|key| queue.add(key));
}

/// Whether a change of a pod shows in an endpoint.
fn matters(old: &Pod, new: &Pod) -> bool {
    let names = |pod: &Pod| {
        pod.spec
            .as_ref()
            .map(|spec| (spec.hostname.clone(), spec.subdomain.clone()))
    };
    let addresses = |pod: &Pod| {
        pod.status
            .as_ref()
            .map(|status| (status.pod_ip.clone(), status.pod_ips.clone()))
    };
    pod_state::is_ready(old) != pod_state::is_ready(new)
        || pod_state::is_terminating(old) != pod_state::is_terminating(new)
        || pod_state::is_finished(old) != pod_state::is_finished(new)
        || pod_state::node_name(old) != pod_state::node_name(new)
        || old.metadata.uid != new.metadata.uid
        || addresses(old) != addresses(new)
        || names(old) != names(new)
}
