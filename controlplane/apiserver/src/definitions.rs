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

pub(crate) mod coming;
mod deletion;
mod heads;
pub(crate) mod plan;

use std::{collections::HashMap, sync::Arc, time::Duration};

use coracle_api::{meta, status::Status};
use coracle_registry::{
    kinds::apiextensions::definition::{
        names::{self, Taken},
        served,
    },
    part::Part,
    resource::Resource,
    store::{cache_status, update::UpdateTarget},
    watch_cache::{Entry, KeyScope, Selection},
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use self::{deletion::Deletions, heads::Heads, plan::Served};
use crate::{
    custom_resources::{self, Coming},
    state::State,
};

/// Until what failed, or waits for somebody else, is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Statuses that cannot be written before the others wait for the next look.
const MOST_FAILED: usize = 3;
/// Until all is looked at although nothing has happened.
const MOST: Duration = Duration::from_secs(3600);
/// Kinds that are first served with one change of the catalog.
const AT_ONCE: usize = 100;

/// Whoever looks at what is known, or changes what is served, waits for its turn.
pub(crate) type Serving = Arc<Mutex<Known>>;

/// The definitions, and what of them is served here.
#[derive(Default)]
pub(crate) struct Known {
    heads: Heads,
    served: HashMap<String, Served>,
}

/// Serves what is defined now, and no more what is not. Whether all of it could be done.
pub(crate) async fn serve_all(server: &State, serving: &Serving) -> bool {
    let Some(definitions) = resource(server) else {
        return true;
    };
    let mut known = serving.lock().await;
    let Known { heads, served } = &mut *known;
    let all = heads.read(&definitions);
    let (wanted, gone) = plan::serving(&all, served);
    let gone: Vec<Served> = gone.iter().filter_map(|name| served.remove(name)).collect();
    if !gone.is_empty() {
        let names: Vec<(&str, &str)> = gone.iter().map(Served::names).collect();
        custom_resources::withdraw_all(server, &names).await;
    }
    // Nobody watches what comes; who watches what changes is to wait for nothing else.
    let is_coming = |one: &&Value| !served.contains_key(meta::name(one));
    let (coming, changed): (Vec<&Value>, Vec<&Value>) = wanted.into_iter().partition(is_coming);
    let mut is_done = true;
    for some in coming.chunks(AT_ONCE).chain(changed.chunks(1)) {
        is_done &= serve(server, &definitions, served, some).await;
    }
    is_done
}

/// Whether all of these could be served.
async fn serve(
    server: &State,
    definitions: &Resource,
    served: &mut HashMap<String, Served>,
    some: &[&Value],
) -> bool {
    let (mut kinds, mut about) = (Vec::new(), Vec::new());
    for name in some.iter().map(|head| meta::name(head)) {
        let Some(definition) = whole(definitions, name) else {
            continue;
        };
        let now = Served::of(&definition);
        match served::kind(&definition) {
            Ok(Some(kind)) => {
                let ends = served.get(name).is_some_and(|before| now.ends(before));
                kinds.push(Coming { kind, ends });
                about.push((name, now));
                continue;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(name, message = %error, "cannot serve a definition");
            }
        }
        // It is never served as it is: nothing is tried again.
        served.insert(name.to_owned(), now);
    }
    let went = custom_resources::serve_all(server, kinds).await;
    let mut is_done = true;
    for ((name, now), went) in about.into_iter().zip(went) {
        if let Err(Status { code, message, .. }) = went {
            tracing::warn!(name, message, "cannot serve a definition");
            if code >= 500 {
                is_done = false;
                continue;
            }
        }
        served.insert(name.to_owned(), now);
    }
    is_done
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
    let mut deletions = Deletions::new(&server, &definitions, &serving);
    loop {
        let is_done = look(&server, &definitions, &serving, &mut deletions).await;
        let retry = if is_done { MOST } else { RETRY };
        tokio::select! {
            () = stop.cancelled() => return,
            () = server.shutdown.cancelled() => return,
            () = tokio::time::sleep(retry) => {}
            () = deletions.ended() => {}
            news = watcher.next() => if news.is_err() {
                (_, watcher) = definitions.cache.snapshot_and_watch(everything());
            }
        }
    }
}

/// Looks at all of them once: names first, then, once they are served by them, that they are
/// established. Whether nothing is left to do but what deletions do.
async fn look(
    server: &State,
    definitions: &Resource,
    serving: &Serving,
    deletions: &mut Deletions,
) -> bool {
    let mut is_done = tell_all(server, definitions, serving, false).await;
    is_done &= serve_all(server, serving).await;
    is_done &= tell_all(server, definitions, serving, true).await;
    let all = serving.lock().await.heads.read(definitions);
    for definition in all.iter().filter(|one| meta::is_terminating(one)) {
        deletions.begin(definition);
    }
    is_done
}

/// How many servers there are, as the Service of the API leads to them.
fn servers(server: &State) -> usize {
    let Some(endpoints) = server.registry.core("endpoints") else {
        return 0;
    };
    let found = endpoints.cache.get(&endpoints.key("default", "kubernetes"));
    let read = |entry: Arc<Entry>| serde_json::from_slice(&entry.unmanaged()).ok();
    let found: Value = found.and_then(read).unwrap_or_default();
    let subsets = meta::get_array(&found, &["subsets"]).iter();
    let addresses = subsets.map(|subset| meta::get_array(subset, &["addresses"]).len());
    addresses.sum()
}

/// Brings the status of all of them in line. Whether that could be done.
async fn tell_all(
    server: &State,
    definitions: &Resource,
    serving: &Serving,
    may_be_served: bool,
) -> bool {
    let all = serving.lock().await.heads.read(definitions);
    let mut taken = Taken::default();
    for info in custom_resources::built_in(server) {
        taken.add_built_in(&info);
    }
    all.iter().for_each(|definition| taken.add(definition));
    let (mut is_done, mut failed) = (true, 0);
    let has_others = servers(server) > 1;
    for definition in all.iter().filter(|one| !meta::is_terminating(one)) {
        let mut is_served = may_be_served && names::is_served(definition) && {
            let (group, plural) = plan::names_of(definition);
            custom_resources::find(server, group, plural).is_some()
        };
        if is_served && has_others && !plan::is_served_by_others(definition, Timestamp::now()) {
            (is_served, is_done) = (false, false);
        }
        taken.remove(definition);
        let Some(status) = plan::status(definition, &taken, is_served) else {
            taken.add(definition);
            continue;
        };
        let mut told = Value::clone(definition);
        told["status"] = status;
        taken.add(&told);
        is_done &= match write_status(server, definitions, told).await {
            Ok(()) => true,
            // Changed or gone meanwhile: its event is on the way.
            Err(status) if matches!(status.code, 404 | 409) => true,
            Err(status) => {
                let (name, message) = (meta::name(definition), status.message);
                tracing::warn!(name, message, "cannot keep a definition");
                failed += usize::from(status.code >= 500);
                false
            }
        };
        // A store that takes nothing is not asked for thousands of them.
        if failed == MOST_FAILED {
            return false;
        }
    }
    is_done
}

/// Writes a status over the one that was seen, and has it in the cache afterwards.
async fn write_status(server: &State, definitions: &Resource, told: Value) -> Result<(), Status> {
    let name = meta::name(&told);
    let target = UpdateTarget::own("", name, Part::Status);
    let changed = server.store.update(definitions, &target, |old| {
        let mut new = old.clone();
        new["status"].clone_from(&told["status"]);
        meta::set(
            &mut new,
            &["metadata", "resourceVersion"],
            meta::resource_version(&told),
        );
        Ok(new)
    });
    changed.await?;
    server.store.cache.catch_up().await.map_err(cache_status)
}

/// A definition as the cache has it now.
fn whole(definitions: &Resource, name: &str) -> Option<Value> {
    let entry = definitions.cache.get(&definitions.key("", name))?;
    serde_json::from_slice(&entry.unmanaged()).ok()
}

fn resource(server: &State) -> Option<Arc<Resource>> {
    let (group, plural) = ("apiextensions.k8s.io", "customresourcedefinitions");
    server.registry.get(group, "v1", plural).cloned()
}
