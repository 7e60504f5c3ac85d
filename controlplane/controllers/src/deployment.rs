//! Rolls a Deployment's template out: one ReplicaSet a revision, moved towards each other step by
//! step.
//!
//! Watches Deployments, ReplicaSets and, for Recreate, Pods; writes ReplicaSets and Deployment
//! status. Pods are the business of [`crate::replicaset`]. What to do is decided by [`plan`], here
//! it is only done.
//!
//! Source: `pkg/controller/deployment/` at v1.37.

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Index, Key, controlled_by},
    claim::claim_all,
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, or_event},
    errors::{is_already_exists, is_namespace_terminating, message_of},
    event_recorder::component::ComponentRecorder,
    owner::{is_controlled_by, owner_key, selector_of},
    pod::Pod,
    pod_state,
    writes::Write,
};

mod hash;
mod plan;
mod replica_set;
mod rollout;
mod status;
mod strategy;
#[cfg(test)]
mod tests;

use plan::{Input, Plan};
use replica_set::Draft;

/// Deployments worked on at once.
const WORKERS: usize = 8;
const COMPONENT: &str = "deployment-controller";

/// The controller; all its state is in caches.
pub(crate) struct DeploymentController {
    client: Client,
    recorder: ComponentRecorder,
    deployments: Arc<Cache<Deployment>>,
    replica_sets: Arc<Cache<ReplicaSet>>,
    by_controller: By<ReplicaSet>,
    pods: By<Pod>,
}

impl DeploymentController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller =
            Builder::managed_by(manager, "deployment-controller", "deployment").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.of(COMPONENT),
            deployments: controller.for_kind(),
            replica_sets: controller.reads(),
            by_controller: controller
                .owns(|deployment: &Deployment| Some(Cow::Borrowed(&deployment.spec.selector))),
            pods: controller.index(Index::by_controller()),
        });
        controller.on_change(&this, Self::pod_changed);
        controller.complete(this);
    }

    /// A Recreate waits for the last old pod to go; everything else about pods shows in ReplicaSet
    /// status.
    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        let gone = match change {
            Change::Deleted(pod) => pod,
            Change::Updated { old, new }
                if pod_state::is_finished(new) && !pod_state::is_finished(old) =>
            {
                new
            }
            _ => return,
        };
        let rs = owner_key::<ReplicaSet>(gone.as_ref()).and_then(|key| self.replica_sets.get(&key));
        let Some(key) = rs.and_then(|rs| owner_key::<Deployment>(rs.as_ref())) else {
            return;
        };
        if self
            .deployments
            .get(&key)
            .is_some_and(|deployment| !strategy::is_rolling(&deployment))
        {
            queue.add(key);
        }
    }
}

impl Reconciler for DeploymentController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(deployment) = self.deployments.get(&key) else {
            return Ok(None);
        };
        let Some(replica_sets) = self.claim_replica_sets(&deployment).await? else {
            return Ok(None);
        };
        let pods = if strategy::is_rolling(&deployment) {
            Vec::new()
        } else {
            self.pods_of(&key, &replica_sets)
        };
        let input = Input {
            deployment: &deployment,
            replica_sets: &replica_sets,
            pods: &pods,
            now: Timestamp::now(),
        };
        let plan = plan::plan(&input);
        Box::pin(self.act(&deployment, plan)).await
    }
}

impl DeploymentController {
    async fn act(&self, deployment: &Deployment, plan: Plan) -> Outcome {
        let api: Api<ReplicaSet> = Api::namespaced(self.client.clone(), namespace_of(deployment));
        if let Some(draft) = &plan.create
            && !self.create(deployment, &api, draft).await?
        {
            return Ok(None);
        }
        for draft in &plan.update {
            // The version in the object guards against a change that the cache has not seen.
            let scaled = api
                .replace(draft.name(), &PostParams::default(), &draft.rs)
                .await;
            if or_event(scaled.during("scale ReplicaSet"))?.is_none() {
                return Ok(None);
            }
            self.record_scaling(deployment, draft);
        }
        for draft in &plan.delete {
            let old = Write::to(&self.client, &draft.rs, "delete old ReplicaSet");
            old.delete(DeleteParams::background()).await?;
        }
        let mut current = None;
        if let Some(revision) = plan.revision {
            current = or_event(self.write_revision(deployment, &revision).await)?;
            if current.is_none() {
                return Ok(None);
            }
        }
        self.write_status(current.as_ref().unwrap_or(deployment), plan.status)
            .await?;
        Ok(plan.again)
    }

