//! `pods/eviction`: a deletion that the pod's PodDisruptionBudget may refuse.
//!
//! The budget is charged before the pod goes, in one compare-and-swap of its status: of two
//! evictions only one gets the last disruption. What the numbers of the budget mean is decided in
//! [`budget`]; who counts them is the disruption controller.
//!
//! Source: `pkg/registry/core/pod/storage/eviction.go` at v1.37.

mod budget;

use std::sync::Arc;

use coracle_admission::Operation;
use coracle_api::{
    decode::Decoded,
    meta,
    resource::Gvk,
    selector::LabelSelector,
    status::{Reason, Status},
};
use coracle_registry::{
    object_meta::match_namespace_of_request,
    part::Part,
    resource::Resource,
    store::{Current, WriteOptions, cache_status, delete::DeleteOptions, update::UpdateTarget},
    watch_cache::KeyScope,
};
use serde_json::{Value, json};

use super::{parse, success};
use crate::{endpoints::Call, reply::Reply};
use budget::Guard;

/// Times a pod that changes under an eviction is looked at again, as upstream.
const TRIES: usize = 20;

/// Evicts the pod.
pub(super) async fn create(call: &Call<'_>) -> Result<Reply, Status> {
    let decoded = decode(call)?;
    let mut eviction = decoded.object;
    let dry_run = delete_options(call, &eviction)?.dry_run;
    let request = call.admission_request(Operation::Create, WriteOptions { dry_run });
    let told = call.server.admit(&request, &mut eviction, None).await?;
    let reply = evict(call, delete_options(call, &eviction)?).await?;
    Ok(reply.with_warnings([decoded.warnings, told].concat()))
}

async fn evict(call: &Call<'_>, options: DeleteOptions) -> Result<Reply, Status> {
    let mut tried = 1;
    loop {
        let pod = pod(call).await?;
        if !budget::is_free(&pod) {
            return evict_guarded(call, &pod, options).await;
        }
        // One that is pending may become ready meanwhile: then it is guarded after all.
        let is_over = budget::is_over(&pod);
        let exact = if is_over {
            options.clone()
        } else {
            pinned(&options, &pod)
        };
        match disrupt(call, exact).await {
            Err(status)
                if status.reason == Reason::Conflict
                    && options.resource_version.is_none()
                    && tried < TRIES =>
            {
                tried += 1;
            }
            other => return other,
        }
    }
}

/// Evicts a pod that a budget may guard.
async fn evict_guarded(
    call: &Call<'_>,
    pod: &Value,
    options: DeleteOptions,
) -> Result<Reply, Status> {
    let Some(budgets) = call
        .server
        .registry
        .get("policy", "v1", "poddisruptionbudgets")
    else {
        return disrupt(call, options).await;
    };
    let guarding = guarding(call, budgets, pod).await?;
    let name = match guarding.as_slice() {
        [] => return disrupt(call, options).await,
        [one] => meta::name(one),
        _ => return Err(budget::too_many()),
    };
    if budget::guard(&guarding[0], pod) == Guard::Unhealthy {
        // Not to be taken for unhealthy any more when it has changed since.
        let is_free_to_retry = options.resource_version.is_none();
        return match disrupt(call, pinned(&options, pod)).await {
            Err(status) if status.reason == Reason::Conflict && is_free_to_retry => {
                Err(budget::in_process(name))
            }
            other => other,
        };
    }
    let write = WriteOptions {
        dry_run: options.dry_run,
    };
    let target = UpdateTarget {
        options: write,
        ..UpdateTarget::own(&call.info.namespace, name, Part::Status)
    };
    call.server
        .store
        .update(budgets, &target, |now| budget::charge(now, &call.info.name))
        .await?;
    disrupt(call, options).await
}

/// The budgets that select the pod.
async fn guarding(
    call: &Call<'_>,
    budgets: &Arc<Resource>,
    pod: &Value,
) -> Result<Vec<Value>, Status> {
    if meta::labels(pod).is_none_or(serde_json::Map::is_empty) {
        return Ok(Vec::new());
    }
    call.server
        .store
        .cache
        .catch_up()
        .await
        .map_err(cache_status)?;
    let mut all = budgets.objects(KeyScope::Namespace(call.info.namespace.to_string()));
    all.retain(|budget| {
        LabelSelector::from_object(&budget["spec"]["selector"])
            .is_ok_and(|selector| selector.matches_object(pod))
    });
    Ok(all)
}

