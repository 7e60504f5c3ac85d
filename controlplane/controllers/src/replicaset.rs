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
    cache::{By, Cache, Change, Index, Key, controlled_by, orphans_of},
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

/// The controller; all its state is in caches, its queue and its expectations.
pub(crate) struct ReplicaSetController {
    client: Client,
    replica_sets: Arc<Cache<ReplicaSet>>,
    siblings: By<ReplicaSet>,
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
        let this = Arc::new(Self {
            client: context.client.clone(),
            replica_sets: replica_sets.cache(),
            siblings: replica_sets.index(Index::by_controller()),
            pods: pods.index(Index::by_controller()),
            queue: context.queue("replicaset"),
            control: PodControl::new(context, COMPONENT),
        });
        let controller = this.clone();
        replica_sets.on_change(move |change| controller.replica_set_changed(change));
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

    fn replica_set_changed(&self, change: &Change<'_, ReplicaSet>) {
        let key = Key::of(change.latest().as_ref());
        if matches!(change, Change::Deleted(_)) {
            self.control.expectations.forget(&key);
        }
        self.queue.add(key);
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        match change {
            Change::Added(pod) if pod_state::is_terminating(pod) => self.deletion_seen(pod),
            Change::Added(pod) => match owner_key(pod) {
                Some(owner) => {
                    self.control.expectations.creation_observed(&owner);
                    self.queue.add(owner);
                }
                None => self.wake_possible_owners(pod),
            },
            Change::Updated { old, new } => self.pod_updated(old, new),
            Change::Deleted(pod) => self.deletion_seen(pod),
        }
    }

    fn pod_updated(&self, old: &Pod, new: &Pod) {
        if pod_state::is_terminating(new) && !pod_state::is_terminating(old) {
            return self.deletion_seen(new);
        }
        let (before, after) = (owner_key(old), owner_key(new));
        let owner_changed = before != after;
        if owner_changed && let Some(owner) = before {
            self.queue.add(owner);
        }
        match after {
            Some(owner) => self.queue.add(owner),
            None if owner_changed || old.metadata.labels != new.metadata.labels => self.wake_possible_owners(new),
            None => {}
        }
    }

    fn deletion_seen(&self, pod: &Pod) {
        if let Some(owner) = owner_key(pod) {
            self.control.expectations.deletion_observed(&owner, pod.metadata.uid.as_deref().unwrap_or_default());
            self.queue.add(owner);
        }
    }

    /// An orphan may be adopted by any ReplicaSet that selects it.
    fn wake_possible_owners(&self, pod: &Pod) {
        let Some(labels) = pod.metadata.labels.as_ref().filter(|labels| !labels.is_empty()) else { return };
        if controller_of(&pod.metadata).is_some() {
            return;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let selecting = self.replica_sets.in_namespace(namespace, |rs| {
            selector_of(&rs.spec.selector).is_some_and(|selector| selector.matches(labels))
        });
        for rs in selecting {
            self.queue.add(Key::of(rs.as_ref()));
        }
    }

    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(rs) = self.replica_sets.get(&key) else {
            self.control.expectations.forget(&key);
            return Ok(None);
        };
        // Asked before the pods are read: what is seen later than this is in the list or comes with a new event.
        let pending = self.control.expectations.pending(&key);
        let pods = self.claim_pods(&rs).await?;
        let (active, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| pod_state::is_active(pod));
        let terminating =
            others.iter().filter(|pod| pod_state::is_terminating(pod) && !pod_state::is_finished(pod)).count();

        let failure = match pending.is_none() && rs.metadata.deletion_timestamp.is_none() {
            true => self.manage(&key, &rs, &active).await.err(),
            false => None,
        };
        let (status, again) = plan::plan_status(&rs, &active, terminating, failure.as_ref(), Timestamp::now());
        self.write_status(&rs, status).await?;
        match failure {
            Some(failure) => Err(ReconcileError::NotYet(failure.message)),
            None => Ok(pending.into_iter().chain(again).min()),
        }
    }

    /// The pods that belong to `rs`, after adopting and releasing.
    async fn claim_pods(&self, rs: &ReplicaSet) -> Result<Vec<Arc<Pod>>, ReconcileError> {
        let Some(selector) = selector_of(&rs.spec.selector) else { return Ok(Vec::new()) };
        let uid = rs.metadata.uid.as_deref().unwrap_or_default();
        let namespace = rs.metadata.namespace.as_deref().unwrap_or_default();
        let mut candidates = self.pods.get(&controlled_by(namespace, uid));
        candidates.extend(self.pods.filter(&orphans_of(namespace), |pod| !pod_state::is_finished(pod)));
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
        let calls = self.control.expectations.expect(key, missing, Default::default());
        match self.control.create_all(&calls, rs, missing, |_| Cow::Borrowed(&pod)).await.failed {
            Some(error) if !is_namespace_terminating(&error) => {
                Err(ManageFailure { reason: "FailedCreate", message: message_of(&error) })
            }
            _ => Ok(()),
        }
    }

    async fn delete_pods(&self, key: &Key, rs: &ReplicaSet, surplus: &[Arc<Pod>]) -> Result<(), ManageFailure> {
        let uids = surplus.iter().map(|pod| pod.metadata.uid.clone().unwrap_or_default()).collect();
        let calls = self.control.expectations.expect(key, 0, uids);
        match self.control.delete_all(&calls, rs, surplus).await.failed {
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
        let active = |uid| self.pods.filter(&controlled_by(namespace, uid), pod_state::is_active);
        siblings.iter().flat_map(|uid| active(uid.as_str())).collect()
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
