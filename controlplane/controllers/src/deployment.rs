//! Rolls a Deployment's template out: one ReplicaSet a revision, moved towards each other step by step.
//!
//! Watches Deployments, ReplicaSets and, for Recreate, Pods; writes ReplicaSets and Deployment status. Pods are the
//! business of [`crate::replicaset`]. What to do is decided by [`plan`], here it is only done.
//!
//! Source: `pkg/controller/deployment/` at v1.37.

use std::sync::Arc;

use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
    core::SelectorExt,
};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::{
        By, Cache, Change, Index, Key, controlled_by,
        labels::{pair_key, pair_of, selecting},
    },
    claim::claim_all,
    context::Context,
    controller::{self, CallContext, Outcome, ReconcileError, or_event},
    errors::{is_already_exists, is_namespace_terminating, is_not_found, message_of},
    event_recorder::{EventRecorder, EventType},
    informer::Informer,
    owner::{controller_of, is_controlled_by, selector_of},
    pod::Pod,
    work_queue::WorkQueue,
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

/// The controller; all its state is in caches and its queue.
pub(crate) struct DeploymentController {
    client: Client,
    recorder: EventRecorder,
    deployments: Arc<Cache<Deployment>>,
    selecting: By<Deployment>,
    replica_sets: Arc<Cache<ReplicaSet>>,
    by_controller: By<ReplicaSet>,
    pods: By<Pod>,
    queue: Arc<WorkQueue<Key>>,
}

