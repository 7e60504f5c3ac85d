//! Keeps a pod on every node that a DaemonSet asks for.
//!
//! Watches DaemonSets, Nodes, Pods and ControllerRevisions; creates and deletes Pods, keeps the
//! history of templates, writes status. Pods are for a node from the start, and the scheduler binds
//! them to it. What to do is decided by `plan`, here it is only done.
//!
//! Source: `pkg/controller/daemon` at v1.37.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetStatus},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
    jiff::Timestamp,
};
use kube::{Client, core::Selector};
use parking_lot::Mutex;
use serde_json::json;

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Key},
    claim::claim_all,
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, or_event},
    errors::is_namespace_terminating,
    event_recorder::component::ComponentRecorder,
    history::{Found, History, REVISION_HASH, Revisions, Template, hash_of},
    owner::selector_of,
    pod::Pod,
    pod_control::PodControl,
    writes::Write,
};

mod failed;
mod node;
mod plan;
mod pod;
mod status;
#[cfg(test)]
mod tests;
mod view;

use failed::Failures;
use node::Demands;
use plan::Plan;
use view::View;

/// DaemonSets worked on at once.
const WORKERS: usize = 2;
const COMPONENT: &str = "daemonset-controller";
/// Revisions that are kept where nothing is said.
const HISTORY_LIMIT: i32 = 10;

/// The controller; its state is in caches, but for who failed where.
pub(crate) struct DaemonSetController {
    client: Client,
    recorder: ComponentRecorder,
    daemon_sets: Arc<Cache<DaemonSet>>,
    nodes: Arc<Cache<Node>>,
    pods: By<Pod>,
    history: History,
    control: PodControl,
    failures: Mutex<Failures>,
}

impl DaemonSetController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller = Builder::managed_by(manager, COMPONENT, "daemonset").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.of(COMPONENT),
            daemon_sets: controller.for_kind(),
            nodes: controller.reads(),
            pods: controller.owns(selector),
            history: History::new(&context.client, &mut controller, selector, REVISION_HASH),
            control: PodControl::new(context, COMPONENT, &mut controller),
            failures: Mutex::default(),
        });
        controller.on_change(&this, Self::node_changed);
        controller.complete(this);
    }

    /// Most changes of a node are nothing to where pods belong.
    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        let (old, new) = match change {
            Change::Updated { old, new } => (Some(*old), Some(*new)),
            Change::Added(node) => (None, Some(*node)),
            Change::Deleted(node) => (Some(*node), None),
        };
        if let (Some(old), Some(new)) = (old, new)
            && old.metadata.labels == new.metadata.labels
            && taints(old) == taints(new)
        {
            return;
        }
        for ds in self.daemon_sets.all() {
            let demands = Demands::of(&ds);
            let place = |node: Option<&Arc<Node>>| node.map(|node| demands.place(node));
            if place(old) != place(new) {
                queue.add(Key::of(&*ds));
            }
        }
    }
}

fn taints(node: &Node) -> &[k8s_openapi::api::core::v1::Taint] {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
}

fn selector(ds: &DaemonSet) -> Option<Cow<'_, LabelSelector>> {
    Some(Cow::Borrowed(&ds.spec.selector))
}

impl Reconciler for DaemonSetController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(ds) = self.daemon_sets.get(&key) else {
            return Ok(None);
        };
        let Some(selector) = selector(&ds).as_deref().and_then(selector_of) else {
            let message =
                "This daemon set is selecting all pods. A non-empty selector is required.";
            self.recorder
                .warning(&*ds, "SelectingAll", message.to_owned());
            return Ok(None);
        };
        if ds.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let pods = self.claim_pods(&ds, &selector).await?;
        let Some(revisions) = self.revisions(&ds, &pods).await? else {
            return Ok(None);
        };
        let hash = hash_of(&revisions.current);
        let nodes = self.nodes.all();
        let view = View::new((&ds, hash), &nodes, &pods, Timestamp::now());
        let plan = plan::plan(&view, &mut self.failures.lock());
        let (status, later) = status::status(&view);
        let again = [plan.again, later].into_iter().flatten().min();
        let done = self.act(&key, &ds, hash, plan).await;
        self.write_status(&ds, status).await?;
        done?;
        self.truncate(&ds, &revisions, &pods).await?;
        Ok(again)
    }
}

