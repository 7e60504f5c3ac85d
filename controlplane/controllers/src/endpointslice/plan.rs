//! Which EndpointSlices a Service needs, given those it has. Pure.
//!
//! Endpoints stay in their slice, changed slices are filled first, and no slice is touched without
//! need: every write goes to every node.
//!
//! Source: `k8s.io/endpointslice/reconciler.go` and `utils.go` at v1.37.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Node, ObjectReference, Service},
    discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
};
use kube::api::ObjectMeta;

use super::{
    hints::Distribution,
    topology::{self, Ratios, Slices},
};
use crate::{
    owner::controller_reference,
    pod::Pod,
    pod_state,
    service_endpoints::{self, Family, HEADLESS, SERVICE_NAME},
};

/// Most endpoints of one slice.
pub(super) const MAX_ENDPOINTS: usize = 100;
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";

/// What to write.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<EndpointSlice>,
    /// Of each family of a Service whose traffic goes by zones: its name, and why it does not.
    pub(super) by_zones: Vec<(&'static str, Result<(), String>)>,
}

/// What the plan is made from.
pub(super) struct Input<'a> {
    pub(super) service: &'a Service,
    /// Pods that the Service selects.
    pub(super) pods: &'a [Arc<Pod>],
    /// Slices that this controller made for the Service.
    pub(super) slices: &'a [Arc<EndpointSlice>],
    pub(super) node: &'a dyn Fn(&str) -> Option<Arc<Node>>,
    /// Asked for only where traffic goes by zones.
    pub(super) ratios: &'a dyn Fn() -> Option<Ratios>,
}

/// Ports in a form that can be compared and sorted: name, number, protocol, application protocol.
type PortKey = Vec<(String, i32, String, Option<String>)>;

/// Decides which slices to create, update and delete.
pub(super) fn plan(input: &Input<'_>) -> Plan {
    let mut plan = Plan::default();
    let families = Family::of(input.service);
    for family in &families {
        let slices: Vec<&EndpointSlice> = input
            .slices
            .iter()
            .map(Arc::as_ref)
            .filter(|slice| {
                slice.address_type == family.as_str() && slice.metadata.deletion_timestamp.is_none()
            })
            .collect();
        let mut of_family = Plan::default();
        plan_family(input, *family, &slices, &mut of_family);
        if Distribution::of(input.service) == Distribution::Auto {
            let assigned = assign_zones(input, &slices, &mut of_family);
            plan.by_zones.push((family.as_str(), assigned));
        }
        plan.create.append(&mut of_family.create);
        plan.update.append(&mut of_family.update);
        plan.delete.append(&mut of_family.delete);
    }
    let foreign = input.slices.iter().filter(|slice| {
        !families
            .iter()
            .any(|family| slice.address_type == family.as_str())
    });
    plan.delete
        .extend(foreign.map(|slice| slice.as_ref().clone()));
    reuse(input.service, plan)
}

fn assign_zones(
    input: &Input<'_>,
    slices: &[&EndpointSlice],
    plan: &mut Plan,
) -> Result<(), String> {
    let changes = plan.update.iter().chain(&plan.delete);
    let changed: Vec<_> = changes.map(|slice| slice.metadata.name.clone()).collect();
    let unchanged = slices
        .iter()
        .copied()
        .filter(|slice| !changed.contains(&slice.metadata.name));
    let mut slices = Slices {
        create: &mut plan.create,
        update: &mut plan.update,
        unchanged: unchanged.collect(),
    };
    topology::assign(&mut slices, (input.ratios)().as_ref())
}

/// Writes a slice that would be made into one that would go: whoever watches sees one change, and
/// never two slices of which one is out of date. Only a slice of this very Service: a namesake's
/// goes with its owner.
fn reuse(service: &Service, mut plan: Plan) -> Plan {
    for old in std::mem::take(&mut plan.delete) {
        let is_ours = is_controlled_by(&old, service);
        let new = plan
            .create
            .iter()
            .rposition(|new| is_ours && new.address_type == old.address_type);
        match new.map(|at| plan.create.remove(at)) {
            Some(new) => plan.update.push(EndpointSlice {
                metadata: ObjectMeta {
                    labels: new.metadata.labels,
                    ..old.metadata
                },
                ..new
            }),
            None => plan.delete.push(old),
        }
    }
    plan
}

