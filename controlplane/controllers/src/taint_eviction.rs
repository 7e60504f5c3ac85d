//! Evicts pods from nodes with a NoExecute taint, each when its toleration of the taint ends.
//!
//! A pod that does not mention the two taints of a node that is down gets the configured time, and
//! so does one with the 300 s that admission wrote into it, so that one setting rules both. A
//! toleration's time runs while the pod is under the taint: from the taint's `timeAdded` or the
//! pod's binding, whichever was later, so that it survives a restart of this controller; where
//! neither is told (`kubectl taint` writes no `timeAdded`), from when both were first seen
//! together.
//!
//! Of several tolerations that match a taint the first in the pod's list counts, however long
//! another one is; a pod stays only as long as it tolerates every taint.
//!
//! Source: `pkg/controller/tainteviction/taint_eviction.go` at v1.37.

use std::{collections::HashMap, sync::Arc, time::Duration};

use coracle_api::scheduling::tolerates;
use k8s_openapi::{
    api::core::v1::{Node, Taint, Toleration},
    jiff::Timestamp,
};
use kube::{Client, api::DeleteParams};
use parking_lot::Mutex;
use serde_json::json;

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Key},
    context::Context,
    controller::{Outcome, ReconcileError, Reconciler},
    event_recorder::component::ComponentRecorder,
    node_lifecycle::plan::{NO_EXECUTE, NOT_READY, UNREACHABLE},
    pod::Pod,
    pod_state,
    writes::Write,
};

/// Pods worked on at once.
const WORKERS: usize = 8;
const COMPONENT: &str = "taint-eviction-controller";
/// What admission writes into pods that say nothing about nodes that are down.
const ADMITTED_SECONDS: i64 = 300;

/// The controller; its state is in caches and `exposed`.
pub(crate) struct TaintEvictionController {
    client: Client,
    recorder: ComponentRecorder,
    default_seconds: Duration,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    pods_by_node: By<Pod>,
    /// Since when each endangered pod is under which taints.
    exposed: Mutex<HashMap<Key, Exposure>>,
}

impl TaintEvictionController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller =
            Builder::managed_by(manager, "taint-eviction-controller", "noexec_taint_pod")
                .workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.of(COMPONENT),
            default_seconds: context.config.eviction_timeout,
            nodes: controller.reads(),
            pods: controller.reads(),
            pods_by_node: controller.index(pod_state::by_node()),
            exposed: Mutex::default(),
        });
        controller.on_change(&this, Self::node_changed);
        controller.on_change(&this, Self::pod_changed);
        controller.complete(this);
    }

    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        let pod = change.latest();
        if matches!(change, Change::Deleted(_)) {
            self.exposed.lock().remove(&Key::of(pod.as_ref()));
        } else if self.is_endangered(pod) {
            queue.add(Key::of(pod.as_ref()));
        }
    }

    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        let before = match change {
            Change::Updated { old, .. } => no_execute(old),
            _ => Vec::new(),
        };
        let node = change.latest();
        // Taints that went are told as well: what a pod has waited under them counts no more.
        if matches!(change, Change::Deleted(_)) || no_execute(node) == before {
            return;
        }
        let name = node.metadata.name.as_deref().unwrap_or_default();
        for pod in self.pods_by_node.get(name) {
            queue.add(Key::of(pod.as_ref()));
        }
    }

    fn is_endangered(&self, pod: &Pod) -> bool {
        let name = pod_state::node_name(pod);
        !name.is_empty()
            && self
                .nodes
                .get(&Key::new("", name))
                .is_some_and(|node| !no_execute(&node).is_empty())
    }
}

impl Reconciler for TaintEvictionController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let pod = self.pods.get(&key).filter(|pod| pod_state::is_active(pod));
        let Some((pod, node)) = pod.and_then(|pod| {
            let node = self.nodes.get(&Key::new("", pod_state::node_name(&pod)))?;
            Some((pod, node))
        }) else {
            self.exposed.lock().remove(&key);
            return Ok(None);
        };
        let tolerations = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.tolerations.clone())
            .unwrap_or_default();
        let now = Timestamp::now();
        let exposure = self.expose(&key, &pod, &no_execute(&node), now);
        match time_left(&exposure, &tolerations, self.default_seconds, now) {
            None => return Ok(None),
            Some(left) if !left.is_zero() => return Ok(Some(left)),
            Some(_) => {}
        }
        // Not with every try: a server that does not take the deletion is asked often.
        if self
            .exposed
            .lock()
            .get_mut(&key)
            .is_some_and(Exposure::tell)
        {
            let message = "Marking for deletion Pod ".to_owned() + &key.to_string();
            self.recorder
                .normal(pod.as_ref(), "TaintManagerEviction", message);
        }
        self.mark_disrupted(&pod).await?;
        let evict = Write::to(&self.client, &*pod, "evict Pod");
        evict.delete(DeleteParams::default()).await?;
        Ok(None)
    }
}

