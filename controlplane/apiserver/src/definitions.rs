//! CustomResourceDefinitions: the kinds that they say are served, and they are told how it went.
//!
//! ```text
//! every server    follow    the catalog is brought in line with the definitions that have names
//! one of several  keep      names > the kind is served here > Established > deletion: its objects, then the definition
//! ```
//!
//! Level-triggered: a change says only that all of them are to be looked at again. What is served
//! at the start is in the catalog before the first request is answered.
//!
//! A kind is served anew if what is served of its definition has changed; its status is no part of
//! that, but for names and the beginning of its end.
//!
//! Not here: what a definition may say (`coracle_registry::kinds::apiextensions`).
//!
//! Source: `pkg/controller/{status,establish,finalizer,apiapproval}` and
//! `pkg/apiserver/customresource_handler.go` of `k8s.io/apiextensions-apiserver` at v1.37.

mod deletion;
pub(crate) mod plan;

use std::{collections::HashMap, sync::Arc, time::Duration};

use coracle_api::{meta, status::Status};
use coracle_registry::{
    kinds::apiextensions::definition::{names, served},
    part::Part,
    resource::Resource,
    store::update::UpdateTarget,
    watch_cache::{KeyScope, Selection},
};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use self::plan::Served;
use crate::{custom_resources, state::State};

/// Until what failed, or waits for somebody else, is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Until all is looked at although nothing has happened.
const MOST: Duration = Duration::from_secs(3600);

/// What of the definitions is served here: whoever changes it waits for its turn.
pub(crate) type Serving = Arc<Mutex<HashMap<String, Served>>>;

/// Serves what is defined now, and no more what is not. Whether all of it could be done.
pub(crate) async fn serve_all(server: &State, serving: &Serving) -> bool {
    let Some(definitions) = resource(server) else {
        return true;
    };
    let mut serving = serving.lock().await;
    let all = definitions.objects(KeyScope::Resource);
    let (wanted, gone) = plan::serving(&all, &serving);
    let mut is_done = true;
    for name in gone {
        if let Some(before) = serving.remove(&name) {
            custom_resources::withdraw(server, &before.group, &before.plural).await;
        }
    }
    for definition in wanted {
        let (name, now) = (meta::name(definition).to_owned(), Served::of(definition));
        match serve(server, definition).await {
            Ok(()) => {}
            // It is never served as it is: nothing is tried again.
            Err(status) if status.code < 500 => {
                tracing::warn!(name, message = status.message, "cannot serve a definition");
            }
            Err(status) => {
                tracing::warn!(
                    name,
                    message = status.message,
                    "cannot serve a definition yet"
                );
                is_done = false;
                continue;
            }
        }
        serving.insert(name, now);
    }
    is_done
}

async fn serve(server: &State, definition: &Value) -> Result<(), Status> {
    match served::kind(definition) {
        Ok(Some(kind)) => custom_resources::serve(server, kind).await,
        Ok(None) => Ok(()),
        Err(error) => Err(Status::bad_request(error.to_string())),
    }
}

/// Serves what is defined until `server` stops.
pub(crate) async fn follow(server: Arc<State>, serving: Serving) {
    let Some(definitions) = resource(&server) else {
        return;
    };
    let everything = || Selection::of(KeyScope::Resource);
    let (_, mut watcher) = definitions.cache.snapshot_and_watch(everything());
    loop {
        let is_done = serve_all(&server, &serving).await;
        let retry = if is_done { MOST } else { RETRY };
        tokio::select! {
            () = server.shutdown.cancelled() => return,
            () = tokio::time::sleep(retry) => {}
            news = watcher.next() => if news.is_err() {
                (_, watcher) = definitions.cache.snapshot_and_watch(everything());
            }
        }
    }
}

/// Gives names, tells what is established and deletes what goes until `stop`.
pub(crate) async fn keep(server: Arc<State>, serving: Serving, stop: CancellationToken) {
    let Some(definitions) = resource(&server) else {
        return;
    };
    let everything = || Selection::of(KeyScope::Resource);
    let (_, mut watcher) = definitions.cache.snapshot_and_watch(everything());
    loop {
        let is_done = look(&server, &definitions, &serving).await;
        let retry = if is_done { MOST } else { RETRY };
        tokio::select! {
            () = stop.cancelled() => return,
            () = server.shutdown.cancelled() => return,
            () = tokio::time::sleep(retry) => {}
            news = watcher.next() => if news.is_err() {
                (_, watcher) = definitions.cache.snapshot_and_watch(everything());
            }
        }
    }
}

/// Looks at all of them once. Whether nothing is left to do.
async fn look(server: &State, definitions: &Resource, serving: &Serving) -> bool {
    let mut is_done = true;
    for definition in definitions.objects(KeyScope::Resource) {
        let name = meta::name(&definition).to_owned();
        let stepped = if meta::is_terminating(&definition) {
            deletion::step(server, definitions, &definition, serving).await
        } else {
            tell(server, definitions, &name, serving)
                .await
                .map(|()| true)
        };
        match stepped {
            Ok(is_over) => is_done &= is_over,
            // Changed or gone meanwhile: its event is on the way.
            Err(status) if matches!(status.code, 404 | 409) => {}
            Err(status) => {
                tracing::warn!(name, message = status.message, "cannot keep a definition");
                is_done = false;
            }
        }
    }
    is_done
}

/// Brings the status of a definition in line: names first, then, once it is served by them, that it
/// is established.
async fn tell(
    server: &State,
    definitions: &Resource,
    name: &str,
    serving: &Serving,
) -> Result<(), Status> {
    for is_second in [false, true] {
        let all = definitions.objects(KeyScope::Resource);
        let find = |one: &&Value| meta::name(one) == name;
        let Some(definition) = all
            .iter()
            .find(find)
            .filter(|one| !meta::is_terminating(one))
        else {
            return Ok(());
        };
        let is_served = is_second && names::is_served(definition) && {
            serve_all(server, serving).await;
            is_in_catalog(server, definition)
        };
        if let Some(status) = plan::status(definition, &all, is_served) {
            write_status(server, definitions, definition, status).await?;
        }
    }
    Ok(())
}

fn is_in_catalog(server: &State, definition: &Value) -> bool {
    let (group, plural) = plan::names_of(definition);
    let catalog = server.catalog.now();
    catalog.stored().any(|one| one.info.is(group, plural))
}

/// Writes a status over the one that was seen, and has it in the cache afterwards.
async fn write_status(
    server: &State,
    definitions: &Resource,
    seen: &Value,
    status: Value,
) -> Result<(), Status> {
    let name = meta::name(seen);
    let target = UpdateTarget::own("", name, Part::Status);
    let changed = server.store.update(definitions, &target, |_| {
        let mut new = seen.clone();
        new["status"] = status.clone();
        Ok(new)
    });
    changed.await?;
    let caught_up = server.store.cache.catch_up().await;
    caught_up.map_err(coracle_registry::store::cache_status)
}

fn resource(server: &State) -> Option<Arc<Resource>> {
    let (group, plural) = ("apiextensions.k8s.io", "customresourcedefinitions");
    server.registry.get(group, "v1", plural).cloned()
}
