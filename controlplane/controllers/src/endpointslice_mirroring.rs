//! Shows Endpoints that somebody else maintains, those of Services without a selector, as
//! EndpointSlices.
//!
//! Nobody reads Endpoints any more; whoever still writes them by hand is heard this way. Endpoints
//! of Services with a selector, leader-election records and whatever says `skip-mirror` are left
//! alone.
//!
//! Source: `pkg/controller/endpointslicemirroring` at v1.37.

use std::sync::Arc;

use coracle_client::own_writes::OwnWrites;
use k8s_openapi::api::{
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};

use crate::{
    Manager,
    builder::Builder,
    cache::{By, Cache, Index, Key},
    context::Context,
    controller::{CallContext, Outcome, Reconciler, ignore, ignore_missing, or_event},
    errors::is_namespace_terminating,
};

mod plan;

use plan::mirrored_by;

/// Services worked on at once.
const WORKERS: usize = 5;

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
            slices: controller.index(Index::by_key("mirrored", mirrored_by)),
            writes: controller.own_writes(),
        };
        controller.watches(mirrored_by);
        controller.complete(Arc::new(this));
    }
}

impl Reconciler for MirroringController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let plan = plan::plan(
            self.services.get(&key).as_deref(),
            self.endpoints.get(&key).as_deref(),
            self.slices.get(&key.to_string()),
        );
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = PostParams::default();
        for slice in &plan.update {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let updated = self.writes.write(&key, api.replace(name, &params, slice));
            or_event(updated.await.during("update mirrored EndpointSlice"))?;
        }
        for slice in &plan.delete {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let params = DeleteParams::default();
            let call = api.delete(name, &params);
            let deleted = self.writes.delete(&key, &**slice, call);
            ignore_missing(deleted.await).during("delete mirrored EndpointSlice")?;
        }
        for slice in &plan.create {
            let created = self.writes.write(&key, api.create(&params, slice)).await;
            ignore(created, is_namespace_terminating).during("mirror Endpoints")?;
        }
        Ok(None)
    }
}
