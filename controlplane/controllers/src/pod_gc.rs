//! Removes pods that nobody will ever finish: on nodes that are gone, unscheduled and terminating, finished too long.
//!
//! Looks after each change that can make such a pod, and once more after a quarantine for nodes that vanished.
//!
//! Source: `pkg/controller/podgc/gc_controller.go` at v1.37.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Change, Key};
use crate::context::{Context, is_not_found};
use crate::controller::{self, CallContext, Outcome, ReconcileError};
use crate::informer::Informer;
use crate::pod::Pod;
use crate::pod_state;
use crate::work_queue::WorkQueue;

/// How long a node may be missing before its pods count as orphans.
const QUARANTINE: Duration = Duration::from_secs(40);
/// How often finished pods are counted.
const COUNT_PERIOD: Duration = Duration::from_secs(20);
const WORKERS: usize = 4;

/// The controller; its state is in caches and its queue.
pub(crate) struct PodGcController {
    client: Client,
    threshold: usize,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    queue: Arc<WorkQueue<Key>>,
}

impl PodGcController {
    /// Registers with the informers; nothing happens before [`PodGcController::run`].
    pub(crate) fn new(context: &Context, nodes: &mut Informer<Node>, pods: &mut Informer<Pod>) -> Arc<Self> {
        let this = Arc::new(Self {
            client: context.client.clone(),
            threshold: context.config.terminated_pod_threshold,
            nodes: nodes.cache(),
            pods: pods.cache(),
            queue: context.queue("orphaned_pods_nodes"),
        });
        let controller = this.clone();
        pods.on_change(move |change| {
            let pod = change.latest();
            if !matches!(change, Change::Deleted(_)) && controller.suspicion(pod).is_some() {
                controller.queue.add(Key::of(pod.as_ref()));
            }
        });
        let controller = this.clone();
        nodes.on_change(move |change| {
            if matches!(change, Change::Deleted(_)) {
                let name = change.latest().metadata.name.clone().unwrap_or_default();
                for pod in controller.pods.filter(|pod| pod_state::node_name(pod) == name) {
                    controller.queue.add_after(Key::of(pod.as_ref()), QUARANTINE);
                }
            }
        });
        this
    }

    /// Reconciles until `shutdown`.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let queue = self.queue.clone();
        let this = self.clone();
        let work = controller::run("pod-gc", queue, WORKERS, shutdown.clone(), move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
        let count = async {
            let mut ticks = tokio::time::interval(COUNT_PERIOD);
            loop {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    _ = ticks.tick() => surplus(self.pods.filter(pod_state::is_finished), self.threshold)
                        .iter()
                        .for_each(|pod| self.queue.add(Key::of(pod.as_ref()))),
                }
            }
        };
        tokio::join!(work, count);
    }

    fn suspicion(&self, pod: &Pod) -> Option<Suspicion> {
        let node = pod_state::node_name(pod);
        let exists = !node.is_empty() && self.nodes.get(&Key::new("", node)).is_some();
        suspicion(pod, exists)
    }

    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(pod) = self.pods.get(&key) else { return Ok(None) };
        match self.suspicion(&pod) {
            Some(Suspicion::UnscheduledTerminating) => self.remove(&key, &pod, None).await,
            Some(Suspicion::NodeGone) => {
                // A binding may be seen before its node: only the server's word makes an orphan.
                let api: Api<Node> = Api::all(self.client.clone());
                if api.get_metadata_opt(pod_state::node_name(&pod)).await.during("get Node")?.is_some() {
                    return Ok(None);
                }
                if pod_state::is_terminating(&pod) || is_older_than(&pod, QUARANTINE, Timestamp::now()) {
                    self.remove(&key, &pod, Some("PodGC: node no longer exists")).await
                } else {
                    Ok(Some(QUARANTINE))
                }
            }
            None if pod_state::is_finished(&pod) => {
                let surplus = surplus(self.pods.filter(pod_state::is_finished), self.threshold);
                if surplus.iter().any(|other| other.metadata.uid == pod.metadata.uid) {
                    return self.remove(&key, &pod, None).await;
                }
                Ok(None)
            }
            None => Ok(None),
        }
    }

    async fn remove(&self, key: &Key, pod: &Pod, disruption: Option<&str>) -> Outcome {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        if !pod_state::is_finished(pod)
            && let Some(why) = disruption
        {
            self.mark_failed(&api, key, pod, why).await?;
        }
        let same = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        match api.delete(&key.name, &DeleteParams::default().grace_period(0).preconditions(same)).await {
            Err(error) if !is_not_found(&error) => Err(error).during("delete orphaned Pod"),
            _ => Ok(None),
        }
    }

    async fn mark_failed(&self, api: &Api<Pod>, key: &Key, pod: &Pod, why: &str) -> Result<(), ReconcileError> {
        let conditions = pod_state::with_disruption(pod, "DeletionByPodGC", why);
        let patch =
            json!({"metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Failed", "conditions": conditions}});
        match api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if !is_not_found(&error) => Err(error).during("mark orphaned Pod as failed"),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    /// Bound to a node that does not exist.
    NodeGone,
    /// Being deleted, and no node will ever confirm it.
    UnscheduledTerminating,
}

fn suspicion(pod: &Pod, node_exists: bool) -> Option<Suspicion> {
    if pod_state::node_name(pod).is_empty() {
        return pod_state::is_terminating(pod).then_some(Suspicion::UnscheduledTerminating);
    }
    (!node_exists).then_some(Suspicion::NodeGone)
}

fn is_older_than(pod: &Pod, age: Duration, now: Timestamp) -> bool {
    let created = pod.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    Duration::try_from(now.duration_since(created)).is_ok_and(|old| old >= age)
}

/// The oldest finished pods beyond `threshold`.
fn surplus(mut finished: Vec<Arc<Pod>>, threshold: usize) -> Vec<Arc<Pod>> {
    if finished.len() <= threshold || threshold == 0 {
        return Vec::new();
    }
    finished.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    finished.truncate(finished.len() - threshold);
    finished
}

#[cfg(test)]
mod tests {
    use crate::pod::PodSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::api::ObjectMeta;

    use super::*;

    fn pod(node: &str, terminating: bool, created: i64) -> Arc<Pod> {
        let at = Timestamp::from_second(created).unwrap();
        Arc::new(Pod {
            metadata: ObjectMeta {
                creation_timestamp: Some(Time(at)),
                deletion_timestamp: terminating.then_some(Time(at)),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec { node_name: (!node.is_empty()).then(|| node.into()), ..PodSpec::default() }),
            status: None,
        })
    }

    #[test]
    fn only_pods_that_nobody_ends_are_suspect() {
        let table = [
            ("", false, false, None),
            ("", true, false, Some(Suspicion::UnscheduledTerminating)),
            ("n", true, true, None),
            ("n", false, true, None),
            ("n", false, false, Some(Suspicion::NodeGone)),
            ("n", true, false, Some(Suspicion::NodeGone)),
        ];
        for (node, terminating, exists, expected) in table {
            assert_eq!(suspicion(&pod(node, terminating, 0), exists), expected, "{node} {terminating} {exists}");
        }
    }

    #[test]
    fn oldest_finished_pods_beyond_the_threshold_go() {
        let finished = vec![pod("n", false, 30), pod("n", false, 10), pod("n", false, 20)];
        let gone: Vec<i64> = surplus(finished.clone(), 2)
            .iter()
            .map(|pod| pod.metadata.creation_timestamp.as_ref().unwrap().0.as_second())
            .collect();
        assert_eq!(gone, [10]);
        assert!(surplus(finished, 3).is_empty());
    }
}
