//! Publishes the pods behind each Service as EndpointSlices.
//!
//! Services without a selector are left to whoever made them; slices of a deleted Service go by
//! their owner reference. What to write is decided by [`plan`].
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

use crate::{
    Manager,
    builder::Builder,
    cache::{By, Cache, Index, Key, labels::Selected},
    context::Context,
    controller::{
        CallContext, Outcome, ReconcileError, Reconciler, ignore, ignore_missing, or_event,
    },
    errors::{is_namespace_terminating, message_of},
    event_recorder::component::ComponentRecorder,
    pod::Pod,
    service_endpoints::{self, selects, wake_services},
};

pub(crate) mod plan;
#[cfg(test)]
mod tests;

use plan::{Input, MANAGED_BY, MANAGER, Plan, SERVICE_NAME};

/// Services worked on at once.
const WORKERS: usize = 8;
const COMPONENT: &str = "endpoint-slice-controller";

/// The controller; its state is in caches and its writes.
pub(crate) struct EndpointSliceController {
    client: Client,
    recorder: ComponentRecorder,
    services: Arc<Cache<Service>>,
    pods: Selected<Pod>,
    nodes: Arc<Cache<Node>>,
    slices: By<EndpointSlice>,
    writes: OwnWrites<EndpointSlice>,
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
        };
        controller.watches(service_of);
        wake_services(&mut controller);
        controller.complete(Arc::new(this));
    }
}

impl Reconciler for EndpointSliceController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(service) = self.services.get(&key) else {
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
        });
        let result = self.act(&key, plan).await;
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
    async fn act(&self, key: &Key, plan: Plan) -> Outcome {
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
    (labels.get(MANAGED_BY).map(String::as_str) == Some(MANAGER)).then(|| {
        Some(Key::new(
            slice.metadata.namespace.clone().unwrap_or_default(),
            labels.get(SERVICE_NAME)?.clone(),
        ))
    })?
}
