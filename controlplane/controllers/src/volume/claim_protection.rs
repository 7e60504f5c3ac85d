//! A claim goes once no pod uses it.
//!
//! Admission puts the finalizer on; this one puts it on what is older, and takes it off a claim
//! that is to go and that no pod on a node uses. A pod that is not on a node yet does not count:
//! nodes start no pod whose claim is being deleted.
//!
//! Source: `pkg/controller/volume/pvcprotection/pvc_protection_controller.go` at v1.37.

use std::sync::Arc;

use coracle_api::volume::CLAIM_PROTECTION;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client, api::ListParams};

use crate::{
    Manager,
    builder::Builder,
    cache::{By, Cache, Key},
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler},
    finalizer,
    pod::Pod,
    pod_claims::{by_claim, claims_of, uses},
    pod_state::node_name,
};

/// Claims worked on at once.
const WORKERS: usize = 4;

/// The controller; its state is in caches.
pub(super) struct ClaimProtection {
    client: Client,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    pods: By<Pod>,
}

impl ClaimProtection {
    /// Says what it reads and what wakes it.
    pub(super) fn setup(manager: &mut Manager, context: &Context) {
        let name = "persistentvolumeclaim-protection-controller";
        let mut controller = Builder::managed_by(manager, name, "pvcprotection").workers(WORKERS);
        controller.watches(|pod: &Pod| claims_of(pod).collect::<Vec<_>>());
        let this = Self {
            client: context.client.clone(),
            claims: controller.for_kind(),
            pods: controller.index(by_claim()),
        };
        controller.complete(Arc::new(this));
    }

    /// By what the informer shows, and if that shows no pod, by what there is: a pod that it does
    /// not show yet may be running.
    async fn is_used(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
    ) -> Result<bool, ReconcileError> {
        let shown = self.pods.get(&key.to_string());
        if shown.iter().any(|pod| is_used_by(claim, pod)) {
            return Ok(true);
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let present = pods.list(&ListParams::default()).await;
        let present = present.during("list the pods that may use a claim")?;
        Ok(present.iter().any(|pod| is_used_by(claim, pod)))
    }
}

impl Reconciler for ClaimProtection {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(claim) = self.claims.get(&key) else {
            return Ok(None);
        };
        if finalizer::is_to_go(&claim.metadata, CLAIM_PROTECTION) {
            if !self.is_used(&key, &claim).await? {
                let call = "let a claim go that nothing uses";
                finalizer::write(&self.client, &*claim, CLAIM_PROTECTION, false, call).await?;
            }
        } else if finalizer::is_missing(&claim.metadata, CLAIM_PROTECTION) {
            let call = "protect a claim";
            finalizer::write(&self.client, &*claim, CLAIM_PROTECTION, true, call).await?;
        }
        Ok(None)
    }
}

fn is_used_by(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    !node_name(pod).is_empty() && uses(pod, claim, is_shut_down(pod))
}

/// Its node has let go of its volumes, or somebody does not care: it only waits for the last of its
/// finalizers. That may be one of somebody who waits for the claim.
fn is_shut_down(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
        && pod.metadata.deletion_grace_period_seconds == Some(0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Upstream's cases: `pvc_protection_controller_test.go` at v1.37.
    #[test]
    fn a_pod_on_a_node_uses_its_claims() {
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]);
        let claim = |name: &str, owner: &Value| -> PersistentVolumeClaim {
            let metadata = json!({"namespace": "ns", "name": name, "ownerReferences": owner});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let (data, scratch) = (claim("data", &Value::Null), claim("p-scratch", &owner));
        let named = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        let ephemeral = json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}});
        let gone =
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        let going =
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
        for (claim, volume, node, meta, expect) in [
            (&data, &named, "n1", json!({}), true),
            (&data, &named, "", json!({}), false),
            (&data, &ephemeral, "n1", json!({}), false),
            (&data, &named, "n1", gone.clone(), true),
            (&scratch, &ephemeral, "n1", json!({}), true),
            (&scratch, &ephemeral, "n1", going, true),
            (&scratch, &ephemeral, "n1", gone, false),
        ] {
            let mut metadata = json!({"namespace": "ns", "name": "p", "uid": "u"});
            let more = meta.as_object().unwrap().clone();
            metadata.as_object_mut().unwrap().extend(more);
            let spec = json!({"nodeName": node, "containers": [], "volumes": [volume]});
            // A finished pod uses its claims as long as it is there.
            let pod = json!({"metadata": metadata, "spec": spec, "status": {"phase": "Succeeded"}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(is_used_by(claim, &pod), expect, "{volume} {node} {meta}");
        }
    }
}
