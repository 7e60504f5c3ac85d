//! Shows Endpoints that somebody else maintains, those of Services without a selector, as
//! EndpointSlices.
//!
//! Nobody reads Endpoints any more; whoever still writes them by hand is heard this way. Endpoints
//! of Services with a selector, leader-election records and whatever says `skip-mirror` are left
//! alone.
//!
//! Source: `pkg/controller/endpointslicemirroring` at v1.37.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use coracle_client::own_writes::OwnWrites;
use k8s_openapi::api::{
    core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service},
    discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams},
};

use crate::{
    Manager,
    builder::Builder,
    cache::{By, Cache, Index, Key},
    context::Context,
    controller::{CallContext, Outcome, Reconciler, or_event},
    errors::{is_namespace_terminating, is_not_found},
    owner::controller_reference,
};

/// Services worked on at once.
const WORKERS: usize = 5;
/// Most endpoints of one subset; more are left out.
const MAX_ENDPOINTS: usize = 1000;
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";

/// The controller; its state is in caches and its writes.
pub(crate) struct MirroringController {
    client: Client,
    services: Arc<Cache<Service>>,
    endpoints: Arc<Cache<Endpoints>>,
    slices: By<EndpointSlice>,
    /// Slices have generated names: one that does not show yet would be made again.
    writes: OwnWrites<EndpointSlice>,
}

impl MirroringController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let name = "endpointslice-mirroring-controller";
        let mut controller =
            Builder::managed_by(manager, name, "endpoint_slice_mirroring").workers(WORKERS);
        let this = Self {
            client: context.client.clone(),
            services: controller.for_kind(),
            // Of the same name as their Service.
            endpoints: controller.for_kind(),
            slices: controller.index(Index::new("mirrored", |slice: &EndpointSlice, put| {
                if let Some(service) = mirrored_by(slice) {
                    put(&service.to_string());
                }
            })),
            writes: controller.own_writes(),
        };
        controller.watches(mirrored_by);
        controller.complete(Arc::new(this));
    }
}

impl Reconciler for MirroringController {
    async fn reconcile(&self, key: Key) -> Outcome {
        if !self
            .writes
            .settled(&key)
            .await
            .during("list EndpointSlices")?
        {
            return Ok(None);
        }
        let existing = self.slices.get(&key.to_string());
        let has_selector = |service: &Service| {
            service.spec.as_ref().is_some_and(|spec| {
                spec.selector
                    .as_ref()
                    .is_some_and(|selector| !selector.is_empty())
            })
        };
        let service = self
            .services
            .get(&key)
            .filter(|service| !has_selector(service));
        let endpoints = self
            .endpoints
            .get(&key)
            .filter(|endpoints| service.is_some() && !is_skipped(endpoints));
        let mut wanted = endpoints.as_deref().map(slices_of).unwrap_or_default();
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        for present in existing {
            let name = present.metadata.name.as_deref().unwrap_or_default();
            // Reused by ports and family: who watches sees endpoints change, not slices come and
            // go.
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
                    let slice = EndpointSlice { metadata, ..slice };
                    let written = self
                        .writes
                        .write(&key, api.replace(name, &PostParams::default(), &slice))
                        .await;
                    or_event(written.during("update mirrored EndpointSlice"))?;
                }
                None => match self
                    .writes
                    .delete(&key, &*present, api.delete(name, &DeleteParams::default()))
                    .await
                {
                    Err(error) if !is_not_found(&error) => {
                        return Err(error).during("delete mirrored EndpointSlice");
                    }
                    _ => {}
                },
            }
        }
        for slice in wanted {
            match self
                .writes
                .write(&key, api.create(&PostParams::default(), &slice))
                .await
            {
                Err(error) if !is_namespace_terminating(&error) => {
                    return Err(error).during("mirror Endpoints");
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// The Service of a slice that this controller made.
fn mirrored_by(slice: &EndpointSlice) -> Option<Key> {
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
/// Pure.
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
