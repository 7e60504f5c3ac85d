//! Watches over the nodes: silent ones become Unknown, troubled ones are tainted, their pods are
//! marked not ready.
//!
//! A node speaks by its Lease and its status; the monitor looks every few seconds and after each
//! change of a Node. Eviction itself is the business of [`crate::taint_eviction`]: here only the
//! NoExecute taint is set, on one node of a zone after the other, and on none while most of the
//! zone is down ([`zones`]).
//!
//! Source: `pkg/controller/nodelifecycle/node_lifecycle_controller.go` at v1.37.

use std::{collections::HashMap, sync::Arc, time::Duration};

use coracle_api::meta::NODE_LEASE_NAMESPACE;
use futures::future::join_all;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, NodeCondition, Taint},
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Key},
    context::Context,
    controller::{Outcome, ReconcileError, Reconciler, or_event},
    event_recorder::component::ComponentRecorder,
    informers::Source,
    pod::Pod,
    pod_state,
    writes::Write,
};

pub(crate) mod plan;
#[cfg(test)]
mod tests;
mod zones;

use plan::{Health, Readiness};
use zones::{Eviction, Zones};

/// Nodes worked on at once.
const WORKERS: usize = 4;
const COMPONENT: &str = "node-controller";

/// The controller.
pub(crate) struct NodeLifecycleController {
    client: Client,
    recorder: ComponentRecorder,
    grace: Duration,
    nodes: Arc<Cache<Node>>,
    leases: Arc<Cache<Lease>>,
    pods_by_node: By<Pod>,
    started: Instant,
    health: Mutex<HashMap<String, Health>>,
    zones: Mutex<Zones>,
}

impl NodeLifecycleController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let name = "node-lifecycle-controller";
        let mut controller =
            Builder::managed_by(manager, name, "node_lifecycle_controller").workers(WORKERS);
        controller.select(Source::<Lease>::in_namespace(NODE_LEASE_NAMESPACE));
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.of(COMPONENT),
            grace: context.config.node_monitor_grace,
            nodes: controller.reads(),
            leases: controller.reads(),
            pods_by_node: controller.index(pod_state::by_node()),
            started: Instant::now(),
            health: Mutex::default(),
            zones: Mutex::default(),
        });
        controller.on_change(&this, Self::node_changed);
        controller.on_change(&this, Self::pod_changed);
        controller.every(context.config.node_monitor_period, &this, Self::wake_all);
        controller.complete(this);
    }

    fn wake_all(&self, queue: &Queue) {
        self.nodes
            .all()
            .iter()
            .for_each(|node| queue.add(Key::of(node.as_ref())));
    }

    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        let node = change.latest();
        let has_turned = {
            let mut zones = self.zones.lock();
            let was_all_down = zones.is_all_down();
            match change {
                Change::Deleted(_) => zones.remove(name_of(node)),
                _ => zones.observe(node),
            }
            was_all_down != zones.is_all_down()
        };
        // The last node to come back ends the state in which nothing is evicted, and the last to go
        // begins it.
        if has_turned {
            self.wake_all(queue);
        }
        match change {
            Change::Added(_) => {
                let message = format!(
                    "Node {} event: Registered Node {} in Controller",
                    name_of(node),
                    name_of(node)
                );
                self.recorder
                    .normal(node.as_ref(), "RegisteredNode", message);
            }
            Change::Deleted(_) => {
                let message = format!(
                    "Node {} event: Removing Node {} from Controller",
                    name_of(node),
                    name_of(node)
                );
                self.recorder.normal(node.as_ref(), "RemovingNode", message);
            }
            Change::Updated { .. } => {}
        }
        queue.add(Key::of(node.as_ref()));
    }

    /// A pod that turns up as ready on a node that does not answer has to be corrected.
    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        if matches!(change, Change::Deleted(_)) || !plan::claims_ready(change.latest()) {
            return;
        }
        let node = Key::new("", pod_state::node_name(change.latest()));
        if self
            .nodes
            .get(&node)
            .is_some_and(|node| plan::readiness(&node) == Readiness::Unknown)
        {
            queue.add(node);
        }
    }
}

