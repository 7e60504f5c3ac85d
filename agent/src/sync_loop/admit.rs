//! Asks [`crate::admission`] about each new pod, with what the node is and has taken so far.
//!
//! One pod after the other, and those that have started already first: after a restart nobody loses
//! its place.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::ErrorChain;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;

use super::SyncLoop;
use crate::{
    admission::{
        self, NodeInfo,
        predicates::{self, NODE_AFFINITY},
        sysctl::AllowList,
    },
    allocation,
    container_config::apparmor,
    context::NodeContext,
    node::status,
    pod::PodExt,
    runtime::types::PodUid,
    status_reason::StatusReason,
};

/// For the newest Node: a label may have come with the pod that asks for it.
const FETCH_LIMIT: Duration = Duration::from_secs(2);

/// What admission remembers.
pub(super) struct Admission {
    nodes: Api<Node>,
    /// Pods that something of was made before the agent started.
    ran: HashSet<PodUid>,
    /// Pods that were refused: they take nothing, though their status may not say so yet.
    refused: HashSet<PodUid>,
}

impl Admission {
    pub(super) fn new(client: kube::Client) -> Self {
        Self {
            nodes: Api::all(client),
            ran: HashSet::new(),
            refused: HashSet::new(),
        }
    }

    pub(super) fn refused(&mut self, uid: PodUid) {
        self.refused.insert(uid);
    }

    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.ran.remove(uid);
        self.refused.remove(uid);
    }
}

/// Those that have started by the time of their start, then the others as they came into being.
pub(super) fn in_order(mut pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    pods.sort_by_cached_key(|pod| {
        let started = pod
            .status_or_default()
            .start_time
            .as_ref()
            .map(|time| time.0);
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Reverse(started.is_some()), started, created, pod.uid().0)
    });
    pods
}

/// Whether a pod that no worker cares for has to be admitted: not what ends anyway, nor what the
/// node itself knows that it `ran`. What the status claims is not asked: others than the node may
/// have written it.
fn is_asked_about(pod: &Pod, ran: &HashSet<PodUid>) -> bool {
    !ran.contains(&pod.uid()) && !pod.is_deleting() && !pod.is_phase_final()
}

impl SyncLoop {
    /// Before the first pod is looked at.
    pub(super) async fn remember_what_ran(&mut self) {
        match self.ctx.runtime.list_pod_sandboxes().await {
            Ok(sandboxes) => {
                self.admission.ran = sandboxes
                    .into_iter()
                    .map(|sandbox| sandbox.pod.uid)
                    .collect()
            }
            // Those whose status tells of a start keep their place all the same.
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot look for pods that run already")
            }
        }
    }

    /// Takes the pod, which may be known already, or tells why the node does not.
    pub(super) async fn admit(&self, pod: &Arc<Pod>) -> Result<(), StatusReason> {
        let uid = pod.uid();
        if self.workers.has(&uid) || !is_asked_about(pod, &self.admission.ran) {
            return Ok(());
        }
        let taken = |other: &&Arc<Pod>| {
            let id = other.uid();
            self.workers.has(&id)
                && !self.admission.refused.contains(&id)
                && !self.ctx.has_finished(other)
        };
        // With what they have, not with what they would like.
        let held = |other: &Arc<Pod>| {
            allocation::held(other, other.status_or_default())
                .map_or_else(|| Arc::clone(other), Arc::new)
        };
        let others: Vec<Arc<Pod>> = self.manager.pods().filter(taken).map(held).collect();
        let others: Vec<&Pod> = others.iter().map(|other| &**other).collect();
        let known = self.ctx.node.lock().clone();
        let outcome = admission::admit(pod, &node_info(&self.ctx, known.as_deref()), &others);
        if !outcome
            .as_ref()
            .is_err_and(|why| why.reason == NODE_AFFINITY)
        {
            return outcome;
        }
        match tokio::time::timeout(
            FETCH_LIMIT,
            self.admission.nodes.get_opt(&self.ctx.config.node_name),
        )
        .await
        {
            Ok(Ok(newest)) => {
                admission::admit(pod, &node_info(&self.ctx, newest.as_ref()), &others)
            }
            Ok(Err(error)) => {
                tracing::warn!(pod = %pod.display(), error = %ErrorChain(&error), "cannot read the Node for a pod that seems to belong elsewhere");
                outcome
            }
            Err(_) => outcome,
        }
    }
}

