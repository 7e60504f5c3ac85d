//! Kinds that come, change and go while the server runs. Each change makes another catalog.
//!
//! A change is loaded first and served then; requests that have the catalog before it go on with
//! that to their end, but their watches end. Nothing is deleted with a kind: its objects stay in
//! the store until it comes again.
//!
//! Not here: who says which kinds there are.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go` at v1.37.

use coracle_api::status::Status;
use coracle_registry::{
    api_resource, custom_resource::CustomResource, store::cache_status, strategy::AnyStrategy,
};

use crate::{catalog::Serving, state::State};

/// Serves a kind in its versions from now on; one with the same group and plural is replaced by it.
///
/// # Errors
/// 409 if a built-in resource has these names; what the store says if its objects cannot be loaded.
pub(crate) async fn serve(server: &State, kind: CustomResource) -> Result<(), Status> {
    let turn = server.catalog.turn().await;
    let about = kind.info.group_resource();
    if is_built_in(server, &about.group, &about.resource) {
        return Err(Status::conflict(
            &about,
            &kind.info.kind,
            "these names are a built-in resource's",
        ));
    }
    let versions = kind
        .register(&server.store.cache)
        .await
        .map_err(cache_status)?;
    let is_same = |serving: &Serving<State>| serving.info().is(&about.group, &about.resource);
    turn.change(|mut served| {
        // Where it was before, if it was.
        let place = served.iter().position(is_same).unwrap_or(served.len());
        served.retain(|serving| !is_same(serving));
        served.splice(place..place, versions.into_iter().map(Serving::Stored));
        served
    });
    Ok(())
}

/// Serves a kind no more, in none of its versions. Nothing happens if it is not served.
pub(crate) async fn withdraw(server: &State, group: &str, plural: &str) {
    let turn = server.catalog.turn().await;
    if is_built_in(server, group, plural) {
        return;
    }
    // First it is told of no more, then what it was served from goes.
    let is_it = |serving: &Serving<State>| serving.info().is(group, plural);
    if server.catalog.now().all().iter().any(is_it) {
        turn.change(|mut served| {
            served.retain(|serving| !is_it(serving));
            served
        });
    }
    let prefix = api_resource::prefix(group, plural);
    server.store.cache.unregister(&prefix).await;
}

/// Whether somebody serves a resource with these names who does not come and go.
fn is_built_in(server: &State, group: &str, plural: &str) -> bool {
    let catalog = server.catalog.now();
    let mut all = catalog.all().iter();
    all.any(|serving| serving.info().is(group, plural) && !is_custom(serving))
}

fn is_custom(serving: &Serving<State>) -> bool {
    matches!(serving, Serving::Stored(resource) if matches!(resource.strategy, AnyStrategy::Custom(_)))
}