fn is_controlled_by(slice: &EndpointSlice, service: &Service) -> bool {
    let mut owners = slice.metadata.owner_references.iter().flatten();
    owners.any(|owner| {
        owner.controller == Some(true) && Some(&owner.uid) == service.metadata.uid.as_ref()
    })
}

fn plan_family(input: &Input<'_>, family: Family, slices: &[&EndpointSlice], plan: &mut Plan) {
    let mut wanted: BTreeMap<PortKey, BTreeMap<String, Endpoint>> = BTreeMap::new();
    for pod in input.pods.iter().filter(|pod| !pod_state::is_finished(pod)) {
        let Some(address) = service_endpoints::address(pod, family) else {
            continue;
        };
        let endpoint = endpoint(input, pod, address);
        wanted
            .entry(ports_of(input.service, pod))
            .or_default()
            .insert(identity(&endpoint), endpoint);
    }
    let mut by_ports: BTreeMap<PortKey, Vec<&EndpointSlice>> = BTreeMap::new();
    for slice in slices {
        by_ports
            .entry(port_key(slice.ports.as_deref().unwrap_or_default()))
            .or_default()
            .push(slice);
    }
    let nothing_wanted = wanted.is_empty();
    for (ports, endpoints) in wanted {
        let existing = by_ports.remove(&ports).unwrap_or_default();
        plan_ports(input.service, family, &ports, endpoints, &existing, plan);
    }
    let mut unused: Vec<&EndpointSlice> = by_ports.into_values().flatten().collect();
    if nothing_wanted {
        // One empty slice says that the Service is known and has nobody behind it.
        match unused.iter().position(|slice| is_placeholder(slice)) {
            Some(at) => update_if_changed(input.service, unused.remove(at), Vec::new(), plan),
            None => plan
                .create
                .push(new_slice(input.service, family, &Vec::new(), Vec::new())),
        }
    }
    plan.delete.extend(unused.into_iter().cloned());
}

fn is_placeholder(slice: &EndpointSlice) -> bool {
    slice.endpoints.as_deref().unwrap_or_default().is_empty()
        && slice.ports.as_deref().unwrap_or_default().is_empty()
}

/// Distributes `wanted` over the slices that have these ports.
fn plan_ports(
    service: &Service,
    family: Family,
    ports: &PortKey,
    mut wanted: BTreeMap<String, Endpoint>,
    existing: &[&EndpointSlice],
    plan: &mut Plan,
) {
    let by_zones = Distribution::of(service) == Distribution::Auto;
    let mut kept: Vec<(&EndpointSlice, Vec<Endpoint>, bool)> = Vec::new();
    for slice in existing {
        let mut changed = false;
        let mut endpoints = Vec::new();
        for old in slice.endpoints.iter().flatten() {
            match wanted.remove(&identity(old)) {
                Some(mut new) => {
                    // Whom it is meant for is decided later, and is no change by itself.
                    if by_zones {
                        new.hints = old.hints.clone();
                    }
                    changed |= new != *old;
                    endpoints.push(new);
                }
                None => changed = true,
            }
        }
        kept.push((slice, endpoints, changed));
    }
    let mut homeless: Vec<Endpoint> = wanted.into_values().collect();
    // Slices that are written anyway take the new ones; then the fullest of the others that holds
    // all the rest.
    for (_, endpoints, _) in kept.iter_mut().filter(|(_, _, changed)| *changed) {
        let room = MAX_ENDPOINTS
            .saturating_sub(endpoints.len())
            .min(homeless.len());
        endpoints.extend(homeless.drain(..room));
    }
    if !homeless.is_empty() && homeless.len() < MAX_ENDPOINTS {
        let fitting = kept.iter_mut().filter(|(_, endpoints, changed)| {
            !*changed && endpoints.len() + homeless.len() <= MAX_ENDPOINTS
        });
        if let Some((_, endpoints, _)) = fitting.max_by_key(|(_, endpoints, _)| endpoints.len()) {
            endpoints.append(&mut homeless);
        }
    }
    let some_stay =
        !homeless.is_empty() || kept.iter().any(|(_, endpoints, _)| !endpoints.is_empty());
    for (slice, endpoints, _) in kept {
        if endpoints.is_empty() && some_stay {
            plan.delete.push(slice.clone());
        } else {
            update_if_changed(service, slice, endpoints, plan);
        }
    }
    while !homeless.is_empty() {
        let rest = homeless.split_off(homeless.len().min(MAX_ENDPOINTS));
        plan.create
            .push(new_slice(service, family, ports, homeless));
        homeless = rest;
    }
}

