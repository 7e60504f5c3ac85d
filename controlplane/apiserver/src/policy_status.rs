//! The status of ValidatingAdmissionPolicies: whether their expressions fit the kinds that they are
//! about. One of several servers writes it.
//!
//! Not here: what does not fit (`coracle_admission`).
//!
//! Source: `pkg/controller/validatingadmissionpolicystatus/controller.go` at v1.37.

use std::{sync::Arc, time::Duration};

use coracle_admission::type_warnings;
use coracle_api::{meta, status::Status};
use coracle_registry::{
    part::Part,
    resource::Resource,
    store::update::UpdateTarget,
    watch_cache::{KeyScope, Selection},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::state::State;

/// Until what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Until all is looked at although nothing has happened.
const MOST: Duration = Duration::from_secs(3600);

/// Checks each generation of each policy once, until `stop`.
pub(crate) async fn keep(server: Arc<State>, stop: CancellationToken) {
    let group = "admissionregistration.k8s.io";
    let policies = server
        .registry
        .get(group, "v1", "validatingadmissionpolicies");
    let Some(policies) = policies.cloned() else {
        return;
    };
    let everything = || Selection::of(KeyScope::Resource);
    let (_, mut watcher) = policies.cache.snapshot_and_watch(everything());
    loop {
        let is_done = look(&server, &policies).await;
        let retry = if is_done { MOST } else { RETRY };
        tokio::select! {
            () = stop.cancelled() => return,
            () = server.shutdown.cancelled() => return,
            () = tokio::time::sleep(retry) => {}
            news = watcher.next() => if news.is_err() {
                (_, watcher) = policies.cache.snapshot_and_watch(everything());
            }
        }
    }
}

/// Whether nothing is left to do.
async fn look(server: &State, policies: &Resource) -> bool {
    let mut is_done = true;
    for policy in policies.objects(KeyScope::Resource) {
        let generation = meta::generation(&policy);
        let observed = policy["status"]["observedGeneration"].as_i64();
        if observed.is_some_and(|observed| observed >= generation) {
            continue;
        }
        match tell(server, policies, &policy).await {
            Ok(()) => {}
            // Changed or gone meanwhile: its event is on the way.
            Err(status) if matches!(status.code, 404 | 409) => {}
            Err(status) => {
                let (name, message) = (meta::name(&policy), status.message);
                tracing::warn!(name, message, "cannot tell whether a policy fits its kinds");
                is_done = false;
            }
        }
    }
    is_done
}

async fn tell(server: &State, policies: &Resource, seen: &Value) -> Result<(), Status> {
    let warnings = type_warnings(seen, &*server.catalog);
    let checking = match warnings.is_empty() {
        true => json!({}),
        false => json!({"expressionWarnings": warnings}),
    };
    let target = UpdateTarget::own("", meta::name(seen), Part::Status);
    let changed = server.store.update(policies, &target, |_| {
        let mut new = seen.clone();
        new["status"]["observedGeneration"] = meta::generation(seen).into();
        new["status"]["typeChecking"] = checking.clone();
        Ok(new)
    });
    changed.await.map(drop)?;
    let caught_up = server.store.cache.catch_up().await;
    caught_up.map_err(coracle_registry::store::cache_status)
}
