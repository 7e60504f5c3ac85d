//! Takes back the condition `DisruptionTarget` of pods that were to go and did not: an eviction may
//! fail after it has said why the pod goes.
//!
//! Source: `syncStalePodDisruption` in `pkg/controller/disruption/disruption.go` at v1.37.

use std::{sync::Arc, time::Duration};

use coracle_api::meta;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    builder::{Builder, Queue},
    cache::{Cache, Change, Key},
    context::Context,
    controller::{CallContext, Outcome, Reconciler, ignore_missing},
    pod::Pod,
    pod_state::{self, DISRUPTION_TARGET},
};

/// A pod that has not been seen going for so long does not go.
const TIMEOUT: Duration = Duration::from_secs(120);
/// A node that ends a pod may take any time for it.
const BY_NODE: &str = "TerminationByKubelet";

/// How long the condition of a pod holds: zero if no longer, `None` if there is nothing to take
/// back.
pub(super) fn time_left(pod: &Pod, now: Timestamp) -> Option<Duration> {
    if !pod_state::is_active(pod) {
        return None;
    }
    let condition = pod_state::condition(pod, DISRUPTION_TARGET)
        .filter(|condition| condition.status == "True" && condition.reason() != Some(BY_NODE))?;
    let since = condition.last_transition_time.as_ref()?.0;
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    Some(TIMEOUT.saturating_sub(waited))
}

/// Takes conditions back whose time is over.
struct Stale {
    client: Client,
    pods: Arc<Cache<Pod>>,
}

/// Says what it reads and what wakes it: pods that are said to be disrupted.
pub(super) fn setup(controller: &mut Builder<'_>, context: &Context) {
    let queue: Arc<Queue> = context.queue("stale_pod_disruption");
    let this = Arc::new(Stale {
        client: context.client.clone(),
        pods: controller.reads(),
    });
    controller.on_change(&queue, |queue, change: &Change<'_, Pod>, _| {
        if time_left(change.latest(), Timestamp::now()).is_some() {
            queue.add(Key::of(change.latest().as_ref()));
        }
    });
    controller.also("stale-pod-disruption", queue, this);
}

impl Reconciler for Stale {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(pod) = self.pods.get(&key) else {
            return Ok(None);
        };
        let now = Timestamp::now();
        match time_left(&pod, now) {
            Some(Duration::ZERO) => {}
            later => return Ok(later),
        }
        let condition = json!({"type": DISRUPTION_TARGET, "status": "False", "reason": null, "message": null,
            "lastTransitionTime": meta::time(now)});
        let patch =
            json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let patched = api
            .patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(patch))
            .await;
        ignore_missing(patched).during("take the disruption of a Pod back")?;
        Ok(None)
    }
}
