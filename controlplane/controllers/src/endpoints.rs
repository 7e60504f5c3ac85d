//! Publishes the pods behind each Service as the legacy Endpoints object of the same name.
//!
//! Mirrors what [`crate::endpointslice`] says in the older form, at most a thousand addresses a
//! Service. Services without a selector are left alone.
//!
//! Source: `pkg/controller/endpoint/endpoints_controller.go` at v1.37.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Service,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams},
};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{Cache, Change, Key, labels::Selected},
    context::Context,
    controller::{CallContext, Outcome, Reconciler, ignore},
    endpointslice::plan::pod_reference,
    errors::{is_already_exists, is_namespace_terminating},
    pod::Pod,
    pod_state,
    service_endpoints::{
        self, Family, HEADLESS, selects,
        trigger_times::{self, TriggerTimes, annotate},
        wake_services,
    },
    writes::Write,
};

/// Services worked on at once.
const WORKERS: usize = 4;
/// Most addresses of one object; more are cut off and the object is marked.
const MAX_ADDRESSES: usize = 1000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";

/// The controller; its state is in caches.
pub(crate) struct EndpointsController {
    client: Client,
    services: Arc<Cache<Service>>,
    pods: Selected<Pod>,
    endpoints: Arc<Cache<Endpoints>>,
    times: TriggerTimes,
}

impl EndpointsController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller =
            Builder::managed_by(manager, "endpoints-controller", "endpoint").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            services: controller.for_kind(),
            pods: controller.selected(),
            endpoints: controller.reads(),
            times: TriggerTimes::default(),
        });
        controller.on_change(&this, Self::endpoints_changed);
        wake_services(&mut controller);
        controller.complete(this);
    }

    /// Own writes need no second look, except that a vanished object has to come back.
    fn endpoints_changed(&self, change: &Change<'_, Endpoints>, queue: &Queue) {
        if !matches!(change, Change::Updated { .. }) {
            queue.add(Key::of(change.latest().as_ref()));
        }
    }
}

impl Reconciler for EndpointsController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let api: Api<Endpoints> = Api::namespaced(self.client.clone(), &key.namespace);
        let existing = self.endpoints.get(&key);
        let Some(service) = self.services.get(&key) else {
            self.times.forget(&key);
            // Only what this controller made; others' Endpoints may come before their Service.
            if let Some(left) = existing.filter(|endpoints| is_ours(endpoints)) {
                let delete = Write::to(&self.client, &*left, "delete Endpoints");
                delete.delete(DeleteParams::default()).await?;
            }
            return Ok(None);
        };
        if !service_endpoints::is_managed(&service) {
            return Ok(None);
        }
        let pods = self.pods.get(
            &key.namespace,
            service_endpoints::pair_of(&service).as_slice(),
            |pod| selects(&service, pod),
        );
        let mut wanted = plan(&service, &pods, existing.as_deref());
        let at = self.times.look(&key, &service, &pods);
        match existing {
            None => {
                annotate(&mut wanted.metadata, at);
                let created = api.create(&PostParams::default(), &wanted).await;
                let fine = |error: &_| is_already_exists(error) || is_namespace_terminating(error);
                ignore(created, fine).during("create Endpoints")?;
            }
            Some(old) if same(&old, &wanted) => {}
            Some(_) => {
                annotate(&mut wanted.metadata, at);
                api.replace(&key.name, &PostParams::default(), &wanted)
                    .await
                    .during("update Endpoints")?;
            }
        }
        Ok(None)
    }
}

fn is_ours(endpoints: &Endpoints) -> bool {
    endpoints
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(MANAGED_BY))
        .map(String::as_str)
        == Some(MANAGER)
}

fn same(old: &Endpoints, new: &Endpoints) -> bool {
    old.subsets.as_deref().unwrap_or_default() == new.subsets.as_deref().unwrap_or_default()
        && old.metadata.labels == new.metadata.labels
        && trigger_times::without(&old.metadata) == trigger_times::without(&new.metadata)
}

/// Name, number, protocol and application protocol of each port.
type Ports = Vec<(String, i32, String, Option<String>)>;
/// Ready and not-ready addresses with the same ports.
type Group = (
    BTreeMap<String, EndpointAddress>,
    BTreeMap<String, EndpointAddress>,
);

/// The Endpoints that `service` should have.
fn plan(service: &Service, pods: &[Arc<Pod>], existing: Option<&Endpoints>) -> Endpoints {
    let publish_all = service_endpoints::publishes_not_ready(service);
    // Endpoints are of one family, that of the Service's first address.
    let family = Family::of(service).first().copied().unwrap_or(Family::IPv4);
    let mut groups: BTreeMap<Ports, Group> = BTreeMap::new();
    let mut over_capacity = false;
    for (index, pod) in pods
        .iter()
        .filter(|pod| {
            !pod_state::is_finished(pod) && (publish_all || !pod_state::is_terminating(pod))
        })
        .enumerate()
    {
        if index >= MAX_ADDRESSES {
            over_capacity = true;
            break;
        }
        let Some(ip) = service_endpoints::address(pod, family) else {
            continue;
        };
        let address = EndpointAddress {
            ip: ip.to_owned(),
            hostname: service_endpoints::hostname(service, pod),
            node_name: Some(pod_state::node_name(pod).to_owned()).filter(|name| !name.is_empty()),
            target_ref: Some(pod_reference(pod)),
        };
        let ports = ports_of(service, pod);
        // There would be nothing to connect to. Who is headless is found by name, which needs no
        // port.
        if ports.is_empty() && !service_endpoints::is_headless(service) {
            continue;
        }
        let (ready, not_ready) = groups.entry(ports).or_default();
        let group = if publish_all || pod_state::is_ready(pod) {
            ready
        } else {
            not_ready
        };
        group.insert(ip.to_owned(), address);
    }
    let list = |addresses: BTreeMap<String, EndpointAddress>| {
        (!addresses.is_empty()).then(|| addresses.into_values().collect::<Vec<_>>())
    };
    let subsets: Vec<EndpointSubset> = groups
        .into_iter()
        .map(|(ports, (ready, not_ready))| EndpointSubset {
            addresses: list(ready),
            not_ready_addresses: list(not_ready),
            ports: (!ports.is_empty()).then(|| {
                let port = |(name, port, protocol, app_protocol): (
                    String,
                    i32,
                    String,
                    Option<String>,
                )| EndpointPort {
                    name: Some(name).filter(|name| !name.is_empty()),
                    port,
                    protocol: Some(protocol),
                    app_protocol,
                };
                ports.into_iter().map(port).collect()
            }),
        })
        .collect();
    assemble(service, subsets, over_capacity, existing)
}

fn ports_of(service: &Service, pod: &Pod) -> Ports {
    let ports = service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_ref())
        .into_iter()
        .flatten();
    let mut found: Vec<_> = ports
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
    found.sort();
    found
}

fn assemble(
    service: &Service,
    subsets: Vec<EndpointSubset>,
    over_capacity: bool,
    existing: Option<&Endpoints>,
) -> Endpoints {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if service_endpoints::is_headless(service) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    let mut metadata = existing.map_or_else(
        || ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        |existing| existing.metadata.clone(),
    );
    metadata.labels = Some(labels);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.remove(OVER_CAPACITY);
    if over_capacity {
        annotations.insert(OVER_CAPACITY.into(), "truncated".into());
    }
    metadata.annotations = metadata
        .annotations
        .filter(|annotations| !annotations.is_empty());
    Endpoints {
        metadata,
        subsets: (!subsets.is_empty()).then_some(subsets),
    }
}

#[cfg(test)]
mod tests;
