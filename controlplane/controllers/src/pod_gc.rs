//! Removes pods that nobody will ever finish: on nodes that are gone, unscheduled and terminating,
//! terminating on nodes that somebody says are out of service, finished too long.
//!
//! Looks after each change that can make such a pod. A node that vanished may come back, or may not
//! have been seen yet: its pods are left alone until it has been missing for a while.
//!
//! Source: `pkg/controller/podgc/gc_controller.go` at v1.37.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::DeleteParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Index, Key},
    context::Context,
    controller::{CallContext, Outcome, Reconciler},
    node_state,
    pod::Pod,
    pod_state,
    writes::Write,
};

/// How often finished pods are counted.
const COUNT_PERIOD: Duration = Duration::from_secs(20);
const WORKERS: usize = 4;
/// The only key of the index of finished pods.
const FINISHED: &str = "";

/// The controller; its state is in caches and `missing`.
pub(crate) struct PodGcController {
    client: Client,
    threshold: usize,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    by_node: By<Pod>,
    finished: By<Pod>,
    quarantine: Duration,
    missing: Mutex<Missing>,
}

impl PodGcController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let name = "pod-garbage-collector-controller";
        let mut controller =
            Builder::managed_by(manager, name, "orphaned_pods_nodes").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            threshold: context.config.terminated_pod_threshold,
            nodes: controller.reads(),
            pods: controller.reads(),
            by_node: controller.index(pod_state::by_node()),
            finished: controller.index(by_finished()),
            quarantine: context.config.missing_node_quarantine,
            missing: Mutex::default(),
        });
        controller.on_change(&this, Self::pod_changed);
        controller.on_change(&this, Self::node_changed);
        controller.every(COUNT_PERIOD, &this, Self::look_around);
        controller.complete(this);
    }

    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        let pod = change.latest();
        if !matches!(change, Change::Deleted(_)) && self.suspicion(pod).is_some() {
            queue.add(Key::of(pod.as_ref()));
        }
    }

    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        let node = change.latest();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let is_gone = matches!(change, Change::Deleted(_));
        if !is_gone {
            self.missing.lock().forget(name);
        }
        if is_gone || is_out_of_service(node) {
            let mut pods = self.by_node.get(name);
            pods.retain(|pod| is_gone || pod_state::is_terminating(pod));
            pods.iter().for_each(|pod| queue.add(Key::of(pod.as_ref())));
        }
    }

    /// Finds what no event tells: too many finished pods, and missing nodes that no pod names any
    /// more.
    fn look_around(&self, queue: &Queue) {
        self.surplus()
            .iter()
            .for_each(|pod| queue.add(Key::of(pod.as_ref())));
        self.missing
            .lock()
            .keep(|node| self.by_node.count(node) > 0);
    }

    /// The oldest finished pods beyond the threshold. Mostly there is none, and then none is looked
    /// at.
    fn surplus(&self) -> Vec<Arc<Pod>> {
        if self.finished.count(FINISHED) <= self.threshold {
            return Vec::new();
        }
        surplus(self.finished.get(FINISHED), self.threshold)
    }

    fn suspicion(&self, pod: &Pod) -> Option<Suspicion> {
        let node = self.nodes.get(&Key::new("", pod_state::node_name(pod)));
        suspicion(pod, node.as_deref())
    }
}

