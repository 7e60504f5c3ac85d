//! Evicts pods from nodes with a NoExecute taint, each when its toleration of the taint ends.
//!
//! A pod that does not mention the two taints of a node that is down gets the configured time, and so does one with the
//! 300 s that admission wrote into it, so that one setting rules both. Deadlines are counted from the taint's `timeAdded`, so
//! they survive a restart of this controller.
//!
//! Source: `pkg/controller/tainteviction/taint_eviction.go` at v1.37.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Change, Key};
use crate::context::{Context, is_not_found};
use crate::controller::{self, CallContext, Outcome};
use crate::event_recorder::{EventRecorder, EventType};
use crate::informer::Informer;
use crate::node_lifecycle::plan::{NO_EXECUTE, NOT_READY, UNREACHABLE};
use crate::pod::Pod;
use crate::pod_state;
use crate::work_queue::WorkQueue;

/// Pods worked on at once.
const WORKERS: usize = 8;
const COMPONENT: &str = "taint-eviction-controller";
/// What admission writes into pods that say nothing about nodes that are down.
const ADMITTED_SECONDS: i64 = 300;

/// The controller; its state is in caches and its queue.
pub(crate) struct TaintEvictionController {
    client: Client,
    recorder: EventRecorder,
    default_seconds: Duration,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    queue: Arc<WorkQueue<Key>>,
}

impl TaintEvictionController {
    /// Registers with the informers; nothing happens before [`TaintEvictionController::run`].
    pub(crate) fn new(context: &Context, nodes: &mut Informer<Node>, pods: &mut Informer<Pod>) -> Arc<Self> {
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.clone(),
            default_seconds: context.config.eviction_timeout,
            nodes: nodes.cache(),
            pods: pods.cache(),
            queue: context.queue("noexec_taint_pod"),
        });
        let controller = this.clone();
        nodes.on_change(move |change| controller.node_changed(change));
        let controller = this.clone();
        pods.on_change(move |change| {
            let pod = change.latest();
            if !matches!(change, Change::Deleted(_)) && controller.is_endangered(pod) {
                controller.queue.add(Key::of(pod.as_ref()));
            }
        });
        this
    }

    /// Reconciles until `shutdown`.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let queue = self.queue.clone();
        controller::run("taint-eviction", queue, WORKERS, shutdown, move |key| {
            let this = self.clone();
            async move { this.reconcile(key).await }
        })
        .await;
    }

    fn node_changed(&self, change: &Change<'_, Node>) {
        let before = match change {
            Change::Updated { old, .. } => no_execute(old),
            _ => Vec::new(),
        };
        let node = change.latest();
        // Taints that went need nothing: a pending deadline looks at the node again when it comes.
        if matches!(change, Change::Deleted(_)) || no_execute(node) == before {
            return;
        }
        let name = node.metadata.name.as_deref().unwrap_or_default();
        for pod in self.pods.filter(|pod| pod_state::node_name(pod) == name) {
            self.queue.add(Key::of(pod.as_ref()));
        }
    }

    fn is_endangered(&self, pod: &Pod) -> bool {
        let name = pod_state::node_name(pod);
        !name.is_empty() && self.nodes.get(&Key::new("", name)).is_some_and(|node| !no_execute(&node).is_empty())
    }

    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(pod) = self.pods.get(&key) else { return Ok(None) };
        if pod_state::is_terminating(&pod) || pod_state::is_finished(&pod) {
            return Ok(None);
        }
        let Some(node) = self.nodes.get(&Key::new("", pod_state::node_name(&pod))) else { return Ok(None) };
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.clone()).unwrap_or_default();
        match time_left(&no_execute(&node), &tolerations, self.default_seconds, Timestamp::now()) {
            None => return Ok(None),
            Some(left) if !left.is_zero() => return Ok(Some(left)),
            Some(_) => {}
        }
        let message = "Marking for deletion Pod ".to_owned() + &key.to_string();
        self.recorder.record(COMPONENT, pod.as_ref(), EventType::Normal, "TaintManagerEviction", message);
        self.mark_disrupted(&key, &pod).await?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let same = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        match api.delete(&key.name, &DeleteParams::default().preconditions(same)).await {
            Err(error) if !is_not_found(&error) => Err(error).during("evict Pod"),
            _ => Ok(None),
        }
    }

    /// Tells others why the pod goes.
    async fn mark_disrupted(&self, key: &Key, pod: &Pod) -> Result<(), controller::ReconcileError> {
        if pod_state::condition(pod, pod_state::DISRUPTION_TARGET).is_some_and(|condition| condition.status == "True") {
            return Ok(());
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.patch_status(&key.name, &Default::default(), &disruption_patch(pod)).await {
            Err(error) if !is_not_found(&error) => Err(error).during("mark Pod as disrupted"),
            _ => Ok(()),
        }
    }
}