/// The node as the API has it; what it has of its own as the machine tells.
fn node_info(ctx: &NodeContext, node: Option<&Node>) -> NodeInfo {
    let told = node
        .and_then(|node| node.status.as_ref())
        .and_then(|status| status.allocatable.as_ref());
    let mut allocatable = told.map(predicates::amounts).unwrap_or_default();
    let machine = ctx.machine.allocatable();
    let own = [
        ("cpu", machine.cpu_millis),
        ("memory", machine.memory_bytes),
        ("ephemeral-storage", machine.ephemeral_bytes),
        ("pods", i64::from(ctx.config.max_pods)),
    ];
    allocatable.extend(own.map(|(name, amount)| (name.to_owned(), amount)));
    allocatable.extend(ctx.machine.hugepages());
    let mut labels: BTreeMap<String, String> = node
        .and_then(|node| node.metadata.labels.clone())
        .unwrap_or_default();
    for (key, value) in status::labels(&ctx.config) {
        labels.entry(key).or_insert(value);
    }
    let taints = node
        .and_then(|node| node.spec.as_ref())
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    // Checked when the agent started.
    let sysctls = AllowList::new(&ctx.config.allowed_unsafe_sysctls).unwrap_or_default();
    NodeInfo {
        name: ctx.config.node_name.clone(),
        labels,
        taints,
        allocatable,
        sysctls,
        apparmor: apparmor::kernel,
        listeners: ctx.listeners.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::listening::Listeners;

    #[test]
    fn what_a_status_claims_admits_no_sysctl() {
        let node = NodeInfo {
            name: "n1".to_owned(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            allocatable: [("pods".to_owned(), 10)].into(),
            sysctls: AllowList::default(),
            apparmor: || None,
            listeners: Listeners::new(Vec::new),
        };
        let claim = json!([{"name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
            "containerID": "coracle://1"}]);
        for status in [
            json!({"containerStatuses": claim}),
            json!({"initContainerStatuses": claim}),
        ] {
            let pod = json!({"metadata": {"name": "p", "uid": "p"}, "status": status, "spec": {"containers": [],
                "securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}});
            let pod: Pod = serde_json::from_value(pod).expect("pod");
            assert!(
                is_asked_about(&pod, &HashSet::new()),
                "the node knows of nothing that ran"
            );
            let why = admission::admit(&pod, &node, &[])
                .err()
                .map(|why| why.reason);
            assert_eq!(why.as_deref(), Some("SysctlForbidden"));
            assert!(
                !is_asked_about(&pod, &HashSet::from([pod.uid()])),
                "the node has its own records"
            );
        }
    }

    #[test]
    fn who_has_started_keeps_its_place() {
        let pod = |name: &str, created: &str, started: Option<&str>| {
            let value = json!({"metadata": {"name": name, "uid": name, "creationTimestamp": created},
                "status": {"startTime": started}});
            Arc::new(serde_json::from_value::<Pod>(value).expect("pod"))
        };
        let pods = vec![
            pod("new", "2026-01-01T00:00:00Z", None),
            pod("late", "2026-01-01T00:00:01Z", Some("2026-01-01T00:02:00Z")),
            pod(
                "early",
                "2026-01-01T00:00:02Z",
                Some("2026-01-01T00:01:00Z"),
            ),
        ];
        assert_eq!(
            in_order(pods)
                .iter()
                .map(|pod| pod.name().to_owned())
                .collect::<Vec<_>>(),
            ["early", "late", "new"]
        );
    }
}
