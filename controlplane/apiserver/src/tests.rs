//! Component tests: a whole server in memory, called through `kube::Client` as its real clients do,
//! and over TLS.

mod admission;
mod admission_plugins;
mod apply;
mod authorization;
mod authorizer;
mod backup;
mod bad_input;
mod binding_batches;
mod connections;
mod crud;
mod custom_resources;
mod definitions;
mod deletion;
mod evictions;
mod floods;
mod forms;
mod full_store;
mod kinds;
mod kubectl;
mod large_lists;
mod led_to;
mod lifecycles;
mod lists;
mod local_storage;
mod nodes;
mod pod_admission;
mod pod_peers;
mod pod_security;
mod policies;
mod quota;
mod raw;
mod rbac;
mod reads;
mod routes;
mod service_cidrs;
mod services;
mod several;
mod slow;
mod spans;
mod streams;
mod subresources;
mod tls;
mod tokens;
mod unread;
mod updates;
mod upgrades;
mod warnings;
mod watches;
mod webhooks;

use std::sync::Arc;

use coracle_api::schema::Structural;
use coracle_registry::{
    api_resource::ApiResource,
    kinds::{all, projections},
};

use crate::{
    openapi,
    published::{Published, Shown},
    server,
};

/// What a server publishes that has nothing but what is built in.
pub(crate) fn published() -> Published {
    let stored = all()
        .iter()
        .map(|kind| Shown::new(Arc::new(kind.resource().into()), None));
    let projected = projections().iter().map(|kind| {
        let info: Arc<ApiResource> = Arc::new(kind.resource().into());
        let schema = Structural::read(&kind.openapi_schema()).unwrap();
        let definitions = openapi::custom::definitions(&info, &schema);
        Shown::new(info, Some(Arc::new(definitions)))
    });
    Published::new(
        stored
            .chain(projected)
            .chain(server::virtuals().map(|serving| serving.shown()))
            .collect(),
        None,
    )
}
