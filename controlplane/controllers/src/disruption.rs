//! Counts for each PodDisruptionBudget how many of its pods are healthy, and how many of them may
//! be evicted.
//!
//! Watches budgets and pods, reads their owners, writes the status of budgets and takes stale
//! conditions from pods. It evicts nothing: the eviction subresource takes what is allowed here,
//! and notes it in the status until the pod is seen going.
//!
//! Source: `pkg/controller/disruption/disruption.go` at v1.37.

use std::{collections::HashMap, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    core::Selector,
};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{
        By, Cache, Change, Index, Key,
        labels::{Pair, Selected, pair_key, pair_of, selecting},
    },
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore_missing},
    errors::{is_conflict, message_of},
    event_recorder::{EventRecorder, EventType},
    owner::controller_of,
    pod::Pod,
    served_kinds::ServedKinds,
};

mod plan;
mod stale;
#[cfg(test)]
mod tests;

use plan::Observed;

/// Budgets worked on at once.
const WORKERS: usize = 2;
const COMPONENT: &str = "controllermanager";

/// The controller; all its state is in caches.
pub(crate) struct DisruptionController {
    client: Client,
    recorder: EventRecorder,
    kinds: Arc<ServedKinds>,
    budgets: Arc<Cache<PodDisruptionBudget>>,
    selecting: By<PodDisruptionBudget>,
    pods: Selected<Pod>,
    replica_sets: Arc<Cache<ReplicaSet>>,
    deployments: Arc<Cache<Deployment>>,
    /// Pods that are said to be disrupted.
    disrupted: Arc<Queue>,
}

/// What the pods' owners want.
#[derive(Default)]
struct Scale {
    replicas: i32,
    /// Whether some pods have no owner.
    is_partial: bool,
}

impl DisruptionController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller =
            Builder::managed_by(manager, "disruption-controller", "disruption").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.clone(),
            kinds: context.kinds.clone(),
            budgets: controller.for_kind(),
            selecting: controller.index(Index::new(
                "selects",
                |budget: &PodDisruptionBudget, put| {
                    put(&pair_key(
                        budget.metadata.namespace.as_deref().unwrap_or_default(),
                        asked_pair(budget),
                    ));
                },
            )),
            pods: controller.selected(),
            replica_sets: controller.reads(),
            deployments: controller.reads(),
            disrupted: context.queue("stale_pod_disruption"),
        });
        controller.on_change(&this, Self::pod_changed);
        let stale = stale::Stale {
            client: context.client.clone(),
            pods: controller.reads(),
        };
        controller.also(
            "stale-pod-disruption",
            this.disrupted.clone(),
            Arc::new(stale),
        );
        controller.complete(this);
    }

    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        if let Change::Updated { old, new } = change
            && old.metadata.labels != new.metadata.labels
        {
            self.wake_budgets(old, queue);
        }
        let pod = change.latest();
        self.wake_budgets(pod, queue);
        if stale::time_left(pod, Timestamp::now()).is_some() {
            self.disrupted.add(Key::of(pod.as_ref()));
        }
    }

    fn wake_budgets(&self, pod: &Pod, queue: &Queue) {
        let Some(labels) = &pod.metadata.labels else {
            return;
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        for budget in selecting(&self.selecting, namespace, labels) {
            if plan::selects(&budget, labels) {
                queue.add(Key::of(budget.as_ref()));
            }
        }
    }
}

impl Reconciler for DisruptionController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(budget) = self.budgets.get(&key) else {
            return Ok(None);
        };
        match self.count(&key, &budget).await {
            Err(ReconcileError::Api { call, source }) if !is_conflict(&source) => {
                self.write(&key, &budget, plan::failed(&budget, &message_of(&source)))
                    .await?;
                Err(ReconcileError::Api { call, source })
            }
            // What is wrong is in the status. A change of a pod or of the budget brings it back
            // here.
            Err(ReconcileError::NotYet(why)) => {
                let message = format!("Failed to calculate the number of expected pods: {why}");
                self.note(
                    &budget,
                    EventType::Warning,
                    "CalculateExpectedPodCountFailed",
                    message,
                );
                self.write(&key, &budget, plan::failed(&budget, &why))
                    .await?;
                Ok(None)
            }
            other => other,
        }
    }
}

impl DisruptionController {
    async fn count(&self, key: &Key, budget: &PodDisruptionBudget) -> Outcome {
        let pods = self.pods.get(&key.namespace, asked_pair(budget), |pod| {
            pod.metadata
                .labels
                .as_ref()
                .is_some_and(|labels| plan::selects(budget, labels))
        });
        if pods.is_empty() {
            self.note(
                budget,
                EventType::Normal,
                "NoPods",
                "No matching pods found".to_owned(),
            );
        }
        let scale = match budget.spec.as_ref().is_some_and(plan::needs_scale) {
            true => self.scale_of_owners(&pods).await?,
            false => Scale::default(),
        };
        if scale.is_partial {
            self.note(
                budget,
                EventType::Warning,
                "UnmanagedPods",
                unmanaged(budget),
            );
        }
        let seen = Observed {
            budget,
            pods: &pods,
            scale: scale.replicas,
            now: Timestamp::now(),
        };
        let plan = plan::plan(&seen);
        for pod in &plan.overdue {
            let message = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
            self.recorder.record(
                COMPONENT,
                pod.as_ref(),
                EventType::Warning,
                "NotDeleted",
                message,
            );
        }
        self.write(key, budget, plan.status).await?;
        Ok(plan.again)
    }

