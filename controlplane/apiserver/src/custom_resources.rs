//! Kinds that come, change and go while the server runs. Each change makes another catalog.
//!
//! A change is loaded first and served then; requests that have the catalog before it go on with
//! that to their end, but their watches end. Nothing is deleted with a kind: its objects stay in
//! the store until it comes again.
//!
//! Not here: who says which kinds there are.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go` at v1.37.

use std::sync::Arc;

use coracle_api::status::Status;
use coracle_registry::{
    custom_resource::CustomResource, resource::Resource, store::cache_status, strategy::AnyStrategy,
};

use crate::{catalog::Serving, state::State};

/// Serves a kind from now on; one with the same group and plural is replaced by it.
///
/// # Errors
/// 409 if a built-in resource has these names; what the store says if its objects cannot be loaded.
pub(crate) async fn serve(server: &State, kind: CustomResource) -> Result<Arc<Resource>, Status> {
    let turn = server.catalog.turn().await;
    let about = kind.info.group_resource();
    let is_same = |serving: &Serving<State>| serving.info().is(&about.group, &about.resource);
    if server
        .catalog
        .now()
        .all()
        .iter()
        .any(|serving| is_same(serving) && !is_custom(serving))
    {
        return Err(Status::conflict(
            &about,
            &kind.info.kind,
            "these names are a built-in resource's",
        ));
    }
    let resource = kind
        .register(&server.store.cache)
        .await
        .map_err(cache_status)?;
    turn.change(|mut served| {
        let serving = Serving::Stored(Arc::clone(&resource));
        match served.iter_mut().find(|serving| is_same(serving)) {
            Some(before) => *before = serving,
            None => served.push(serving),
        }
        served
    });
    Ok(resource)
}

/// Serves a kind no more. Nothing happens if it is not served.
pub(crate) async fn withdraw(server: &State, group: &str, plural: &str) {
    let turn = server.catalog.turn().await;
    let is_it = |serving: &Serving<State>| serving.info().is(group, plural) && is_custom(serving);
    let Some(found) = server
        .catalog
        .now()
        .all()
        .iter()
        .find(|serving| is_it(serving))
        .cloned()
    else {
        return;
    };
    // First it is told of no more, then what it was served from goes.
    turn.change(|mut served| {
        served.retain(|serving| !is_it(serving));
        served
    });
    server.store.cache.unregister(&found.info().prefix()).await;
}

fn is_custom(serving: &Serving<State>) -> bool {
    matches!(serving, Serving::Stored(resource) if matches!(resource.strategy, AnyStrategy::Custom(_)))
}
