//! The end of a definition: its objects go first, behind the finalizer that came with its deletion.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/controller/finalizer/crd_finalizer.go` at v1.37.

use std::{collections::HashSet, sync::Arc};

use coracle_api::{meta, status::Status};
use coracle_registry::{
    api_resource,
    kinds::apiextensions::definition::{CLEANUP, conditions::Condition},
    part::Part,
    resource::Resource,
    store::{cache_status, delete::DeleteOptions, store_status, update::UpdateTarget},
    watch_cache::{Entry, KeyScope, ListRequest, Selection},
};
use coracle_store::RangeRequest;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use tokio::{sync::Semaphore, task::JoinSet};

use super::{RETRY, Serving, plan, serve_all, whole, write_status};
use crate::{custom_resources, state::State};

/// Objects of all kinds that are deleted at the same time: the store takes many in one commit.
const AT_ONCE: usize = 32;

/// The definitions that go, each on its own: one with many objects, or with some that wait for
/// others, holds up no other definition. Those under way end when this is dropped.
pub(super) struct Deletions {
    shared: Arc<Shared>,
    tasks: JoinSet<String>,
    /// By name.
    under_way: HashSet<String>,
}

struct Shared {
    server: Arc<State>,
    definitions: Arc<Resource>,
    serving: Serving,
    places: Semaphore,
}

impl Deletions {
    pub(super) fn new(server: &Arc<State>, definitions: &Arc<Resource>, serving: &Serving) -> Self {
        Self {
            shared: Arc::new(Shared {
                server: Arc::clone(server),
                definitions: Arc::clone(definitions),
                serving: Arc::clone(serving),
                places: Semaphore::new(AT_ONCE),
            }),
            tasks: JoinSet::new(),
            under_way: HashSet::new(),
        }
    }

    /// Takes a definition up, if it is not under way.
    pub(super) fn begin(&mut self, definition: &Arc<Value>) {
        let name = meta::name(definition).to_owned();
        if !self.under_way.insert(name.clone()) {
            return;
        }
        let (shared, definition) = (Arc::clone(&self.shared), Arc::clone(definition));
        let run = async move {
            match shared.step(&definition).await {
                Ok(true) => {}
                // Its event is on the way.
                Err(status) if matches!(status.code, 404 | 409) => {}
                Ok(false) => tokio::time::sleep(RETRY).await,
                Err(status) => {
                    let message = status.message;
                    tracing::warn!(name, message, "cannot delete a definition");
                    tokio::time::sleep(RETRY).await;
                }
            }
            name
        };
        coracle_telemetry::spawn_in(&mut self.tasks, "delete a definition", run);
    }

    /// Waits until one has got as far as it can for now; for ever if none is under way.
    pub(super) async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(name)) => _ = self.under_way.remove(&name),
            // Nobody knows which.
            Some(Err(_)) => self.under_way.clear(),
            None => std::future::pending().await,
        }
    }
}

impl Shared {
    /// Deletes what there is of its kind, and lets the definition go when there is nothing more.
    /// Whether that is so.
    async fn step(&self, definition: &Value) -> Result<bool, Status> {
        let (server, definitions) = (&*self.server, &*self.definitions);
        if !meta::finalizers(definition).contains(&CLEANUP) {
            return Ok(true);
        }
        // From now on nothing of it is made any more.
        serve_all(server, &self.serving).await;
        let (group, plural) = plan::names_of(definition);
        let Some(resource) = custom_resources::find(server, group, plural) else {
            return self.end_unserved(definition).await;
        };
        let under_way = terminating(
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        );
        told(server, definitions, definition, &under_way).await?;
        // They go without their conversion webhook, which may have gone before them.
        let left = self
            .delete_all(resource.as_stored(None).unwrap_or(&resource))
            .await?;
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

    /// The end of one whose kind this server does not serve. In most cases nothing of it was ever
    /// made; what there is all the same would be there again with the next definition of its name.
    /// Whether it could end.
    async fn end_unserved(&self, definition: &Value) -> Result<bool, Status> {
        let (server, definitions) = (&*self.server, &*self.definitions);
        let (group, plural) = plan::names_of(definition);
        if !custom_resources::is_built_in(server, group, plural) {
            let any = RangeRequest {
                prefix: api_resource::prefix(group, plural),
                start: None,
                limit: Some(1),
                at: None,
            };
            let found = server.store.backend.range(any).await;
            if !found.map_err(store_status)?.items.is_empty() {
                let failed = terminating(
                    "True",
                    "InstanceDeletionFailed",
                    "could not list instances: there are some, and their kind cannot be served; the server's log says why",
                );
                told(server, definitions, definition, &failed).await?;
                return Ok(false);
            }
        }
        release(server, definitions, definition).await?;
        Ok(true)
    }

    /// How many wait for their own finalizers.
    async fn delete_all(&self, resource: &Resource) -> Result<usize, Status> {
        let store = &self.server.store;
        let request = ListRequest::all(Selection::of(KeyScope::Resource));
        let all = resource.cache.list(&request);
        let entries = all.map_err(cache_status)?.entries;
        let options = &DeleteOptions::default();
        let waiting = |entry: &Arc<Entry>| entry.is_terminating();
        let going = entries.into_iter().filter(|entry| !waiting(entry));
        let deleting = futures::stream::iter(going).map(|entry: Arc<Entry>| async move {
            // Never closed.
            let _place = self.places.acquire().await;
            let namespace = entry.namespace().unwrap_or_default();
            let deleting = store.delete(resource, namespace, entry.name(), options);
            match deleting.await {
                Err(status) if status.code != 404 => Err(status),
                _ => Ok(()),
            }
        });
        let deleting = deleting.buffer_unordered(AT_ONCE);
        deleting
            .try_for_each(|()| std::future::ready(Ok(())))
            .await?;
        store.cache.catch_up().await.map_err(cache_status)?;
        Ok(resource.cache.len())
    }
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
    let name = meta::name(seen);
    let now = whole(definitions, name).filter(|now| meta::uid(now) == meta::uid(seen));
    let Some(mut now) = now else {
        return Err(Status::not_found(&definitions.group_resource, name));
    };
    if condition.is_in(&now) {
        return Ok(());
    }
    condition.set(&mut now);
    write_status(server, definitions, now).await
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
