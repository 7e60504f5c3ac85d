//! Publishes the pods behind each Service as EndpointSlices.
//!
//! Services without a selector are left to whoever made them; slices of a deleted Service go by
//! their owner reference. What to write is decided by [`plan`].
//!
//! Source: `pkg/controller/endpointslice/` at v1.37.

use std::{collections::HashSet, sync::Arc};

use coracle_client::own_writes::OwnWrites;
use futures::future::join_all;
use k8s_openapi::{
    api::{
        core::v1::{Node, Service},
        discovery::v1::EndpointSlice,
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use parking_lot::Mutex;

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Index, Key, labels::Selected},
    context::Context,
    controller::{
        CallContext, Outcome, ReconcileError, Reconciler, ignore, ignore_missing, or_event,
    },
    errors::{is_namespace_terminating, message_of},
    event_recorder::component::ComponentRecorder,
    pod::Pod,
    pod_state,
    service_endpoints::{
        self, selects, services_of,
        trigger_times::{TriggerTimes, annotate},
        wake_services,
    },
};

pub(crate) mod hints;
pub(crate) mod plan;
#[cfg(test)]
mod tests;
mod topology;

use plan::{Input, MANAGED_BY, MANAGER, Plan};

/// Services worked on at once.
const WORKERS: usize = 8;
const COMPONENT: &str = "endpoint-slice-controller";

/// The controller; its state is in caches, its writes, and what it has told.
pub(crate) struct EndpointSliceController {
    client: Client,
    recorder: ComponentRecorder,
    services: Arc<Cache<Service>>,
    pods: Selected<Pod>,
    nodes: Arc<Cache<Node>>,
    slices: By<EndpointSlice>,
    writes: OwnWrites<EndpointSlice>,
    times: TriggerTimes,
    /// Services whose traffic goes by zones, as was told last.
    by_zones: Mutex<HashSet<Key>>,
}

/// Whom a change of a Node concerns.
struct Wakes {
    services: Arc<Cache<Service>>,
    by_pair: By<Service>,
    by_node: By<Pod>,
}

impl EndpointSliceController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let controller = Builder::managed_by(manager, "endpointslice-controller", "endpoint_slice");
        let mut controller = controller.workers(WORKERS);
        let this = Self {
            client: context.client.clone(),
            recorder: context.recorder.of(COMPONENT),
            services: controller.for_kind(),
            pods: controller.selected(),
            nodes: controller.reads(),
            slices: controller.index(Index::by_key("service", service_of)),
            writes: controller.own_writes(),
            times: TriggerTimes::default(),
            by_zones: Mutex::default(),
        };
        controller.watches(service_of);
        let wakes = Wakes {
            services: Arc::clone(&this.services),
            by_pair: wake_services(&mut controller),
            by_node: controller.index(pod_state::by_node()),
        };
        controller.on_change(&Arc::new(wakes), Wakes::node_changed);
        controller.complete(Arc::new(this));
    }
}

impl Wakes {
    /// Of a Node endpoints show the zone alone; what else it has counts where traffic goes by
    /// zones.
    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        let node = change.latest();
        let (is_moved, is_other) = match change {
            Change::Updated { old, new } => (
                topology::zone_of(old) != topology::zone_of(new),
                topology::part_of(old) != topology::part_of(new),
            ),
            // Its pods come after it, and go before it or with it.
            Change::Added(_) | Change::Deleted(_) => (false, topology::part_of(node).is_some()),
        };
        if is_moved {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let pods = self.by_node.get(name);
            let keys: HashSet<Key> = pods
                .iter()
                .flat_map(|pod| services_of(&self.by_pair, pod))
                .collect();
            keys.into_iter().for_each(|key| queue.add(key));
        }
        if is_other {
            let by_zones = self.services.filter(hints::is_auto);
            by_zones
                .iter()
                .for_each(|service| queue.add(Key::of(service.as_ref())));
        }
    }
}

