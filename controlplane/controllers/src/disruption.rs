//! Counts for each PodDisruptionBudget how many of its pods are healthy, and how many of them may
//! be evicted.
//!
//! Watches budgets and pods, reads their owners, writes the status of budgets and takes stale
//! conditions from pods. It evicts nothing: the eviction subresource takes what is allowed here,
//! and notes it in the status until the pod is seen going.
//!
//! Source: `pkg/controller/disruption/disruption.go` at v1.37.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference},
    jiff::Timestamp,
};
use kube::{Api, Client, api::DynamicObject, core::Selector};

use crate::{
    Manager,
    builder::Builder,
    cache::{Cache, Key, labels::Selected},
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore_missing},
    errors::{is_conflict, message_of},
    event_recorder::component::ComponentRecorder,
    owner::controller_of,
    pod::Pod,
    served_kinds::ServedKinds,
    writes::Write,
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
    recorder: ComponentRecorder,
    kinds: Arc<ServedKinds>,
    budgets: Arc<Cache<PodDisruptionBudget>>,
    pods: Selected<Pod>,
    replica_sets: Arc<Cache<ReplicaSet>>,
    deployments: Arc<Cache<Deployment>>,
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
        let this = Self {
            client: context.client.clone(),
            recorder: context.recorder.of(COMPONENT),
            kinds: context.kinds.clone(),
            budgets: controller.for_kind(),
            pods: controller.selects(|budget| selector_of(budget).map(Cow::Borrowed)),
            replica_sets: controller.reads(),
            deployments: controller.reads(),
        };
        stale::setup(&mut controller, context);
        controller.complete(Arc::new(this));
    }
}

impl Reconciler for DisruptionController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(budget) = self.budgets.get(&key) else {
            return Ok(None);
        };
        match self.count(&key, &budget).await {
            Err(ReconcileError::Api { call, source }) if !is_conflict(&source) => {
                self.write(&budget, plan::failed(&budget, &message_of(&source)))
                    .await?;
                Err(ReconcileError::Api { call, source })
            }
            // What is wrong is in the status. A change of a pod or of the budget brings it back
            // here.
            Err(ReconcileError::NotYet(why)) => {
                let message = format!("Failed to calculate the number of expected pods: {why}");
                self.recorder
                    .warning(&*budget, "CalculateExpectedPodCountFailed", message);
                self.write(&budget, plan::failed(&budget, &why)).await?;
                Ok(None)
            }
            other => other,
        }
    }
}

impl DisruptionController {
    async fn count(&self, key: &Key, budget: &PodDisruptionBudget) -> Outcome {
        let pods = self.pods.by(&key.namespace, selector_of(budget));
        if pods.is_empty() {
            self.recorder
                .normal(budget, "NoPods", "No matching pods found");
        }
        let scale = match budget.spec.as_ref().is_some_and(plan::needs_scale) {
            true => self.scale_of_owners(&pods).await?,
            false => Scale::default(),
        };
        if scale.is_partial {
            self.recorder
                .warning(budget, "UnmanagedPods", unmanaged(budget));
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
            self.recorder.warning(pod.as_ref(), "NotDeleted", message);
        }
        self.write(budget, plan.status).await?;
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
            replicas: scales.into_values().fold(0, i32::saturating_add),
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
        budget: &PodDisruptionBudget,
        status: PodDisruptionBudgetStatus,
    ) -> Result<(), ReconcileError> {
        let write = Write::to(&self.client, budget, "update PodDisruptionBudget status");
        let written = write.status(|budget| budget.status = Some(status));
        written.await.map(drop)
    }
}

fn selector_of(budget: &PodDisruptionBudget) -> Option<&LabelSelector> {
    budget.spec.as_ref()?.selector.as_ref()
}

fn unmanaged(budget: &PodDisruptionBudget) -> String {
    let selector = selector_of(budget).cloned();
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of \
         the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please \
         set \".spec.minAvailable\" field of the PDB to an integer value.",
        selector.unwrap_or_default()
    )
}
