//! The EndpointSlices that say what Endpoints of others say, and what is to be done to those that
//! are there. Pure.
//!
//! Source: `pkg/controller/endpointslicemirroring/{reconciler,utils}.go` at v1.37.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use k8s_openapi::api::{
    core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service},
    discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
};
use kube::api::ObjectMeta;

use crate::{cache::Key, owner::controller_reference, service_endpoints::SERVICE_NAME};

/// Most endpoints of one subset; more are left out.
const MAX_ENDPOINTS: usize = 1000;
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";

/// What brings the slices that are there to what they should be.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
}

/// Decides for one Service of which `existing` are the slices.
///
/// A slice is reused by ports and family: who watches sees endpoints change, not slices come and
/// go.
pub(super) fn plan(
    service: Option<&Service>,
    endpoints: Option<&Endpoints>,
    existing: Vec<Arc<EndpointSlice>>,
) -> Plan {
    let is_mirrored = service.is_some_and(|service| !has_selector(service));
    let mut wanted = endpoints
        .filter(|endpoints| is_mirrored && !is_skipped(endpoints))
        .map(slices_of)
        .unwrap_or_default();
    let mut plan = Plan::default();
    for present in existing {
        let same = wanted.iter().position(|slice| {
            slice.address_type == present.address_type
                && slice.ports.as_deref().unwrap_or_default()
                    == present.ports.as_deref().unwrap_or_default()
        });
        match same.map(|at| wanted.swap_remove(at)) {
            Some(slice) if is_same(&present, &slice) => {}
            Some(slice) => {
                let metadata = ObjectMeta {
                    labels: slice.metadata.labels,
                    annotations: slice.metadata.annotations,
                    ..present.metadata.clone()
                };
                plan.update.push(EndpointSlice { metadata, ..slice });
            }
            None => plan.delete.push(present),
        }
    }
    plan.create = wanted;
    plan
}

fn has_selector(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let selector = spec.and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| !selector.is_empty())
}

/// The Service of a slice that this controller made.
pub(super) fn mirrored_by(slice: &EndpointSlice) -> Option<Key> {
    let labels = slice.metadata.labels.as_ref()?;
    let is_own = labels.get(MANAGED_BY).map(String::as_str) == Some(MANAGER);
    let service = labels.get(SERVICE_NAME).filter(|_| is_own)?;
    Some(Key::new(
        slice.metadata.namespace.clone().unwrap_or_default(),
        service.clone(),
    ))
}

fn is_skipped(endpoints: &Endpoints) -> bool {
    let meta = &endpoints.metadata;
    meta.labels
        .as_ref()
        .and_then(|labels| labels.get(SKIP))
        .map(String::as_str)
        == Some("true")
        || meta
            .annotations
            .as_ref()
            .is_some_and(|annotations| annotations.contains_key(LEADER))
}

fn is_same(present: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    let texts = |map: &Option<BTreeMap<String, String>>| map.clone().unwrap_or_default();
    present.endpoints.as_deref().unwrap_or_default()
        == wanted.endpoints.as_deref().unwrap_or_default()
        && texts(&present.metadata.labels) == texts(&wanted.metadata.labels)
        && texts(&present.metadata.annotations) == texts(&wanted.metadata.annotations)
}

/// The slices that say what `endpoints` says: one for each set of ports and family of addresses.
fn slices_of(endpoints: &Endpoints) -> Vec<EndpointSlice> {
    let mut slices: Vec<EndpointSlice> = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports = ports_of(subset);
        let ready = subset
            .addresses
            .iter()
            .flatten()
            .map(|address| (address, true));
        let waiting = subset
            .not_ready_addresses
            .iter()
            .flatten()
            .map(|address| (address, false));
        for (address, is_ready) in ready.chain(waiting).take(MAX_ENDPOINTS) {
            let family = match address.ip.parse() {
                Ok(IpAddr::V4(_)) => "IPv4",
                Ok(IpAddr::V6(_)) => "IPv6",
                Err(_) => continue,
            };
            let known = slices.iter().position(|slice| {
                slice.address_type == family && slice.ports.as_ref() == Some(&ports)
            });
            let at = known.unwrap_or_else(|| {
                slices.push(empty_slice(endpoints, family, ports.clone()));
                slices.len() - 1
            });
            slices[at]
                .endpoints
                .get_or_insert_default()
                .push(endpoint(address, is_ready));
        }
    }
    slices
}

fn ports_of(subset: &EndpointSubset) -> Vec<EndpointPort> {
    let port = |port: &k8s_openapi::api::core::v1::EndpointPort| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    };
    subset.ports.iter().flatten().map(port).collect()
}

