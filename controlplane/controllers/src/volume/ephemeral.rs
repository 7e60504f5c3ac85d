//! A claim for each volume of a pod that lives with it (`ephemeral`): named after both, owned by
//! the pod, so that it goes with it.
//!
//! A claim of that name that belongs to somebody else is left alone, and the pod is told.
//!
//! Source: `pkg/controller/volume/ephemeral/controller.go` at v1.37.

use std::sync::Arc;

use coracle_client::own_writes::OwnWrites;
use k8s_openapi::api::core::v1::{self, PersistentVolumeClaim};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Key},
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore_missing},
    errors::message_of,
    event_recorder::component::ComponentRecorder,
    owner::controller_reference,
    pod::Pod,
    pod_claims::{by_claim, ephemeral_claim, ephemeral_volumes, is_for},
    pod_state::is_terminating,
};

/// Pods worked on at once.
const WORKERS: usize = 4;

/// The controller; its state is in caches.
pub(super) struct EphemeralController {
    client: Client,
    recorder: ComponentRecorder,
    pods: Arc<Cache<Pod>>,
    by_claim: By<Pod>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    own_writes: OwnWrites<PersistentVolumeClaim>,
}

impl EphemeralController {
    /// Says what it reads and what wakes it.
    pub(super) fn setup(manager: &mut Manager, context: &Context) {
        let name = "ephemeral-volume-controller";
        let mut controller =
            Builder::managed_by(manager, name, "ephemeral_volume").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.of("ephemeral_volume"),
            pods: controller.reads(),
            by_claim: controller.index(by_claim()),
            claims: controller.reads(),
            own_writes: controller.own_writes(),
        });
        controller.on_change(&this, Self::pod_changed);
        controller.on_change(&this, Self::claim_changed);
        controller.complete(this);
    }

    /// The volumes of a pod never change.
    #[allow(clippy::unused_self, reason = "the shape of a handler")]
    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        if let Change::Added(pod) = change {
            wake(pod, queue);
        }
    }

    /// One that is deleted while its pod is there is made anew.
    fn claim_changed(&self, change: &Change<'_, PersistentVolumeClaim>, queue: &Queue) {
        if let Change::Deleted(claim) = change {
            let key = Key::of(claim.as_ref()).to_string();
            self.by_claim
                .get(&key)
                .iter()
                .for_each(|pod| wake(pod, queue));
        }
    }

    /// # Errors
    /// What the pod is told.
    async fn ensure(&self, key: &Key, pod: &Pod, volume: &str) -> Result<(), ReconcileError> {
        let claim = Key::new(key.namespace.as_str(), ephemeral_claim(&key.name, volume));
        if let Some(present) = self.claims.get(&claim) {
            return if is_for(&present, pod) {
                Ok(())
            } else {
                let why = format!("PVC {claim} was not created for pod {key} (pod is not owner)");
                Err(ReconcileError::NotYet(why))
            };
        }
        // Templates are not held: they are read once.
        let pods: Api<v1::Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let whole = ignore_missing(pods.get(&key.name).await).during("read a pod's volumes")?;
        let Some(wanted) = whole.and_then(|whole| claim_for(&whole, pod, volume)) else {
            return Ok(());
        };
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &key.namespace);
        let params = PostParams::default();
        let create = claims.create(&params, &wanted);
        let created = self.own_writes.write(key, create).await;
        created.map(drop).map_err(|error| {
            let name = claim.name.as_str();
            ReconcileError::NotYet(format!("create PVC {name}: {}", message_of(&error)))
        })
    }
}

impl Reconciler for EphemeralController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(pod) = self.pods.get(&key).filter(|pod| !is_terminating(pod)) else {
            return Ok(None);
        };
        for volume in ephemeral_volumes(&pod) {
            if let Err(error) = self.ensure(&key, &pod, volume).await {
                let message = format!("ephemeral volume {volume}: {error}");
                self.recorder.warning(&*pod, "FailedBinding", message);
                return Err(error);
            }
        }
        Ok(None)
    }
}

fn wake(pod: &Pod, queue: &Queue) {
    if !is_terminating(pod) && ephemeral_volumes(pod).next().is_some() {
        queue.add(Key::of(pod));
    }
}

/// The claim for a volume, unless the pod is another by now.
fn claim_for(whole: &v1::Pod, pod: &Pod, volume: &str) -> Option<PersistentVolumeClaim> {
    if whole.metadata.uid != pod.metadata.uid {
        return None;
    }
    let volumes = whole.spec.as_ref()?.volumes.as_ref()?;
    let source = volumes.iter().find(|one| one.name == volume)?;
    let template = source.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let own = template.metadata.as_ref();
    let name = whole.metadata.name.as_deref().unwrap_or_default();
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(ephemeral_claim(name, volume)),
            owner_references: Some(vec![controller_reference(whole)]),
            annotations: own.and_then(|meta| meta.annotations.clone()),
            labels: own.and_then(|meta| meta.labels.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_made_after_its_template_and_owned_by_the_pod() {
        let object = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {
                "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }}}]},
        });
        let whole: v1::Pod = serde_json::from_value(object.clone()).unwrap();
        let pod: Pod = serde_json::from_value(object).unwrap();
        let claim = json!(claim_for(&whole, &pod, "scratch").unwrap());
        assert_eq!(
            claim["metadata"],
            json!({"name": "p-scratch", "labels": {"a": "b"}, "annotations": {"c": "d"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u",
                "controller": true, "blockOwnerDeletion": true}]})
        );
        assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteOnce"]));
        assert!(claim_for(&whole, &pod, "other").is_none());
        let mut namesake = pod;
        namesake.metadata.uid = Some("another".to_owned());
        assert!(claim_for(&whole, &namesake, "scratch").is_none());
    }
}
