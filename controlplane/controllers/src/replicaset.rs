//! Keeps as many pods running as a ReplicaSet says.
//!
//! Watches ReplicaSets and Pods, creates and deletes Pods, adopts orphans, writes ReplicaSet status. It does not roll
//! out anything: that is [`crate::deployment`].
//!
//! Source: `pkg/controller/replicaset/replica_set.go` at v1.37.

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::{
    api::apps::v1::{ReplicaSet, ReplicaSetStatus},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams, core::SelectorExt};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::{
        By, Cache, Change, Index, Key, controlled_by,
        labels::{pair_key, pair_of, selecting},
    },
    claim::claim_all,
    context::Context,
    controller::{self, CallContext, Outcome, ReconcileError, ignore_missing, or_event},
    errors::{is_namespace_terminating, message_of},
    informer::Informer,
    owner::{controller_of, selector_of},
    pod::Pod,
    pod_control::PodControl,
    pod_state,
    work_queue::WorkQueue,
};

mod plan;
#[cfg(test)]
mod tests;

use plan::{ManageFailure, ScalePlan};

/// ReplicaSets worked on at once.
const WORKERS: usize = 8;
const COMPONENT: &str = "replicaset-controller";

/// The controller; all its state is in caches, its queue and its control.
pub(crate) struct ReplicaSetController {
    client: Client,
    replica_sets: Arc<Cache<ReplicaSet>>,
    siblings: By<ReplicaSet>,
    selecting: By<ReplicaSet>,
    pods: By<Pod>,
    queue: Arc<WorkQueue<Key>>,
    control: PodControl,
}

impl ReplicaSetController {
    /// Registers with the informers; nothing happens before [`ReplicaSetController::run`].
    pub(crate) fn new(
        context: &Context,
        replica_sets: &mut Informer<ReplicaSet>,
        pods: &mut Informer<Pod>,
    ) -> Arc<Self> {
        let queue = context.queue("replicaset");
        let this = Arc::new(Self {
            client: context.client.clone(),
            replica_sets: replica_sets.cache(),
            siblings: replica_sets.index(Index::by_controller()),
            selecting: replica_sets.index(Index::new("selects", |rs, put| {
                put(&pair_key(rs.metadata.namespace.as_deref().unwrap_or_default(), pair_of(&rs.spec.selector)));
            })),
            pods: pods.index(Index::by_controller()),
            control: PodControl::new(context, COMPONENT, pods, &queue),
            queue,
        });
        let controller = this.clone();
        replica_sets.on_change(move |change| controller.queue.add(Key::of(change.latest().as_ref())));
        let controller = this.clone();
        pods.on_change(move |change| controller.pod_changed(change));
        this
    }