impl DeploymentController {
    /// Registers with the informers; nothing happens before [`DeploymentController::run`].
    pub(crate) fn new(
        context: &Context,
        deployments: &mut Informer<Deployment>,
        replica_sets: &mut Informer<ReplicaSet>,
        pods: &mut Informer<Pod>,
    ) -> Arc<Self> {
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.clone(),
            deployments: deployments.cache(),
            selecting: deployments.index(Index::new("selects", |deployment, put| {
                put(&pair_key(namespace_of(deployment), pair_of(&deployment.spec.selector)));
            })),
            replica_sets: replica_sets.cache(),
            by_controller: replica_sets.index(Index::by_controller()),
            pods: pods.index(Index::by_controller()),
            queue: context.queue("deployment"),
        });
        let controller = this.clone();
        deployments.on_change(move |change| controller.queue.add(Key::of(change.latest().as_ref())));
        let controller = this.clone();
        replica_sets.on_change(move |change| controller.replica_set_changed(change));
        let controller = this.clone();
        pods.on_change(move |change| controller.pod_changed(change));
        this
    }

    /// Reconciles until `shutdown`.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let queue = self.queue.clone();
        controller::run("deployment", queue, WORKERS, shutdown, move |key| {
            let this = self.clone();
            async move { Box::pin(this.reconcile(key)).await }
        })
        .await;
    }

    fn replica_set_changed(&self, change: &Change<'_, ReplicaSet>) {
        if let Change::Updated { old, .. } = change
            && let Some(owner) = owner_key(old)
        {
            self.queue.add(owner);
        }
        let rs = change.latest();
        match owner_key(rs) {
            Some(owner) => self.queue.add(owner),
            None => self.wake_possible_owners(rs),
        }
    }

    /// An orphan may be adopted by any Deployment that selects it.
    fn wake_possible_owners(&self, rs: &ReplicaSet) {
        let Some(labels) = rs.metadata.labels.as_ref().filter(|labels| !labels.is_empty()) else { return };
        if controller_of(&rs.metadata).is_some() {
            return;
        }
        let namespace = rs.metadata.namespace.as_deref().unwrap_or_default();
        for deployment in selecting(&self.selecting, namespace, labels) {
            if selector_of(&deployment.spec.selector).is_some_and(|selector| selector.matches(labels)) {
                self.queue.add(Key::of(deployment.as_ref()));
            }
        }
    }

    /// A Recreate waits for the last old pod to go; everything else about pods shows in ReplicaSet status.
    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let gone = match change {
            Change::Deleted(pod) => pod,
            Change::Updated { old, new }
                if crate::pod_state::is_finished(new) && !crate::pod_state::is_finished(old) =>
            {
                new
            }
            _ => return,
        };
        let namespace = gone.metadata.namespace.as_deref().unwrap_or_default();
        let Some(owner) = controller_of(&gone.metadata) else { return };
        let Some(rs) = self.replica_sets.get(&Key::new(namespace, owner.name.clone())) else { return };
        let Some(key) = owner_key(&rs) else { return };
        if self.deployments.get(&key).is_some_and(|deployment| !strategy::is_rolling(&deployment)) {
            self.queue.add(key);
        }
    }

    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(deployment) = self.deployments.get(&key) else { return Ok(None) };
        let Some(replica_sets) = self.claim_replica_sets(&deployment).await? else { return Ok(None) };
        let pods = if strategy::is_rolling(&deployment) { Vec::new() } else { self.pods_of(&key, &replica_sets) };
        let input = Input { deployment: &deployment, replica_sets: &replica_sets, pods: &pods, now: Timestamp::now() };
        let plan = plan::plan(&input);
        Box::pin(self.act(&deployment, plan)).await
    }

    async fn act(&self, deployment: &Deployment, plan: Plan) -> Outcome {
        let api: Api<ReplicaSet> = Api::namespaced(self.client.clone(), namespace_of(deployment));
        if let Some(draft) = &plan.create
            && !self.create(deployment, &api, draft).await?
        {
            return Ok(None);
        }
        for draft in &plan.update {
            // The version in the object guards against a change that the cache has not seen.
            let scaled = api.replace(draft.name(), &PostParams::default(), &draft.rs).await;
            if or_event(scaled.during("scale ReplicaSet"))?.is_none() {
                return Ok(None);
            }
            self.record_scaling(deployment, draft);
        }
        for draft in &plan.delete {
            let same = Preconditions { uid: draft.rs.metadata.uid.clone(), resource_version: None };
            match api.delete(draft.name(), &DeleteParams::background().preconditions(same)).await {
                Err(error) if !is_not_found(&error) => return Err(error).during("delete old ReplicaSet"),
                _ => {}
            }
        }
        let mut current = None;
        if let Some(revision) = plan.revision {
            current = or_event(self.write_revision(deployment, &revision).await)?;
            if current.is_none() {
                return Ok(None);
            }
        }
        self.write_status(current.as_ref().unwrap_or(deployment), plan.status).await?;
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
                if is_controlled_by(&existing.metadata, uid) && hash::same_template(&template, &draft.template()) {
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
                let message = format!("Failed to create new replica set {:?}: {}", draft.name(), message_of(&error));
                let status = plan::status_after_failed_create(deployment, Timestamp::now(), message.clone());
                self.recorder.record(COMPONENT, deployment, EventType::Warning, "ReplicaSetCreateError", message);
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
        let message = format!("Scaled {direction} replica set {} from {from} to {to}", draft.name());
        self.recorder.record(COMPONENT, deployment, EventType::Normal, "ScalingReplicaSet", message);
    }

    /// The ReplicaSets of `deployment`, after adopting and releasing. `None` for a selector that selects everything.
    async fn claim_replica_sets(
        &self,
        deployment: &Deployment,
    ) -> Result<Option<Vec<Arc<ReplicaSet>>>, ReconcileError> {
        let Some(selector) = selector_of(&deployment.spec.selector) else {
            let message = "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
            self.recorder.record(COMPONENT, deployment, EventType::Warning, "SelectingAll", message);
            return Ok(None);
        };
        let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
        let namespace = namespace_of(deployment);
        let candidates = self.by_controller.controlled_or_orphaned(namespace, uid);
        claim_all(&self.client, deployment, &selector, candidates, None).await.map(Some)
    }

    fn pods_of(&self, key: &Key, replica_sets: &[Arc<ReplicaSet>]) -> Vec<Arc<Pod>> {
        let uids = replica_sets.iter().filter_map(|rs| rs.metadata.uid.as_deref());
        let keys: Vec<String> = uids.map(|uid| controlled_by(&key.namespace, uid)).collect();
        self.pods.get_any(&keys.iter().map(String::as_str).collect::<Vec<_>>())
    }

    async fn write_revision(&self, deployment: &Deployment, revision: &str) -> Result<Deployment, ReconcileError> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace_of(deployment));
        let mut wanted = deployment.clone();
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.insert(replica_set::REVISION.to_owned(), revision.to_owned());
        api.replace(name_of(deployment), &PostParams::default(), &wanted).await.during("annotate Deployment")
    }

    async fn write_status(&self, deployment: &Deployment, status: DeploymentStatus) -> Result<(), ReconcileError> {
        if !status::differs(deployment.status.as_ref(), &status) {
            return Ok(());
        }
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace_of(deployment));
        let wanted = Deployment { status: Some(status), ..deployment.clone() };
        match api.replace_status(name_of(deployment), &PostParams::default(), &wanted).await {
            Err(error) if is_not_found(&error) => Ok(()),
            written => or_event(written.during("update Deployment status")).map(drop),
        }
    }
}

fn name_of(deployment: &Deployment) -> &str {
    deployment.metadata.name.as_deref().unwrap_or_default()
}

fn namespace_of(deployment: &Deployment) -> &str {
    deployment.metadata.namespace.as_deref().unwrap_or_default()
}

/// The Deployment that controls `rs`.
fn owner_key(rs: &ReplicaSet) -> Option<Key> {
    let owner = controller_of(&rs.metadata)?;
    (owner.kind == "Deployment" && owner.api_version.starts_with("apps/"))
        .then(|| Key::new(rs.metadata.namespace.clone().unwrap_or_default(), owner.name.clone()))
}