impl TaintEvictionController {
    /// Brings up to date since when the pod is under its node's taints.
    fn expose(&self, key: &Key, pod: &Pod, taints: &[Taint], now: Timestamp) -> Exposure {
        let mut all = self.exposed.lock();
        let exposure = Exposure::next(all.remove(key), pod, taints, now);
        if !exposure.taints.is_empty() {
            all.insert(key.clone(), exposure.clone());
        }
        exposure
    }

    /// Tells others why the pod goes.
    async fn mark_disrupted(&self, pod: &Pod) -> Result<(), ReconcileError> {
        if pod_state::condition(pod, pod_state::DISRUPTION_TARGET)
            .is_some_and(|condition| condition.status == "True")
        {
            return Ok(());
        }
        let message = "Taint manager: deleting due to NoExecute taint";
        let conditions = pod_state::with_disruption(pod, "DeletionByTaintManager", message);
        let mark = Write::to(&self.client, pod, "mark Pod as disrupted").if_unchanged();
        let marked = mark.patch_status(json!({"status": {"conditions": conditions}}));
        marked.await.map(drop)
    }
}

fn no_execute(node: &Node) -> Vec<Taint> {
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_ref())
        .into_iter()
        .flatten();
    taints
        .filter(|taint| taint.effect == NO_EXECUTE)
        .cloned()
        .collect()
}

/// The NoExecute taints that a pod is under, each with the time since when.
#[derive(Debug, Clone, Default)]
struct Exposure {
    uid: Option<String>,
    taints: Vec<(Taint, Timestamp)>,
    /// Whether it has been said that the pod goes.
    told: bool,
}

impl Exposure {
    /// What follows from `before` now that the pod's node has `taints`.
    fn next(before: Option<Self>, pod: &Pod, taints: &[Taint], now: Timestamp) -> Self {
        let before = before.filter(|before| before.uid == pod.metadata.uid);
        let known = |taint: &Taint| {
            let former = before.iter().flat_map(|before| &before.taints);
            former
                .filter(|(former, _)| is_same(former, taint))
                .map(|(_, since)| *since)
                .min()
        };
        let since = |taint: &Taint| known(taint).unwrap_or_else(|| together_since(pod, taint, now));
        let taints = taints
            .iter()
            .map(|taint| (taint.clone(), since(taint)))
            .collect();
        Self {
            uid: pod.metadata.uid.clone(),
            taints,
            told: before.is_some_and(|before| before.told),
        }
    }

    /// Whether it is to be said that the pod goes: once, for as long as it is under any taint.
    fn tell(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }
}

/// Whether the time under `former` counts for `taint`: a node that does not answer and one that is
/// not ready are down both.
fn is_same(former: &Taint, taint: &Taint) -> bool {
    former == taint || is_down(former) && is_down(taint)
}

fn is_down(taint: &Taint) -> bool {
    taint.key == NOT_READY || taint.key == UNREACHABLE
}

/// Since when a pod is under a taint, as the objects tell; no time is in the future, whatever
/// clocks say.
fn together_since(pod: &Pod, taint: &Taint, now: Timestamp) -> Timestamp {
    let bound =
        pod_state::condition(pod, "PodScheduled").filter(|condition| condition.status == "True");
    let bound = bound
        .and_then(|condition| condition.last_transition_time.as_ref())
        .map(|time| time.0);
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    match (&taint.time_added, bound.or(created)) {
        (Some(added), Some(bound)) => added.0.max(bound).min(now),
        (Some(added), None) => added.0.min(now),
        // Since when the taint is there nobody says.
        (None, _) => now,
    }
}

/// How long a pod may stay where it is: `None` for ever, zero if it has to go now.
fn time_left(
    exposure: &Exposure,
    tolerations: &[Toleration],
    default: Duration,
    now: Timestamp,
) -> Option<Duration> {
    let mut left: Option<Duration> = None;
    for (taint, since) in &exposure.taints {
        let node_down = is_down(taint);
        // The first that matches counts, as `GetMatchingTolerations` of upstream has it.
        let first = tolerations
            .iter()
            .find(|toleration| tolerates(toleration, taint));
        let allowed = match first.map(|toleration| toleration.toleration_seconds) {
            None if node_down => default,
            None => Duration::ZERO,
            // Tolerated without an end: this taint never evicts the pod.
            Some(None) => continue,
            Some(Some(ADMITTED_SECONDS)) if node_down => default,
            // Less than nothing is nothing.
            Some(Some(seconds)) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        };
        let until = since.checked_add(allowed).ok();
        let rest = until
            .and_then(|until| Duration::try_from(until.duration_since(now)).ok())
            .unwrap_or(Duration::ZERO);
        left = Some(left.map_or(rest, |sooner| sooner.min(rest)));
    }
    left
}

#[cfg(test)]
mod tests;