fn disruption_patch(pod: &Pod) -> kube::api::Patch<serde_json::Value> {
    let message = "Taint manager: deleting due to NoExecute taint";
    let conditions = pod_state::with_disruption(pod, "DeletionByTaintManager", message);
    let meta = json!({"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version});
    kube::api::Patch::Merge(json!({"metadata": meta, "status": {"conditions": conditions}}))
}

fn no_execute(node: &Node) -> Vec<Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    taints.filter(|taint| taint.effect == NO_EXECUTE).cloned().collect()
}

/// How long a pod may stay under `taints`: `None` for ever, zero if it has to go now.
fn time_left(taints: &[Taint], tolerations: &[Toleration], default: Duration, now: Timestamp) -> Option<Duration> {
    let mut left: Option<Duration> = None;
    for taint in taints {
        let node_down = taint.key == NOT_READY || taint.key == UNREACHABLE;
        let matching: Vec<&Toleration> = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).collect();
        let seconds = matching.iter().filter_map(|toleration| toleration.toleration_seconds).min();
        let allowed = match seconds {
            None if matching.is_empty() && node_down => default,
            None if matching.is_empty() => Duration::ZERO,
            // Tolerated without an end: this taint never evicts the pod.
            None => continue,
            Some(ADMITTED_SECONDS) if node_down => default,
            Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        };
        let since = taint.time_added.as_ref().map_or(now, |time| time.0);
        let until = since.checked_add(allowed).ok();
        let rest = until.and_then(|until| Duration::try_from(until.duration_since(now)).ok()).unwrap_or(Duration::ZERO);
        left = Some(left.map_or(rest, |sooner| sooner.min(rest)));
    }
    left
}

/// Whether a toleration matches a taint, as the scheduler sees it too.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let says = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    if says(&toleration.effect).is_some_and(|effect| effect != taint.effect) {
        return false;
    }
    if says(&toleration.key).is_some_and(|key| key != taint.key) {
        return false;
    }
    match says(&toleration.operator).as_deref() {
        None | Some("Equal") => {
            says(&toleration.key).is_some()
                && toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        Some("Exists") => true,
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn taint(key: &str, seconds_ago: i64) -> Taint {
        let since = Timestamp::from_second(1_000_000 - seconds_ago).unwrap();
        Taint { key: key.into(), effect: NO_EXECUTE.into(), time_added: Some(Time(since)), value: None }
    }

    fn toleration(key: &str, seconds: Option<i64>) -> Toleration {
        Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(NO_EXECUTE.into()),
            toleration_seconds: seconds,
            value: None,
        }
    }

    #[test]
    fn pod_stays_as_long_as_it_tolerates_the_taint() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let default = Duration::from_secs(120);
        let anything = Toleration { operator: Some("Exists".into()), ..Toleration::default() };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let admitted = vec![toleration(UNREACHABLE, Some(300))];
        type Case = (&'static str, Vec<Taint>, Vec<Toleration>, Option<Duration>);
        let table: [Case; 9] = [
            ("as admitted", vec![taint(UNREACHABLE, 100)], admitted, seconds(20)),
            ("no taint", vec![], vec![], None),
            ("by default", vec![taint(UNREACHABLE, 100)], vec![], seconds(20)),
            ("by default, over", vec![taint(NOT_READY, 301)], vec![], seconds(0)),
            ("unknown taint", vec![taint("maintenance", 0)], vec![], seconds(0)),
            ("own seconds", vec![taint(UNREACHABLE, 5)], vec![toleration(UNREACHABLE, Some(10))], seconds(5)),
            ("for ever", vec![taint(UNREACHABLE, 5000)], vec![toleration(UNREACHABLE, None)], None),
            ("everything", vec![taint("maintenance", 5)], vec![anything], None),
            (
                "the shortest counts",
                vec![taint(UNREACHABLE, 0), taint("maintenance", 0)],
                vec![toleration(UNREACHABLE, Some(30)), toleration("maintenance", Some(20))],
                seconds(20),
            ),
        ];
        for (why, taints, tolerations, expected) in table {
            assert_eq!(time_left(&taints, &tolerations, default, now), expected, "{why}");
        }
    }
}
