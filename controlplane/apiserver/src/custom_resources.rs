//! Kinds that come, change and go while the server runs. Each change makes another catalog.
//!
//! A change is loaded first and served then; requests that have the catalog before it go on with
//! that to their end, but their watches end. Nothing is deleted with a kind: its objects stay in
//! the store until it comes again.
//!
//! Not here: who says which kinds there are.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go` at v1.37.

mod converters;

use std::sync::Arc;

use coracle_api::{resource::GroupResource, status::Status};
use coracle_registry::{
    api_resource::{self, ApiResource},
    converter::CallConverter,
    custom_resource::CustomResource,
    resource::Resource,
    store::cache_status,
    strategy::AnyStrategy,
};

use crate::{catalog::Serving, state::State};

/// Serves a kind in its versions from now on; one with the same group and plural is replaced by it.
///
/// # Errors
/// 409 if a built-in resource has these names; what the store says if its objects cannot be loaded.
pub(crate) async fn serve(server: &State, kind: CustomResource) -> Result<(), Status> {
    let new = Coming { kind, ends: false };
    serve_all(server, vec![new]).await.pop().unwrap_or(Ok(()))
}

/// A kind that is to be served.
pub(crate) struct Coming {
    pub(crate) kind: CustomResource,
    /// It is served already, and no more can be made of it: its watches go on, to the end of the
    /// last object.
    pub(crate) ends: bool,
}

/// The same of several, with one change of the catalog, and how it went with each.
pub(crate) async fn serve_all(server: &State, kinds: Vec<Coming>) -> Vec<Result<(), Status>> {
    let with_caller = |mut coming: Coming| {
        coming.kind.rule_metrics = server.metrics.rules.clone();
        let conversion = coming.kind.conversion.as_ref();
        let caller = conversion
            .map(|one| converters::reach(&server.webhooks, &server.metrics.conversions, one));
        (coming, caller)
    };
    serve_with(server, kinds.into_iter().map(with_caller).collect()).await
}

/// The same, with who reaches the conversion webhook of each.
pub(crate) async fn serve_with(
    server: &State,
    kinds: Vec<(Coming, Option<Arc<dyn CallConverter>>)>,
) -> Vec<Result<(), Status>> {
    let turn = server.catalog.turn().await;
    let (mut loaded, mut went) = (Vec::new(), Vec::new());
    for (coming, caller) in kinds {
        let about = coming.kind.info.group_resource();
        let versions = load(server, coming, caller, &about).await;
        went.push(versions.map(|versions| loaded.push((about, versions))));
    }
    if loaded.is_empty() {
        return went;
    }
    turn.change(|mut served| {
        for (about, versions) in loaded {
            let is_same =
                |serving: &Serving<State>| serving.info().is(&about.group, &about.resource);
            // Where it was before, if it was.
            let place = served.iter().position(is_same).unwrap_or(served.len());
            served.retain(|serving| !is_same(serving));
            served.splice(place..place, versions.into_iter().map(Serving::Stored));
        }
        served
    });
    went
}

async fn load(
    server: &State,
    Coming { kind, ends }: Coming,
    caller: Option<Arc<dyn CallConverter>>,
    about: &GroupResource,
) -> Result<Vec<Arc<Resource>>, Status> {
    if is_built_in(server, &about.group, &about.resource) {
        return Err(Status::conflict(
            about,
            &kind.info.kind,
            "these names are a built-in resource's",
        ));
    }
    let served = find(server, &about.group, &about.resource).filter(|_| ends);
    if let Some(served) = served {
        return Ok(kind.over(&served.cache, caller));
    }
    let loading = kind.register(&server.store.cache, caller);
    loading.await.map_err(cache_status)
}

/// Serves a kind no more, in none of its versions. Nothing happens if it is not served.
pub(crate) async fn withdraw(server: &State, group: &str, plural: &str) {
    withdraw_all(server, &[(group, plural)]).await;
}

/// The same of several, by group and plural, with one change of the catalog.
pub(crate) async fn withdraw_all(server: &State, kinds: &[(&str, &str)]) {
    let turn = server.catalog.turn().await;
    let is_any = |info: &ApiResource| kinds.iter().any(|(group, plural)| info.is(group, plural));
    // First it is told of no more, then what it was served from goes.
    let is_it = |serving: &Serving<State>| is_custom(serving) && is_any(serving.info());
    if server.catalog.now().all().iter().any(is_it) {
        turn.change(|mut served| {
            served.retain(|serving| !is_it(serving));
            served
        });
    }
    for (group, plural) in kinds {
        if !is_built_in(server, group, plural) {
            let prefix = api_resource::prefix(group, plural);
            server.store.cache.unregister(&prefix).await;
        }
    }
}

/// A kind that comes and goes, if it is served; what is built in is none, whatever its names.
pub(crate) fn find(server: &State, group: &str, plural: &str) -> Option<Arc<Resource>> {
    let catalog = server.catalog.now();
    let mut found = catalog.versions_of(group, plural);
    found.find_map(|serving| match serving {
        Serving::Stored(resource) if is_custom(serving) => Some(Arc::clone(resource)),
        _ => None,
    })
}

/// What does not come and go.
pub(crate) fn built_in(server: &State) -> Vec<Arc<ApiResource>> {
    let catalog = server.catalog.now();
    let all = catalog.all().iter().filter(|serving| !is_custom(serving));
    all.map(|serving| Arc::clone(serving.info())).collect()
}

/// Whether somebody serves a resource with these names who does not come and go.
pub(crate) fn is_built_in(server: &State, group: &str, plural: &str) -> bool {
    let catalog = server.catalog.now();
    let mut all = catalog.versions_of(group, plural);
    all.any(|serving| !is_custom(serving))
}

fn is_custom(serving: &Serving<State>) -> bool {
    matches!(serving, Serving::Stored(resource) if matches!(resource.strategy, AnyStrategy::Custom(_)))
}