impl DaemonSetController {
    async fn claim_pods(
        &self,
        ds: &DaemonSet,
        selector: &Selector,
    ) -> Result<Vec<Arc<Pod>>, ReconcileError> {
        let uid = ds.metadata.uid.as_deref().unwrap_or_default();
        let namespace = ds.metadata.namespace.as_deref().unwrap_or_default();
        let candidates = self.pods.controlled_or_orphaned(namespace, uid);
        claim_all(&self.client, ds, selector, candidates, None).await
    }

    /// The revisions of `ds`, each template once. `None` if that has to be seen again first.
    async fn revisions(
        &self,
        ds: &DaemonSet,
        pods: &[Arc<Pod>],
    ) -> Result<Option<Revisions>, ReconcileError> {
        let spec = &ds.spec;
        let status = ds.status.clone().unwrap_or_default();
        let of = Template {
            selector: &spec.selector,
            template: &spec.template,
            collisions: status.collision_count,
        };
        let revisions = match self.history.find(ds, of).await {
            Ok(Found::Revisions(revisions)) => revisions,
            Ok(Found::Collision) => {
                let collisions = Some(status.collision_count.unwrap_or(0) + 1);
                let status = DaemonSetStatus {
                    collision_count: collisions,
                    ..status
                };
                self.write_status(ds, status).await?;
                return Ok(None);
            }
            Err(ReconcileError::Api { source, .. }) if is_namespace_terminating(&source) => {
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        for duplicate in &revisions.duplicates {
            self.relabel(pods, hash_of(duplicate), hash_of(&revisions.current))
                .await?;
            self.history.delete(duplicate).await?;
        }
        // Relabelled pods come back here.
        Ok(revisions.duplicates.is_empty().then_some(revisions))
    }

    async fn relabel(&self, pods: &[Arc<Pod>], from: &str, to: &str) -> Result<(), ReconcileError> {
        let is_of = |pod: &&Arc<Pod>| {
            let labels = pod.metadata.labels.as_ref();
            labels
                .and_then(|labels| labels.get(REVISION_HASH))
                .is_some_and(|of| of == from)
        };
        for pod in pods.iter().filter(is_of) {
            let labels = json!({"metadata": {"labels": {REVISION_HASH: to}}});
            let write = Write::to(&self.client, &**pod, "relabel Pod of a duplicate revision");
            write.patch(labels).await?;
        }
        Ok(())
    }

    async fn act(
        &self,
        key: &Key,
        ds: &DaemonSet,
        hash: &str,
        plan: Plan,
    ) -> Result<(), ReconcileError> {
        for ended in plan.told {
            if ended.has_failed {
                self.recorder.warning(ds, "FailedDaemonPod", ended.message);
            } else {
                self.recorder
                    .normal(ds, "SucceededDaemonPod", ended.message);
            }
        }
        let pod = |number: usize| Cow::Owned(pod::pod_for(ds, hash, &plan.create[number]));
        let created = self.control.create_all(key, ds, plan.create.len(), pod);
        let created = created
            .await
            .failed
            .filter(|error| !is_namespace_terminating(error));
        let deleted = self.control.delete_all(key, ds, &plan.delete).await.failed;
        match created.or(deleted) {
            Some(error) => Err(error).during("create and delete Pods"),
            None => Ok(()),
        }
    }

    async fn truncate(
        &self,
        ds: &DaemonSet,
        revisions: &Revisions,
        pods: &[Arc<Pod>],
    ) -> Result<(), ReconcileError> {
        let limit = ds.spec.revision_history_limit.unwrap_or(HISTORY_LIMIT);
        let limit = usize::try_from(limit).unwrap_or(0);
        let labels = pods.iter().filter_map(|pod| pod.metadata.labels.as_ref());
        let in_use: HashSet<&str> = labels
            .filter_map(|labels| labels.get(REVISION_HASH))
            .map(String::as_str)
            .collect();
        self.history.truncate(&revisions.old, limit, &in_use).await
    }

    async fn write_status(
        &self,
        ds: &DaemonSet,
        status: DaemonSetStatus,
    ) -> Result<(), ReconcileError> {
        if !status::differs(ds.status.as_ref(), &status) {
            return Ok(());
        }
        let write = Write::to(&self.client, ds, "update DaemonSet status");
        let written = write.status(|ds| ds.status = Some(status));
        or_event(written.await).map(drop)
    }
}