impl Reconciler for EndpointSliceController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(service) = self.services.get(&key) else {
            self.times.forget(&key);
            self.by_zones.lock().remove(&key);
            return Ok(None);
        };
        if !service_endpoints::is_managed(&service) || service.metadata.deletion_timestamp.is_some()
        {
            return Ok(None);
        }
        let slices = self.slices.get(&key.to_string());
        let pods = self.pods.get(
            &key.namespace,
            service_endpoints::pair_of(&service).as_slice(),
            |pod| selects(&service, pod),
        );
        let node = |name: &str| self.nodes.get(&Key::new("", name));
        let plan = plan::plan(&Input {
            service: &service,
            pods: &pods,
            slices: &slices,
            node: &node,
            ratios: &|| topology::ratios(&self.nodes.all()),
        });
        let at = self.times.look(&key, &service, &pods);
        self.tell(&key, &service, &plan);
        let result = self.act(&key, plan, at).await;
        if let Err(ReconcileError::Api { source, .. }) = &result {
            let message = format!(
                "Error updating Endpoint Slices for Service {key}: {}",
                message_of(source)
            );
            let about = service.as_ref();
            self.recorder
                .warning(about, "FailedToUpdateEndpointSlices", message);
        }
        result
    }
}

impl EndpointSliceController {
    /// Says when traffic begins to go by zones, ends to, or cannot.
    fn tell(&self, key: &Key, service: &Service, plan: &Plan) {
        let mut known = self.by_zones.lock();
        if plan.by_zones.is_empty() {
            if known.remove(key) {
                for family in service_endpoints::Family::of(service) {
                    let why = format!("{}, addressType: {}", topology::DISABLED, family.as_str());
                    self.recorder
                        .warning(service, "TopologyAwareHintsDisabled", why);
                }
            }
            return;
        }
        for (family, assigned) in &plan.by_zones {
            match assigned {
                Ok(()) if known.insert(key.clone()) => {
                    let message = format!("{}, addressType: {family}", topology::ENABLED);
                    self.recorder
                        .normal(service, "TopologyAwareHintsEnabled", message);
                }
                Ok(()) => {}
                Err(why) => {
                    known.remove(key);
                    let message = format!("{why}, addressType: {family}");
                    self.recorder
                        .warning(service, "TopologyAwareHintsDisabled", message);
                }
            }
        }
    }

    /// `at` is when what has changed happened.
    async fn act(&self, key: &Key, mut plan: Plan, at: Option<Timestamp>) -> Outcome {
        let written = plan.create.iter_mut().chain(&mut plan.update);
        written.for_each(|slice| annotate(&mut slice.metadata, at));
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = PostParams::default();
        let creates = join_all(plan.create.iter().map(|slice| async {
            let created = self.writes.write(key, api.create(&params, slice)).await;
            let created = ignore(created, is_namespace_terminating);
            created.during("create EndpointSlice").map(drop)
        }))
        .await;
        let updates = join_all(plan.update.iter().map(|slice| async {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let written = self
                .writes
                .write(key, api.replace(name, &params, slice))
                .await;
            or_event(written.map(drop).during("update EndpointSlice")).map(drop)
        }))
        .await;
        let deletes = join_all(plan.delete.iter().map(|slice| async {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let params = DeleteParams::default();
            let deleted = self.writes.delete(key, slice, api.delete(name, &params));
            ignore_missing(deleted.await)
                .during("delete EndpointSlice")
                .map(drop)
        }))
        .await;
        creates
            .into_iter()
            .chain(updates)
            .chain(deletes)
            .collect::<Result<Vec<()>, _>>()?;
        Ok(None)
    }
}

/// The Service of a slice that this controller made.
fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let labels = slice.metadata.labels.as_ref()?;
    let is_own = labels.get(MANAGED_BY).is_some_and(|name| name == MANAGER);
    service_endpoints::service_of(slice).filter(|_| is_own)
}