/// Tells in the pod's status why it goes, and deletes it.
async fn disrupt(call: &Call<'_>, mut options: DeleteOptions) -> Result<Reply, Status> {
    if !options.dry_run {
        let target = UpdateTarget::own(&call.info.namespace, &call.info.name, Part::Status);
        let written = call
            .server
            .store
            .update(call.resource, &target, |pod| Ok(marked(pod, &options)))
            .await?;
        if options.resource_version.is_some() {
            options.resource_version =
                Some(meta::resource_version(&parse(&written.json)?).to_owned());
        }
    }
    delete(call, &options).await
}

async fn delete(call: &Call<'_>, options: &DeleteOptions) -> Result<Reply, Status> {
    call.server
        .store
        .delete(
            call.resource,
            &call.info.namespace,
            &call.info.name,
            options,
        )
        .await?;
    Ok(success())
}

async fn pod(call: &Call<'_>) -> Result<Value, Status> {
    let key = call.resource.key(&call.info.namespace, &call.info.name);
    let found = call.server.store.fresh(&key).await?;
    let Current { object, .. } =
        found.ok_or_else(|| Status::not_found(&call.resource.group_resource, &call.info.name))?;
    Ok(object)
}

/// The same, for this state of the pod alone. A precondition of the client stands.
fn pinned(options: &DeleteOptions, pod: &Value) -> DeleteOptions {
    let mut pinned = options.clone();
    pinned
        .resource_version
        .get_or_insert_with(|| meta::resource_version(pod).to_owned());
    pinned
}

/// The pod with the reason of its end, under the preconditions of the deletion.
fn marked(pod: &Value, options: &DeleteOptions) -> Value {
    let mut marked = pod.clone();
    if let Some(uid) = &options.uid {
        meta::set_text(&mut marked, "uid", uid.as_str());
    }
    match &options.resource_version {
        Some(version) => meta::set_text(&mut marked, "resourceVersion", version.as_str()),
        None => drop(meta::remove(&mut marked, &["metadata", "resourceVersion"])),
    }
    let present = meta::get_array(pod, &["status", "conditions"]);
    let is_target = |condition: &&Value| condition["type"] == "DisruptionTarget";
    let others = present.iter().filter(|condition| !is_target(condition));
    // Who is evicted already is so since then.
    let since = present
        .iter()
        .find(is_target)
        .filter(|condition| condition["status"] == "True")
        .map(|condition| condition["lastTransitionTime"].clone());
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "observedGeneration": meta::generation(pod),
        "lastTransitionTime": since.unwrap_or_else(|| meta::now().into()),
    });
    marked["status"]["conditions"] = others.cloned().chain([condition]).collect();
    marked
}

fn decode(call: &Call<'_>) -> Result<Decoded, Status> {
    let mut eviction = call.decode(&Gvk::new("policy", "v1", "Eviction"))?;
    match_namespace_of_request(&call.info.namespace, &mut eviction.object)?;
    if meta::name(&eviction.object) != call.info.name {
        return Err(Status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    Ok(eviction)
}

/// The deletion that the Eviction asks for.
fn delete_options(call: &Call<'_>, eviction: &Value) -> Result<DeleteOptions, Status> {
    let options = call.write_options()?;
    let asked = eviction.get("deleteOptions").unwrap_or(&Value::Null);
    let precondition = |field: &str| {
        meta::get(asked, &["preconditions", field])?
            .as_str()
            .map(str::to_owned)
    };
    Ok(DeleteOptions {
        grace_secs: asked.get("gracePeriodSeconds").and_then(Value::as_i64),
        uid: precondition("uid"),
        resource_version: precondition("resourceVersion"),
        propagation: None,
        dry_run: options.dry_run || !meta::get_array(asked, &["dryRun"]).is_empty(),
    })
}
