//! Publishes the pods behind each Service as EndpointSlices.
//!
//! Services without a selector are left to whoever made them; slices of a deleted Service go by their owner
//! reference. What to write is decided by [`plan`].
//!
//! Source: `pkg/controller/endpointslice/` at v1.37.

use std::sync::Arc;

use coracle_client::own_writes::OwnWrites;
use futures::future::join_all;
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::{By, Cache, Index, Key, labels::Selected},
    context::Context,
    controller::{self, CallContext, Outcome, ReconcileError, or_event},
    errors::{is_namespace_terminating, is_not_found, message_of},
    event_recorder::{EventRecorder, EventType},
    informer::Informer,
    pod::Pod,
    service_endpoints::{self, selects},
    work_queue::WorkQueue,
};

pub(crate) mod plan;
#[cfg(test)]
mod tests;

use plan::{Input, MANAGED_BY, MANAGER, Plan, SERVICE_NAME};

/// Services worked on at once.
const WORKERS: usize = 8;
const COMPONENT: &str = "endpoint-slice-controller";

/// The controller; its state is in caches, its queue and its writes.
pub(crate) struct EndpointSliceController {
    client: Client,
    recorder: EventRecorder,
    services: Arc<Cache<Service>>,
    pods: Selected<Pod>,
    nodes: Arc<Cache<Node>>,
    slices: By<EndpointSlice>,
    queue: Arc<WorkQueue<Key>>,
    writes: OwnWrites<EndpointSlice>,
}

impl EndpointSliceController {
    /// Registers with the slices' informer; Services and Pods come through [`service_endpoints::ServiceTrigger`].
    pub(crate) fn new(
        context: &Context,
        services: &Informer<Service>,
        pods: &Informer<Pod>,
        nodes: &Informer<Node>,
        slices: &mut Informer<EndpointSlice>,
    ) -> Arc<Self> {
        let queue = context.queue("endpoint_slice");
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.clone(),
            services: services.cache(),
            pods: Selected::of(&pods.cache()),
            nodes: nodes.cache(),
            slices: slices.index(Index::new("service", |slice, put| {
                if let Some(service) = service_of(slice) {
                    put(&service.to_string());
                }
            })),
            writes: OwnWrites::new(slices, queue.clone()),
            queue,
        });
        let queue = this.queue.clone();
        slices.on_change(move |change| service_of(change.latest()).into_iter().for_each(|service| queue.add(service)));
        this
    }

    pub(crate) fn queue(&self) -> Arc<WorkQueue<Key>> {
        self.queue.clone()
    }

    /// Reconciles until `shutdown`.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let queue = self.queue.clone();
        controller::run("endpointslice", queue, WORKERS, shutdown, move |key| {
            let this = self.clone();
            async move { this.reconcile(key).await }
        })
        .await;
    }

    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(service) = self.services.get(&key) else { return Ok(None) };
        if !service_endpoints::is_managed(&service) || service.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        if !self.writes.settled(&key).await.during("list EndpointSlices")? {
            return Ok(None);
        }
        let slices = self.slices.get(&key.to_string());
        let pods = self.pods.get(&key.namespace, service_endpoints::pair_of(&service), |pod| selects(&service, pod));
        let node = |name: &str| self.nodes.get(&Key::new("", name));
        let plan = plan::plan(&Input { service: &service, pods: &pods, slices: &slices, node: &node });
        let result = self.act(&key, plan).await;
        if let Err(ReconcileError::Api { source, .. }) = &result {
            let message = format!("Error updating Endpoint Slices for Service {key}: {}", message_of(source));
            let about = service.as_ref();
            self.recorder.record(COMPONENT, about, EventType::Warning, "FailedToUpdateEndpointSlices", message);
        }
        result
    }

    async fn act(&self, key: &Key, plan: Plan) -> Outcome {
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = PostParams::default();
        let creates = join_all(plan.create.iter().map(|slice| async {
            match self.writes.write(key, api.create(&params, slice)).await {
                Err(error) if !is_namespace_terminating(&error) => Err(error).during("create EndpointSlice"),
                _ => Ok(()),
            }
        }))
        .await;
        let updates = join_all(plan.update.iter().map(|slice| async {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let written = self.writes.write(key, api.replace(name, &params, slice)).await;
            or_event(written.map(drop).during("update EndpointSlice")).map(drop)
        }))
        .await;
        let deletes = join_all(plan.delete.iter().map(|slice| async {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            match self.writes.delete(key, slice, api.delete(name, &DeleteParams::default())).await {
                Err(error) if !is_not_found(&error) => Err(error).during("delete EndpointSlice"),
                _ => Ok(()),
            }
        }))
        .await;
        creates.into_iter().chain(updates).chain(deletes).collect::<Result<Vec<()>, _>>()?;
        Ok(None)
    }
}

/// The Service of a slice that this controller made.
fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let labels = slice.metadata.labels.as_ref()?;
    (labels.get(MANAGED_BY).map(String::as_str) == Some(MANAGER)).then(|| {
        Some(Key::new(slice.metadata.namespace.clone().unwrap_or_default(), labels.get(SERVICE_NAME)?.clone()))
    })?
}
