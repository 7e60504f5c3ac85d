//! The end of a definition: its objects go first, behind the finalizer that came with its deletion.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/controller/finalizer/crd_finalizer.go` at v1.37.

use std::sync::Arc;

use coracle_api::{meta, status::Status};
use coracle_registry::{
    kinds::apiextensions::definition::{CLEANUP, conditions::Condition},
    part::Part,
    resource::Resource,
    store::{delete::DeleteOptions, update::UpdateTarget},
    watch_cache::{KeyScope, ListRequest, Selection},
};
use serde_json::Value;

use super::{Serving, plan, serve_all, write_status};
use crate::state::State;

/// Deletes what there is of its kind, and lets the definition go when there is nothing more.
/// Whether that is so.
pub(super) async fn step(
    server: &State,
    definitions: &Resource,
    definition: &Value,
    serving: &Serving,
) -> Result<bool, Status> {
    if !meta::finalizers(definition).contains(&CLEANUP) {
        return Ok(true);
    }
    // From now on nothing of it is made any more.
    serve_all(server, serving).await;
    let Some(resource) = storing(server, definition) else {
        // It was never served: nothing of it was ever made.
        release(server, definitions, definition).await?;
        return Ok(true);
    };
    let under_way = terminating(
        "True",
        "InstanceDeletionInProgress",
        "CustomResource deletion is in progress",
    );
    told(server, definitions, definition, &under_way).await?;
    let left = delete_all(server, &resource).await?;
    if left > 0 {
        let waiting = terminating(
            "True",
            "InstanceDeletionCheck",
            &format!("could not confirm zero CustomResources remaining: {left} remain"),
        );
        told(server, definitions, definition, &waiting).await?;
        return Ok(false);
    }
    release(server, definitions, definition).await?;
    Ok(true)
}

fn storing(server: &State, definition: &Value) -> Option<Arc<Resource>> {
    let (group, plural) = plan::names_of(definition);
    let catalog = server.catalog.now();
    catalog
        .stored()
        .find(|one| one.info.is(group, plural))
        .cloned()
}

/// How many wait for their own finalizers.
async fn delete_all(server: &State, resource: &Resource) -> Result<usize, Status> {
    let request = ListRequest::all(Selection::of(KeyScope::Resource));
    let all = resource.cache.list(&request);
    let entries = all.map_err(coracle_registry::store::cache_status)?.entries;
    for entry in &entries {
        let namespace = entry.namespace().unwrap_or_default();
        let options = DeleteOptions::default();
        let deleting = server
            .store
            .delete(resource, namespace, entry.name(), &options);
        match deleting.await {
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    let caught_up = server.store.cache.catch_up().await;
    caught_up.map_err(coracle_registry::store::cache_status)?;
    Ok(resource.cache.len())
}

fn terminating(status: &'static str, reason: &str, message: &str) -> Condition {
    Condition {
        kind: "Terminating",
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

async fn told(
    server: &State,
    definitions: &Resource,
    seen: &Value,
    condition: &Condition,
) -> Result<(), Status> {
    let now = definitions.objects(KeyScope::Resource);
    let Some(mut now) = now
        .into_iter()
        .find(|one| meta::uid(one) == meta::uid(seen))
    else {
        return Err(Status::not_found(
            &definitions.group_resource,
            meta::name(seen),
        ));
    };
    if condition.is_in(&now) {
        return Ok(());
    }
    let before = now.clone();
    condition.set(&mut now);
    write_status(server, definitions, &before, now["status"].take()).await
}

/// Takes the finalizer away, and with the last one the definition goes.
async fn release(server: &State, definitions: &Resource, seen: &Value) -> Result<(), Status> {
    let name = meta::name(seen);
    let target = UpdateTarget::own("", name, Part::Internal);
    let changed = server.store.update(definitions, &target, |old| {
        let mut new = old.clone();
        terminating(
            "False",
            "InstanceDeletionCompleted",
            "removed all instances",
        )
        .set(&mut new);
        let mut left = meta::finalizers(old);
        left.retain(|one| *one != CLEANUP);
        meta::set(&mut new, &["metadata", "finalizers"], left);
        meta::remove(&mut new, &["metadata", "resourceVersion"]);
        Ok(new)
    });
    match changed.await {
        Err(status) if status.code != 404 => Err(status),
        _ => Ok(()),
    }
}