    /// Reconciles until `shutdown`.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let queue = self.queue.clone();
        controller::run("replicaset", queue, WORKERS, shutdown, move |key| {
            let this = self.clone();
            async move { this.reconcile(key).await }
        })
        .await;
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let pod = change.latest();
        let before = if let Change::Updated { old, .. } = change { Some(old) } else { None };
        let (owner, former) = (owner_key(pod), before.and_then(|old| owner_key(old)));
        if let Some(former) = former.clone().filter(|_| former != owner) {
            self.queue.add(former);
        }
        match owner {
            Some(owner) => self.queue.add(owner),
            None if matches!(change, Change::Deleted(_)) => {}
            None if before.is_none_or(|old| former.is_some() || old.metadata.labels != pod.metadata.labels) => {
                self.wake_possible_owners(pod);
            }
            None => {}
        }
    }

    /// An orphan may be adopted by any ReplicaSet that selects it.
    fn wake_possible_owners(&self, pod: &Pod) {
        let Some(labels) = pod.metadata.labels.as_ref().filter(|labels| !labels.is_empty()) else { return };
        if controller_of(&pod.metadata).is_some() {
            return;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        for rs in selecting(&self.selecting, namespace, labels) {
            if selector_of(&rs.spec.selector).is_some_and(|selector| selector.matches(labels)) {
                self.queue.add(Key::of(rs.as_ref()));
            }
        }
    }

    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(rs) = self.replica_sets.get(&key) else { return Ok(None) };
        if !self.control.writes.settled(&key).await.during("list pods")? {
            return Ok(None);
        }
        let pods = self.claim_pods(&rs).await?;
        let (active, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| pod_state::is_active(pod));
        let terminating =
            others.iter().filter(|pod| pod_state::is_terminating(pod) && !pod_state::is_finished(pod)).count();

        let failure = match rs.metadata.deletion_timestamp {
            None => self.manage(&key, &rs, &active).await.err(),
            Some(_) => None,
        };
        let (status, again) = plan::plan_status(&rs, &active, terminating, failure.as_ref(), Timestamp::now());
        self.write_status(&rs, status).await?;
        match failure {
            Some(failure) => Err(ReconcileError::NotYet(failure.message)),
            None => Ok(again),
        }
    }

    /// The pods that belong to `rs`, after adopting and releasing.
    async fn claim_pods(&self, rs: &ReplicaSet) -> Result<Vec<Arc<Pod>>, ReconcileError> {
        let Some(selector) = selector_of(&rs.spec.selector) else { return Ok(Vec::new()) };
        let uid = rs.metadata.uid.as_deref().unwrap_or_default();
        let namespace = rs.metadata.namespace.as_deref().unwrap_or_default();
        let mut candidates = self.pods.controlled_or_orphaned(namespace, uid);
        candidates.retain(|pod| !pod_state::is_finished(pod) || controller_of(&pod.metadata).is_some());
        claim_all(&self.client, rs, &selector, candidates, None).await
    }

    async fn manage(&self, key: &Key, rs: &ReplicaSet, active: &[Arc<Pod>]) -> Result<(), ManageFailure> {
        let replicas = rs.spec.replicas.unwrap_or(1);
        let related =
            if active.len() > usize::try_from(replicas).unwrap_or(0) { self.related_pods(rs) } else { Vec::new() };
        match plan::plan_scale(replicas, active, &related, Timestamp::now()) {
            ScalePlan::Nothing => Ok(()),
            ScalePlan::Create(missing) => self.create_pods(key, rs, missing).await,
            ScalePlan::Delete(surplus) => self.delete_pods(key, rs, &surplus).await,
        }
    }

    async fn create_pods(&self, key: &Key, rs: &ReplicaSet, missing: usize) -> Result<(), ManageFailure> {
        let template = rs.spec.template.clone().unwrap_or_default();
        let pod = plan::pod_from_template(rs, &template);
        match self.control.create_all(key, rs, missing, |_| Cow::Borrowed(&pod)).await.failed {
            Some(error) if !is_namespace_terminating(&error) => {
                Err(ManageFailure { reason: "FailedCreate", message: message_of(&error) })
            }
            _ => Ok(()),
        }
    }

    async fn delete_pods(&self, key: &Key, rs: &ReplicaSet, surplus: &[Arc<Pod>]) -> Result<(), ManageFailure> {
        match self.control.delete_all(key, rs, surplus).await.failed {
            Some(error) => Err(ManageFailure { reason: "FailedDelete", message: message_of(&error) }),
            None => Ok(()),
        }
    }

    /// Active pods of all ReplicaSets that have the same controller as `rs`.
    fn related_pods(&self, rs: &ReplicaSet) -> Vec<Arc<Pod>> {
        let namespace = rs.metadata.namespace.as_deref().unwrap_or_default();
        let siblings: Vec<String> = match controller_of(&rs.metadata) {
            None => vec![rs.metadata.uid.clone().unwrap_or_default()],
            Some(owner) => {
                let same = self.siblings.get(&controlled_by(namespace, &owner.uid));
                same.iter().filter_map(|other| other.metadata.uid.clone()).collect()
            }
        };
        let keys: Vec<String> = siblings.iter().map(|uid| controlled_by(namespace, uid)).collect();
        let mut pods = self.pods.get_any(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        pods.retain(|pod| pod_state::is_active(pod));
        pods
    }

    async fn write_status(&self, rs: &ReplicaSet, status: ReplicaSetStatus) -> Result<(), ReconcileError> {
        if !plan::status_differs(rs.status.as_ref(), &status) {
            return Ok(());
        }
        let api: Api<ReplicaSet> =
            Api::namespaced(self.client.clone(), rs.metadata.namespace.as_deref().unwrap_or_default());
        let wanted = ReplicaSet { status: Some(status), ..rs.clone() };
        let name = rs.metadata.name.as_deref().unwrap_or_default();
        let written = ignore_missing(api.replace_status(name, &PostParams::default(), &wanted).await);
        or_event(written.during("update ReplicaSet status"))?;
        Ok(())
    }
}

/// The ReplicaSet that controls `pod`.
fn owner_key(pod: &Pod) -> Option<Key> {
    let owner: &OwnerReference = controller_of(&pod.metadata)?;
    (owner.kind == "ReplicaSet" && owner.api_version.starts_with("apps/"))
        .then(|| Key::new(pod.metadata.namespace.clone().unwrap_or_default(), owner.name.clone()))
}