impl Reconciler for PodGcController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(pod) = self.pods.get(&key) else {
            return Ok(None);
        };
        match self.suspicion(&pod) {
            Some(Suspicion::UnscheduledTerminating) => {
                self.remove(&pod, Removal::Unscheduled).await
            }
            Some(Suspicion::OutOfService) => self.remove(&pod, Removal::OutOfService).await,
            Some(Suspicion::NodeGone) => {
                let node = pod_state::node_name(&pod);
                let left = self
                    .missing
                    .lock()
                    .left(node, self.quarantine, Instant::now());
                if !left.is_zero() {
                    return Ok(Some(left));
                }
                // A binding may be seen before its node: only the server's word makes an orphan.
                let api: Api<Node> = Api::all(self.client.clone());
                if api
                    .get_metadata_opt(node)
                    .await
                    .during("get Node")?
                    .is_some()
                {
                    self.missing.lock().forget(node);
                    return Ok(None);
                }
                self.remove(&pod, Removal::Orphaned).await
            }
            None if pod_state::is_finished(&pod) => {
                if self
                    .surplus()
                    .iter()
                    .any(|other| other.metadata.uid == pod.metadata.uid)
                {
                    return self.remove(&pod, Removal::Finished).await;
                }
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

impl PodGcController {
    async fn remove(&self, pod: &Pod, why: Removal) -> Outcome {
        if let Some(status) = failed_status(pod, why) {
            // Whoever counts the pod, such as its Job, learns that it never succeeds; it may hold
            // the pod by a finalizer.
            let fail = Write::to(&self.client, pod, "mark Pod as failed");
            let failed = fail.patch_status(json!({"status": status}));
            if failed.await?.is_none() {
                return Ok(None);
            }
        }
        let delete = Write::to(&self.client, pod, "delete orphaned Pod");
        delete
            .delete(DeleteParams::default().grace_period(0))
            .await?;
        Ok(None)
    }
}

/// Nodes that pods name and that do not exist, and since when this controller knows.
#[derive(Debug, Default)]
struct Missing(HashMap<String, Instant>);

impl Missing {
    /// How long the node has to be missing yet before its pods are orphans.
    fn left(&mut self, node: &str, quarantine: Duration, now: Instant) -> Duration {
        let since = *self.0.entry(node.to_owned()).or_insert(now);
        quarantine.saturating_sub(now.duration_since(since))
    }

    /// The node is there.
    fn forget(&mut self, node: &str) {
        self.0.remove(node);
    }

    /// Forgets the nodes that nobody asks for any more.
    fn keep(&mut self, is_named: impl Fn(&str) -> bool) {
        self.0.retain(|node, _| is_named(node));
    }
}

/// Why a pod is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
    /// Its node is no more.
    Orphaned,
    /// It was deleted before it had a node.
    Unscheduled,
    /// It was deleted, and its node will never say that it has ended.
    OutOfService,
    /// It is one of too many that have ended.
    Finished,
}

/// The status of a pod that is removed before its end; `None` if it has ended.
fn failed_status(pod: &Pod, why: Removal) -> Option<Value> {
    if pod_state::is_finished(pod) {
        return None;
    }
    match why {
        Removal::Orphaned => {
            let conditions =
                pod_state::with_disruption(pod, "DeletionByPodGC", "PodGC: node no longer exists");
            Some(json!({"phase": "Failed", "conditions": conditions}))
        }
        Removal::Unscheduled | Removal::OutOfService => Some(json!({"phase": "Failed"})),
        Removal::Finished => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    /// Bound to a node that does not exist.
    NodeGone,
    /// Being deleted, and no node will ever confirm it.
    UnscheduledTerminating,
    /// Being deleted on a node of which somebody says that it is down.
    OutOfService,
}

/// The finished pods, under [`FINISHED`].
fn by_finished() -> Index<Pod> {
    Index::new("finished", |pod: &Pod, put| {
        if pod_state::is_finished(pod) {
            put(FINISHED);
        }
    })
}

fn suspicion(pod: &Pod, node: Option<&Node>) -> Option<Suspicion> {
    let is_terminating = pod_state::is_terminating(pod);
    match node {
        _ if pod_state::node_name(pod).is_empty() => {
            is_terminating.then_some(Suspicion::UnscheduledTerminating)
        }
        None => Some(Suspicion::NodeGone),
        Some(node) => {
            (is_terminating && is_out_of_service(node)).then_some(Suspicion::OutOfService)
        }
    }
}

/// Whether somebody says that nothing runs there any more, and the node does not say otherwise.
fn is_out_of_service(node: &Node) -> bool {
    !node_state::is_ready(node) && node_state::is_said_to_be_out_of_service(node)
}

/// The oldest finished pods beyond `threshold`; those that were evicted go first.
///
/// Source: `byEvictionAndCreationTimestamp`.
fn surplus(mut finished: Vec<Arc<Pod>>, threshold: usize) -> Vec<Arc<Pod>> {
    if finished.len() <= threshold || threshold == 0 {
        return Vec::new();
    }
    finished.sort_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (!pod_state::is_evicted(pod), created)
    });
    finished.truncate(finished.len() - threshold);
    finished
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use kube::api::ObjectMeta;

    use super::*;
    use crate::pod::PodSpec;

    fn pod(node: &str, terminating: bool, created: i64) -> Arc<Pod> {
        let at = Timestamp::from_second(created).unwrap();
        Arc::new(Pod {
            metadata: ObjectMeta {
                creation_timestamp: Some(Time(at)),
                deletion_timestamp: terminating.then_some(Time(at)),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                node_name: (!node.is_empty()).then(|| node.into()),
                ..PodSpec::default()
            }),
            status: None,
        })
    }

    /// A node with the taint, with or without a condition.
    fn node(taint: &str, ready: Option<&str>) -> Node {
        let conditions = ready.map(|status| json!([{"type": "Ready", "status": status}]));
        let object = json!({"metadata": {"name": "n"}, "status": {"conditions": conditions},
            "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn only_pods_that_nobody_ends_are_suspect() {
        let there = node("a", Some("True"));
        let table = [
            ("", false, None, None),
            ("", true, None, Some(Suspicion::UnscheduledTerminating)),
            ("n", true, Some(&there), None),
            ("n", false, Some(&there), None),
            ("n", false, None, Some(Suspicion::NodeGone)),
            ("n", true, None, Some(Suspicion::NodeGone)),
        ];
        for (name, terminating, node, expected) in table {
            assert_eq!(
                suspicion(&pod(name, terminating, 0), node),
                expected,
                "{name} {terminating} {}",
                node.is_some()
            );
        }
    }

    #[test]
    fn what_terminates_out_of_service_is_suspect() {
        let table = [
            (true, node_state::OUT_OF_SERVICE, Some("False"), true),
            (true, node_state::OUT_OF_SERVICE, Some("Unknown"), true),
            (true, node_state::OUT_OF_SERVICE, None, true),
            // It says itself that it is there.
            (true, node_state::OUT_OF_SERVICE, Some("True"), false),
            (true, "node.kubernetes.io/unreachable", Some("False"), false),
            (false, node_state::OUT_OF_SERVICE, Some("False"), false),
        ];
        for (terminating, taint, ready, expected) in table {
            let found = suspicion(&pod("n", terminating, 0), Some(&node(taint, ready)));
            let expected = expected.then_some(Suspicion::OutOfService);
            assert_eq!(found, expected, "{terminating} {taint} {ready:?}");
        }
        let failed = failed_status(&pod("n", true, 0), Removal::OutOfService);
        assert_eq!(failed, Some(json!({"phase": "Failed"})));
    }

    #[test]
    fn a_pod_that_never_had_a_node_has_failed_when_it_goes() {
        let waiting = pod("", true, 0);
        assert_eq!(
            failed_status(&waiting, Removal::Unscheduled),
            Some(json!({"phase": "Failed"}))
        );
        let orphan = failed_status(&pod("n", false, 0), Removal::Orphaned).unwrap();
        assert_eq!(
            (&orphan["phase"], &orphan["conditions"][0]["type"]),
            (&json!("Failed"), &json!("DisruptionTarget"))
        );
        let mut ended = Pod::clone(&waiting);
        ended.status = Some(crate::pod::PodStatus {
            phase: Some("Succeeded".into()),
            ..Default::default()
        });
        assert_eq!(failed_status(&ended, Removal::Unscheduled), None);
    }

    #[test]
    fn a_node_that_comes_back_begins_its_quarantine_anew() {
        let (mut missing, start, quarantine) =
            (Missing::default(), Instant::now(), Duration::from_secs(40));
        let at = |seconds| start + Duration::from_secs(seconds);
        let left =
            |missing: &mut Missing, seconds| missing.left("n", quarantine, at(seconds)).as_secs();
        assert_eq!([0, 30].map(|seconds| left(&mut missing, seconds)), [40, 10]);
        missing.forget("n");
        assert_eq!(
            [35, 45, 75].map(|seconds| left(&mut missing, seconds)),
            [40, 30, 0]
        );
        missing.keep(|_| false);
        assert_eq!(left(&mut missing, 80), 40);
    }

    #[test]
    fn oldest_finished_pods_beyond_the_threshold_go() {
        let finished = vec![
            pod("n", false, 30),
            pod("n", false, 10),
            pod("n", false, 20),
        ];
        let gone: Vec<i64> = surplus(finished.clone(), 2)
            .iter()
            .map(|pod| {
                pod.metadata
                    .creation_timestamp
                    .as_ref()
                    .unwrap()
                    .0
                    .as_second()
            })
            .collect();
        assert_eq!(gone, [10]);
        assert!(surplus(finished.clone(), 3).is_empty());
        let mut evicted = Pod::clone(&finished[0]);
        evicted.status = Some(crate::pod::PodStatus {
            phase: Some("Failed".into()),
            is_evicted: true,
            ..Default::default()
        });
        let with_evicted = [vec![evicted.into()], finished].concat();
        assert!(pod_state::is_evicted(&surplus(with_evicted, 3)[0]));
    }
}