    /// Creates the new ReplicaSet; `false` if there is nothing more to do now.
    async fn create(
        &self,
        deployment: &Deployment,
        api: &Api<ReplicaSet>,
        draft: &Draft,
    ) -> Result<bool, ReconcileError> {
        match api.create(&PostParams::default(), &draft.rs).await {
            Ok(_) => {
                self.record_scaling(deployment, draft);
                Ok(true)
            }
            Err(error) if is_already_exists(&error) => {
                let existing = api.get(draft.name()).await.during("get ReplicaSet")?;
                let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
                let template = existing.spec.template.clone().unwrap_or_default();
                if is_controlled_by(&existing.metadata, uid)
                    && hash::same_template(&template, &draft.template())
                {
                    // The cache lags behind an earlier create; its event brings us back here.
                    return Ok(false);
                }
                let mut status = deployment.status.clone().unwrap_or_default();
                status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
                self.write_status(deployment, status).await?;
                Ok(false)
            }
            Err(error) if is_namespace_terminating(&error) => Ok(false),
            Err(error) => {
                let message = format!(
                    "Failed to create new replica set {:?}: {}",
                    draft.name(),
                    message_of(&error)
                );
                let status =
                    plan::status_after_failed_create(deployment, Timestamp::now(), message.clone());
                self.recorder
                    .warning(deployment, "ReplicaSetCreateError", message);
                self.write_status(deployment, status).await?;
                Err(error).during("create ReplicaSet")
            }
        }
    }

    fn record_scaling(&self, deployment: &Deployment, draft: &Draft) {
        let (from, to) = (draft.from, draft.replicas());
        if from == to {
            return;
        }
        let direction = if to > from { "up" } else { "down" };
        let message = format!(
            "Scaled {direction} replica set {} from {from} to {to}",
            draft.name()
        );
        self.recorder
            .normal(deployment, "ScalingReplicaSet", message);
    }

    /// The ReplicaSets of `deployment`, after adopting and releasing. `None` for a selector that
    /// selects everything.
    async fn claim_replica_sets(
        &self,
        deployment: &Deployment,
    ) -> Result<Option<Vec<Arc<ReplicaSet>>>, ReconcileError> {
        let Some(selector) = selector_of(&deployment.spec.selector) else {
            let message =
                "This deployment is selecting all pods. A non-empty selector is required."
                    .to_owned();
            self.recorder.warning(deployment, "SelectingAll", message);
            return Ok(None);
        };
        let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
        let namespace = namespace_of(deployment);
        let candidates = self.by_controller.controlled_or_orphaned(namespace, uid);
        claim_all(&self.client, deployment, &selector, candidates, None)
            .await
            .map(Some)
    }

    fn pods_of(&self, key: &Key, replica_sets: &[Arc<ReplicaSet>]) -> Vec<Arc<Pod>> {
        let uids = replica_sets
            .iter()
            .filter_map(|rs| rs.metadata.uid.as_deref());
        let keys: Vec<String> = uids.map(|uid| controlled_by(&key.namespace, uid)).collect();
        self.pods
            .get_any(&keys.iter().map(String::as_str).collect::<Vec<_>>())
    }

    async fn write_revision(
        &self,
        deployment: &Deployment,
        revision: &str,
    ) -> Result<Deployment, ReconcileError> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace_of(deployment));
        let mut wanted = deployment.clone();
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.insert(replica_set::REVISION.to_owned(), revision.to_owned());
        api.replace(name_of(deployment), &PostParams::default(), &wanted)
            .await
            .during("annotate Deployment")
    }

    async fn write_status(
        &self,
        deployment: &Deployment,
        status: DeploymentStatus,
    ) -> Result<(), ReconcileError> {
        if !status::differs(deployment.status.as_ref(), &status) {
            return Ok(());
        }
        let write = Write::to(&self.client, deployment, "update Deployment status");
        let written = write.status(|deployment| deployment.status = Some(status));
        or_event(written.await).map(drop)
    }
}

fn name_of(deployment: &Deployment) -> &str {
    deployment.metadata.name.as_deref().unwrap_or_default()
}

fn namespace_of(deployment: &Deployment) -> &str {
    deployment.metadata.namespace.as_deref().unwrap_or_default()
}
