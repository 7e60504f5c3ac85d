//! Keeps as many pods running as a ReplicaSet or a ReplicationController says.
//!
//! Watches them and Pods, creates and deletes Pods, adopts orphans, writes status. It does not roll
//! out anything: that is [`crate::deployment`]. What differs between the two kinds is said by
//! [`Replicas`].
//!
//! Source: `pkg/controller/replicaset/replica_set.go`, `pkg/controller/replication` at v1.37.

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::{api::apps::v1::ReplicaSetStatus, jiff::Timestamp};
use kube::Client;

use crate::{
    Manager,
    builder::Builder,
    cache::{By, Cache, Index, Key, controlled_by},
    claim::claim_all,
    context::Context,
    controller::{Outcome, ReconcileError, Reconciler, or_event},
    errors::{is_namespace_terminating, message_of},
    owner::{controller_of, selector_of},
    pod::Pod,
    pod_control::PodControl,
    pod_state,
    writes::Write,
};

mod plan;
mod replicas;
#[cfg(test)]
mod tests;

use plan::{ManageFailure, ScalePlan};
pub(crate) use replicas::Replicas;

/// Objects of the kind worked on at once.
const WORKERS: usize = 8;

/// The controller; all its state is in caches and its control.
pub(crate) struct ReplicaController<K> {
    client: Client,
    owners: Arc<Cache<K>>,
    siblings: By<K>,
    pods: By<Pod>,
    control: PodControl,
}

impl<K: Replicas> ReplicaController<K> {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller = Builder::managed_by(manager, K::COMPONENT, K::QUEUE).workers(WORKERS);
        let this = Self {
            client: context.client.clone(),
            owners: controller.for_kind(),
            siblings: controller.index(Index::by_controller()),
            pods: controller.owns(K::selector),
            control: PodControl::new(context, K::COMPONENT, &mut controller),
        };
        controller.complete(Arc::new(this));
    }
}

impl<K: Replicas> Reconciler for ReplicaController<K> {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(rs) = self.owners.get(&key) else {
            return Ok(None);
        };
        let pods = self.claim_pods(&rs).await?;
        let (active, others): (Vec<_>, Vec<_>) =
            pods.into_iter().partition(|pod| pod_state::is_active(pod));
        let terminating = others
            .iter()
            .filter(|pod| pod_state::is_terminating(pod) && !pod_state::is_finished(pod))
            .count();

        let failure = match rs.meta().deletion_timestamp {
            None => self.manage(&key, &rs, &active).await.err(),
            Some(_) => None,
        };
        let (status, again) = plan::plan_status(
            rs.as_ref(),
            &active,
            terminating,
            failure.as_ref(),
            Timestamp::now(),
        );
        self.write_status(&rs, K::tells(status)).await?;
        match failure {
            Some(failure) => Err(ReconcileError::NotYet(failure.message)),
            None => Ok(again),
        }
    }
}

impl<K: Replicas> ReplicaController<K> {
    /// The pods that belong to `rs`, after adopting and releasing.
    async fn claim_pods(&self, rs: &K) -> Result<Vec<Arc<Pod>>, ReconcileError> {
        let Some(selector) = rs.selector().as_deref().and_then(selector_of) else {
            return Ok(Vec::new());
        };
        let uid = rs.meta().uid.as_deref().unwrap_or_default();
        let namespace = rs.meta().namespace.as_deref().unwrap_or_default();
        let mut candidates = self.pods.controlled_or_orphaned(namespace, uid);
        candidates
            .retain(|pod| !pod_state::is_finished(pod) || controller_of(&pod.metadata).is_some());
        claim_all(&self.client, rs, &selector, candidates, None).await
    }

    async fn manage(&self, key: &Key, rs: &K, active: &[Arc<Pod>]) -> Result<(), ManageFailure> {
        let replicas = rs.replicas();
        let related = if active.len() > usize::try_from(replicas).unwrap_or(0) {
            self.related_pods(rs)
        } else {
            Vec::new()
        };
        match plan::plan_scale(replicas, active, &related, Timestamp::now()) {
            ScalePlan::Nothing => Ok(()),
            ScalePlan::Create(missing) => self.create_pods(key, rs, missing).await,
            ScalePlan::Delete(surplus) => self.delete_pods(key, rs, &surplus).await,
        }
    }

    async fn create_pods(&self, key: &Key, rs: &K, missing: usize) -> Result<(), ManageFailure> {
        let pod = plan::pod_from_template(rs);
        match self
            .control
            .create_all(key, rs, missing, |_| Cow::Borrowed(&pod))
            .await
            .failed
        {
            Some(error) if !is_namespace_terminating(&error) => Err(ManageFailure {
                reason: "FailedCreate",
                message: message_of(&error),
            }),
            _ => Ok(()),
        }
    }

    async fn delete_pods(
        &self,
        key: &Key,
        rs: &K,
        surplus: &[Arc<Pod>],
    ) -> Result<(), ManageFailure> {
        match self.control.delete_all(key, rs, surplus).await.failed {
            Some(error) => Err(ManageFailure {
                reason: "FailedDelete",
                message: message_of(&error),
            }),
            None => Ok(()),
        }
    }

    /// Active pods of all that have the same controller as `rs`.
    fn related_pods(&self, rs: &K) -> Vec<Arc<Pod>> {
        let namespace = rs.meta().namespace.as_deref().unwrap_or_default();
        let siblings: Vec<String> = match controller_of(rs.meta()) {
            None => vec![rs.meta().uid.clone().unwrap_or_default()],
            Some(owner) => {
                let same = self.siblings.get(&controlled_by(namespace, &owner.uid));
                same.iter()
                    .filter_map(|other| other.meta().uid.clone())
                    .collect()
            }
        };
        let keys: Vec<String> = siblings
            .iter()
            .map(|uid| controlled_by(namespace, uid))
            .collect();
        let mut pods = self
            .pods
            .get_any(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        pods.retain(|pod| pod_state::is_active(pod));
        pods
    }

    async fn write_status(&self, rs: &K, status: ReplicaSetStatus) -> Result<(), ReconcileError> {
        if !plan::status_differs(rs.status().as_ref(), &status) {
            return Ok(());
        }
        let write = Write::to(&self.client, rs, K::UPDATE_STATUS);
        let written = write.status(|rs| rs.set_status(status));
        or_event(written.await).map(drop)
    }
}