fn endpoint(address: &EndpointAddress, is_ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions {
            ready: Some(is_ready),
            ..EndpointConditions::default()
        }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn empty_slice(endpoints: &Endpoints, family: &str, ports: Vec<EndpointPort>) -> EndpointSlice {
    let name = endpoints.metadata.name.clone().unwrap_or_default();
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !matches!(key.as_str(), LAST_APPLIED | TRIGGER_TIME));
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: endpoints.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: Some(vec![controller_reference(endpoints)]),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        endpoints: Some(Vec::new()),
        ports: Some(ports),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn endpoints(value: serde_json::Value) -> Endpoints {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn subsets_become_slices_by_ports_and_family() {
        let object = endpoints(
            json!({"metadata": {"name": "db", "namespace": "ns", "uid": "u", "labels": {"a": "b"},
            "annotations": {LAST_APPLIED: "x", "own": "y"}}, "subsets": [
            {"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}],
             "ports": [{"name": "sql", "port": 5432}]},
            {"addresses": [{"ip": "10.0.0.3"}], "ports": [{"port": 80, "protocol": "UDP"}]}]}),
        );
        let slices = slices_of(&object);
        let text: Vec<String> = slices
            .iter()
            .map(|slice| {
                let addresses: Vec<String> = slice
                    .endpoints
                    .iter()
                    .flatten()
                    .map(|one| {
                        format!(
                            "{}:{}",
                            one.addresses[0],
                            one.conditions.as_ref().unwrap().ready.unwrap()
                        )
                    })
                    .collect();
                let port = &slice.ports.as_ref().unwrap()[0];
                format!(
                    "{} {} {}",
                    slice.address_type,
                    port.port.unwrap(),
                    addresses.join(",")
                )
            })
            .collect();
        assert_eq!(
            text,
            [
                "IPv4 5432 10.0.0.1:true,10.0.0.2:false",
                "IPv6 5432 fd00::1:true",
                "IPv4 80 10.0.0.3:true"
            ]
        );
        let meta = &slices[0].metadata;
        assert_eq!(
            meta.annotations,
            Some([("own".to_owned(), "y".to_owned())].into())
        );
        assert_eq!(mirrored_by(&slices[0]), Some(Key::new("ns", "db")));
        assert_eq!(meta.owner_references.as_ref().unwrap()[0].kind, "Endpoints");
    }

    #[test]
    fn slices_are_reused_by_ports_and_family() {
        let with = |ip: &str, port: u16| {
            endpoints(
                json!({"metadata": {"name": "db", "namespace": "ns"}, "subsets": [
                {"addresses": [{"ip": ip}], "ports": [{"port": port}]}]}),
            )
        };
        let service = |selector: serde_json::Value| -> Service {
            serde_json::from_value(json!({"spec": {"selector": selector}})).unwrap()
        };
        let free = service(json!({}));
        let mut present = slices_of(&with("10.0.0.1", 80)).remove(0);
        present.metadata.name = Some("db-x".to_owned());
        let present = Arc::new(present);
        let existing = || vec![present.clone()];
        let counts = |plan: Plan| (plan.create.len(), plan.update.len(), plan.delete.len());
        let planned = |service: Option<&Service>, endpoints: &Endpoints| {
            counts(plan(service, Some(endpoints), existing()))
        };

        assert_eq!(planned(Some(&free), &with("10.0.0.1", 80)), (0, 0, 0));
        let moved = plan(Some(&free), Some(&with("10.0.0.2", 80)), existing());
        assert_eq!(moved.update[0].metadata.name.as_deref(), Some("db-x"));
        let addresses = &moved.update[0].endpoints.as_ref().unwrap()[0].addresses;
        assert_eq!(addresses, &["10.0.0.2"]);
        assert_eq!(counts(moved), (0, 1, 0));
        assert_eq!(planned(Some(&free), &with("10.0.0.1", 81)), (1, 0, 1));
        assert_eq!(planned(Some(&free), &with("fd00::1", 80)), (1, 0, 1));
        let selecting = service(json!({"app": "db"}));
        assert_eq!(planned(Some(&selecting), &with("10.0.0.1", 80)), (0, 0, 1));
        assert_eq!(planned(None, &with("10.0.0.1", 80)), (0, 0, 1));
        assert_eq!(counts(plan(Some(&free), None, existing())), (0, 0, 1));
    }

    #[test]
    fn some_endpoints_are_not_mirrored() {
        assert!(is_skipped(&endpoints(
            json!({"metadata": {"labels": {SKIP: "true"}}})
        )));
        assert!(is_skipped(&endpoints(
            json!({"metadata": {"annotations": {LEADER: "{}"}}})
        )));
        assert!(!is_skipped(&endpoints(json!({"metadata": {}}))));
    }
}