impl Reconciler for NodeLifecycleController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(node) = self.nodes.get(&key) else {
            self.health.lock().remove(&key.name);
            return Ok(None);
        };
        let silent_for = self.silence(&node);
        if silent_for > self.grace
            && let Some(conditions) = plan::silent_conditions(&node, Timestamp::now())
        {
            let was_ready = plan::readiness(&node) == Readiness::Ready;
            self.write_conditions(&node, conditions).await?;
            if was_ready {
                let message = format!("Node {} status is now: NodeNotReady", key.name);
                self.recorder.normal(node.as_ref(), "NodeNotReady", message);
            }
            // The change itself brings us back, with the new conditions in the cache.
            return Ok(None);
        }
        if let Some(taints) = plan::plan_taints(&node, self.eviction(&node), Timestamp::now()) {
            self.write_taints(&node, taints).await?;
        }
        // An agent that says it is not ready still reports its pods itself; a silent one does not.
        if plan::readiness(&node) == Readiness::Unknown && silent_for > self.grace {
            self.mark_pods_not_ready(&key.name).await?;
        }
        Ok(None)
    }
}

impl NodeLifecycleController {
    /// How long nothing has been heard from the node.
    fn silence(&self, node: &Node) -> Duration {
        let name = name_of(node);
        let lease = self.leases.get(&Key::new(NODE_LEASE_NAMESPACE, name));
        let renewed =
            lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0));
        let now = self.started.elapsed();
        let mut all = self.health.lock();
        let health = plan::observe(all.remove(name), node, renewed, now);
        let silent = now.saturating_sub(health.seen);
        all.insert(name.to_owned(), health);
        silent
    }

    /// What may be done to the node if it is down. One that has to wait is looked at again by the
    /// monitor.
    fn eviction(&self, node: &Node) -> Eviction {
        let mut zones = self.zones.lock();
        if plan::needs_eviction(node) {
            zones.begin(name_of(node), self.started.elapsed())
        } else if zones.is_all_down() {
            Eviction::Stop
        } else {
            Eviction::Hold
        }
    }

    async fn write_conditions(
        &self,
        node: &Node,
        conditions: Vec<NodeCondition>,
    ) -> Result<(), ReconcileError> {
        // The version guards against a heartbeat that arrives at the same moment.
        let write = Write::to(&self.client, node, "update Node conditions").if_unchanged();
        let written = write.patch_status(json!({"status": {"conditions": conditions}}));
        or_event(written.await).map(drop)
    }

    async fn write_taints(&self, node: &Node, taints: Vec<Taint>) -> Result<(), ReconcileError> {
        let write = Write::to(&self.client, node, "taint Node").if_unchanged();
        let written = write.patch(json!({"spec": {"taints": taints}}));
        or_event(written.await).map(drop)
    }

    /// Services stop sending to pods of a node that does not answer.
    async fn mark_pods_not_ready(&self, node: &str) -> Result<(), ReconcileError> {
        let pods = self.pods_by_node.filter(node, plan::claims_ready);
        let marks = join_all(pods.iter().map(|pod| self.mark_not_ready(pod))).await;
        marks.into_iter().collect::<Result<Vec<()>, _>>().map(drop)
    }

    async fn mark_not_ready(&self, pod: &Pod) -> Result<(), ReconcileError> {
        let mut conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        for condition in conditions
            .iter_mut()
            .filter(|condition| condition.type_ == "Ready")
        {
            condition.status = "False".into();
            condition.last_transition_time = Some(Time(Timestamp::now()));
        }
        let write = Write::to(&self.client, pod, "mark Pod not ready").if_unchanged();
        let marked = write.patch_status(json!({"status": {"conditions": conditions}}));
        if marked.await?.is_some() {
            self.recorder
                .warning(pod, "NodeNotReady", "Node is not ready");
        }
        Ok(())
    }
}

fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}