fn update_if_changed(
    service: &Service,
    slice: &EndpointSlice,
    endpoints: Vec<Endpoint>,
    plan: &mut Plan,
) {
    let mut wanted = slice.clone();
    wanted.metadata.labels = Some(labels_of(service));
    wanted.endpoints = Some(endpoints);
    let same = slice.endpoints.as_deref().unwrap_or_default()
        == wanted.endpoints.as_deref().unwrap_or_default()
        && slice.metadata.labels == wanted.metadata.labels;
    if !same {
        plan.update.push(wanted);
    }
}

fn new_slice(
    service: &Service,
    family: Family,
    ports: &PortKey,
    endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    let ports = ports
        .iter()
        .map(|(name, number, protocol, application)| EndpointPort {
            name: Some(name.clone()),
            port: Some(*number),
            protocol: Some(protocol.clone()),
            app_protocol: application.clone(),
        });
    EndpointSlice {
        metadata: ObjectMeta {
            namespace: service.metadata.namespace.clone(),
            generate_name: Some(format!(
                "{}-",
                service.metadata.name.as_deref().unwrap_or_default()
            )),
            labels: Some(labels_of(service)),
            owner_references: Some(vec![controller_reference(service)]),
            ..ObjectMeta::default()
        },
        address_type: family.as_str().into(),
        endpoints: Some(endpoints),
        ports: Some(ports.collect()),
    }
}

/// The Service's labels and those that mark the slice.
fn labels_of(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if service_endpoints::is_headless(service) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(
        SERVICE_NAME.into(),
        service.metadata.name.clone().unwrap_or_default(),
    );
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    labels
}

fn endpoint(input: &Input<'_>, pod: &Pod, address: &str) -> Endpoint {
    let serving = pod_state::is_ready(pod);
    let terminating = pod_state::is_terminating(pod);
    let ready = service_endpoints::publishes_not_ready(input.service) || (serving && !terminating);
    let node_name = Some(pod_state::node_name(pod)).filter(|name| !name.is_empty());
    let zone = node_name
        .and_then(input.node)
        .and_then(|node| topology::zone_of(&node));
    let mut endpoint = Endpoint {
        addresses: vec![address.to_owned()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: service_endpoints::hostname(input.service, pod),
        node_name: node_name.map(str::to_owned),
        target_ref: Some(pod_reference(pod)),
        zone,
        ..Endpoint::default()
    };
    endpoint.hints = Distribution::of(input.service).hints(&endpoint);
    endpoint
}

/// A reference to the pod behind an address.
pub(crate) fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// What makes an endpoint the same one after a change: its pod and address.
fn identity(endpoint: &Endpoint) -> String {
    let uid = endpoint
        .target_ref
        .as_ref()
        .and_then(|target| target.uid.as_deref())
        .unwrap_or_default();
    format!(
        "{uid} {}",
        endpoint
            .addresses
            .first()
            .map(String::as_str)
            .unwrap_or_default()
    )
}

fn ports_of(service: &Service, pod: &Pod) -> PortKey {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    let mut key: PortKey = ports
        .into_iter()
        .flatten()
        .filter_map(|port| {
            let number = service_endpoints::port_number(pod, port)?;
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
            Some((
                port.name.clone().unwrap_or_default(),
                number,
                protocol,
                port.app_protocol.clone(),
            ))
        })
        .collect();
    key.sort();
    key
}

fn port_key(ports: &[EndpointPort]) -> PortKey {
    let mut key: PortKey = ports
        .iter()
        .map(|port| {
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
            (
                port.name.clone().unwrap_or_default(),
                port.port.unwrap_or(0),
                protocol,
                port.app_protocol.clone(),
            )
        })
        .collect();
    key.sort();
    key
}