    /// The replicas that the controllers of the pods want, each controller once.
    async fn scale_of_owners(&self, pods: &[Arc<Pod>]) -> Result<Scale, ReconcileError> {
        let mut is_partial = false;
        let mut looked_up: HashMap<&str, (String, i32)> = HashMap::new();
        for pod in pods {
            let Some(owner) = controller_of(&pod.metadata) else {
                is_partial = true;
                continue;
            };
            if looked_up.contains_key(owner.uid.as_str()) {
                continue;
            }
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let scale = match self.cached_scale(namespace, owner) {
                Some(scale) => Some(scale),
                None => self.live_scale(namespace, owner).await?,
            };
            let scale = scale.ok_or_else(|| {
                ReconcileError::NotYet(format!("found no controllers for pod {name:?}"))
            })?;
            looked_up.insert(&owner.uid, scale);
        }
        // Several ReplicaSets of one Deployment lead to that Deployment.
        let scales: HashMap<String, i32> = looked_up.into_values().collect();
        Ok(Scale {
            replicas: scales.values().sum(),
            is_partial,
        })
    }

    /// UID and replicas of the Deployment or ReplicaSet behind a pod.
    fn cached_scale(&self, namespace: &str, owner: &OwnerReference) -> Option<(String, i32)> {
        if owner.kind != "ReplicaSet" || !owner.api_version.starts_with("apps/") {
            return None;
        }
        let rs = self
            .replica_sets
            .get(&Key::new(namespace, owner.name.as_str()))?;
        if rs.metadata.uid.as_deref() != Some(&owner.uid) {
            return None;
        }
        let deployment = controller_of(&rs.metadata)
            .filter(|above| above.kind == "Deployment" && above.api_version.starts_with("apps/"));
        let Some(above) = deployment else {
            return Some((owner.uid.clone(), rs.spec.replicas.unwrap_or(1)));
        };
        let deployment = self
            .deployments
            .get(&Key::new(namespace, above.name.as_str()))?;
        (deployment.metadata.uid.as_deref() == Some(&above.uid))
            .then(|| (above.uid.clone(), deployment.spec.replicas.unwrap_or(1)))
    }

    /// UID and replicas of an owner of any kind, by its scale subresource.
    async fn live_scale(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<Option<(String, i32)>, ReconcileError> {
        let group = owner
            .api_version
            .rsplit_once('/')
            .map_or("", |(group, _)| group);
        if self.kinds.get(group, &owner.kind).is_none() {
            self.kinds.refresh().await.during("discover kinds")?;
        }
        let Some(kind) = self.kinds.get(group, &owner.kind) else {
            let why = format!(
                "no matches for kind {:?} in version {:?}",
                owner.kind, owner.api_version
            );
            return Err(ReconcileError::NotYet(why));
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource);
        let scale = match api.get_scale(&owner.name).await {
            // Not the object is missing but the path.
            Err(kube::Error::Api(status))
                if status.code == 404
                    && status
                        .details
                        .as_ref()
                        .is_none_or(|details| details.name.is_empty()) =>
            {
                let resource = [kind.resource.plural.as_str(), group].join(".");
                let resource = resource.trim_end_matches('.');
                return Err(ReconcileError::NotYet(format!(
                    "{resource} does not implement the scale subresource"
                )));
            }
            found => ignore_missing(found).during("get the scale of an owner")?,
        };
        let Some(scale) = scale.filter(|scale| scale.metadata.uid.as_deref() == Some(&owner.uid))
        else {
            return Ok(None);
        };
        Ok(Some((
            owner.uid.clone(),
            scale.spec.and_then(|spec| spec.replicas).unwrap_or(0),
        )))
    }

    /// The version in the object guards against an eviction that the cache has not seen.
    async fn write(
        &self,
        key: &Key,
        budget: &PodDisruptionBudget,
        status: PodDisruptionBudgetStatus,
    ) -> Result<(), ReconcileError> {
        if budget.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &key.namespace);
        let wanted = PodDisruptionBudget {
            status: Some(status),
            ..budget.clone()
        };
        let written = api
            .replace_status(&key.name, &PostParams::default(), &wanted)
            .await;
        ignore_missing(written)
            .during("update PodDisruptionBudget status")
            .map(drop)
    }

    fn note(
        &self,
        budget: &PodDisruptionBudget,
        kind: EventType,
        reason: &'static str,
        message: String,
    ) {
        self.recorder
            .record(COMPONENT, budget, kind, reason, message);
    }
}

/// A pair of labels that every pod of the budget has.
fn asked_pair(budget: &PodDisruptionBudget) -> Option<Pair<'_>> {
    pair_of(budget.spec.as_ref()?.selector.as_ref()?)
}

fn unmanaged(budget: &PodDisruptionBudget) -> String {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of \
         the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please \
         set \".spec.minAvailable\" field of the PDB to an integer value.",
        selector.unwrap_or_default()
    )
}
