//! Does what the plans say.

use std::sync::Arc;

use coracle_api::volume::{BETA_STORAGE_PROVISIONER, STORAGE_PROVISIONER, annotation, claim_of};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use serde_json::json;

use super::{
    BinderController, bind, claim_key,
    claim_plan::{self, ClaimPlan, Seen, Tell},
    volume_plan::{self, Reclaim, VolumePlan},
};
use crate::{
    cache::Key,
    controller::{CallContext, ReconcileError, ignore_missing},
    pod_state::{is_finished, node_name},
};

impl BinderController {
    pub(super) async fn sync_claim(
        &self,
        key: &Key,
        claim: Arc<PersistentVolumeClaim>,
    ) -> Result<(), ReconcileError> {
        let volumes = self.volumes.filter(|_| true);
        let pods = self.pods.filter(&key.to_string(), |pod| {
            node_name(pod).is_empty() && !is_finished(pod)
        });
        let unscheduled: Vec<_> = pods
            .iter()
            .filter_map(|pod| pod.metadata.name.clone())
            .collect();
        let plan = claim_plan::plan(&Seen {
            claim: &claim,
            volumes: &volumes,
            classes: &self.classes.all(),
            unscheduled: &unscheduled,
        });
        let plan = plan.map_err(|why| {
            ReconcileError::NotYet(format!(
                "error finding PV for claim {:?}: {why}",
                key.to_string()
            ))
        })?;
        match plan {
            ClaimPlan::Bind(volume) => self.bind(&volume, &claim).await,
            ClaimPlan::Assign(class) => {
                let patch = json!({"spec": {"storageClassName": class}});
                let call = "give a claim the default class";
                self.claims.patch(&claim, Some(patch), call).await.map(drop)
            }
            ClaimPlan::Provision(provisioner) => self.provision(&claim, &provisioner).await,
            ClaimPlan::Wait(tell) => {
                tell.into_iter().for_each(|tell| self.tell(&claim, tell));
                let patch = bind::status_of_claim(&claim, "Pending", None);
                let call = "write the status of a claim";
                self.claims.patch(&claim, patch, call).await.map(drop)
            }
            ClaimPlan::Tell(tell) => {
                self.tell(&claim, tell);
                Ok(())
            }
            ClaimPlan::Lost(tell) => self.lose(&claim, tell).await,
            ClaimPlan::Misbound(tell) => {
                let message = tell.message.clone();
                self.tell(&claim, tell);
                Err(ReconcileError::NotYet(message))
            }
        }
    }

    fn tell(&self, claim: &PersistentVolumeClaim, tell: Tell) {
        if tell.is_warning {
            self.recorder.warning(claim, tell.reason, tell.message);
        } else {
            self.recorder.normal(claim, tell.reason, tell.message);
        }
    }

    /// Said once.
    async fn lose(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        tell: Tell,
    ) -> Result<(), ReconcileError> {
        let phase = claim.status.as_ref().and_then(|it| it.phase.as_deref());
        if phase == Some("Lost") {
            return Ok(());
        }
        let patch = bind::status_of_claim(claim, "Lost", None);
        let call = "write that a claim has lost its volume";
        if self.claims.patch(claim, patch, call).await?.is_some() {
            self.tell(claim, tell);
        }
        Ok(())
    }

    /// The volume first: from then on nobody else can have it. What is there already is not written
    /// again, and nothing follows a write that fails.
    async fn bind(
        &self,
        volume: &Arc<PersistentVolume>,
        claim: &Arc<PersistentVolumeClaim>,
    ) -> Result<(), ReconcileError> {
        let patch = bind::volume(volume, claim);
        let call = "bind a volume to a claim";
        let Some(volume) = self.volumes.patch(volume, patch, call).await? else {
            return Ok(());
        };
        let patch = bind::phase_of_volume(&volume, "Bound", "");
        let call = "write the phase of a volume";
        let Some(volume) = self.volumes.patch(&volume, patch, call).await? else {
            return Ok(());
        };
        let patch = bind::claim(claim, &volume);
        let call = "bind a claim to a volume";
        let Some(claim) = self.claims.patch(claim, patch, call).await? else {
            return Ok(());
        };
        let patch = bind::status_of_claim(&claim, "Bound", Some(&volume));
        let call = "write the status of a claim";
        self.claims.patch(&claim, patch, call).await.map(drop)
    }

    async fn provision(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        provisioner: &str,
    ) -> Result<(), ReconcileError> {
        let names = [STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER];
        let is_asked = names
            .iter()
            .all(|name| annotation(&claim.metadata, name) == Some(provisioner));
        let patch = (!is_asked).then(|| {
            let annotations = names.map(|name| (name.to_owned(), provisioner.into()));
            let annotations: serde_json::Map<_, _> = annotations.into_iter().collect();
            json!({"metadata": {"annotations": annotations}})
        });
        let call = "ask a provisioner for a volume";
        if self.claims.patch(claim, patch, call).await?.is_some() {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
                 system administrator. If volume creation is delayed, please verify that the provisioner is running and \
                 correctly registered."
            );
            self.recorder
                .normal(&**claim, "ExternalProvisioning", message);
        }
        Ok(())
    }

    pub(super) async fn sync_volume(
        &self,
        volume: Arc<PersistentVolume>,
    ) -> Result<(), ReconcileError> {
        let claim = self.claim_of(&volume).await?;
        match volume_plan::plan(&volume, claim.as_deref()) {
            VolumePlan::Phase(phase) => self.write_phase(&volume, phase, "").await.map(drop),
            VolumePlan::WakeClaim => {
                claim_key(&volume)
                    .into_iter()
                    .for_each(|key| self.queue.add(key));
                Ok(())
            }
            VolumePlan::Mismatch => {
                self.tell_mismatch(&volume, claim.as_deref());
                Ok(())
            }
            VolumePlan::Release(reclaim) => self.release(&volume, reclaim).await,
            VolumePlan::Unbind => {
                let call = "take a volume back from a claim that has another";
                let patch = bind::unbound(&volume);
                let Some(volume) = self.volumes.patch(&volume, Some(patch), call).await? else {
                    return Ok(());
                };
                self.write_phase(&volume, "Available", "").await.map(drop)
            }
        }
    }

    /// The claim that a volume is given to, by name and uid. Where none is seen the API server is
    /// asked: what is reclaimed wrongly is lost. It is not asked again about what is released.
    async fn claim_of(
        &self,
        volume: &PersistentVolume,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, ReconcileError> {
        let uid = claim_of(volume).and_then(|reference| reference.uid.as_deref());
        let (Some(key), Some(uid)) = (claim_key(volume), uid) else {
            return Ok(None);
        };
        let is_it = |claim: &PersistentVolumeClaim| claim.metadata.uid.as_deref() == Some(uid);
        let seen = self.claims.get(&key);
        if let Some(claim) = seen.clone().filter(|claim| is_it(claim)) {
            return Ok(Some(claim));
        }
        if uid.is_empty() || (seen.is_none() && volume_plan::is_released(volume)) {
            return Ok(None);
        }
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &key.namespace);
        let present = ignore_missing(claims.get(&key.name).await);
        let present = present.during("read the claim of a volume")?;
        Ok(present.filter(is_it).map(Arc::new))
    }

    fn tell_mismatch(&self, volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) {
        let Some(claim) = claim else { return };
        let (of_claim, of_volume) = (&claim.metadata.name, &volume.metadata.name);
        let message = format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible volumeMode.",
            of_claim.as_deref().unwrap_or_default()
        );
        self.recorder.warning(volume, "VolumeMismatch", message);
        let message = format!(
            "Cannot bind PersistentVolume {:?} to requested PersistentVolumeClaim due to incompatible volumeMode.",
            of_volume.as_deref().unwrap_or_default()
        );
        self.recorder.warning(claim, "VolumeMismatch", message);
    }

    async fn release(
        &self,
        volume: &Arc<PersistentVolume>,
        reclaim: Reclaim,
    ) -> Result<(), ReconcileError> {
        let released = match volume_plan::is_released(volume) {
            // What went wrong stays to be seen.
            true => Some(volume.clone()),
            false => self.write_phase(volume, "Released", "").await?,
        };
        let (Some(volume), Reclaim::Fail { reason, message }) = (released, reclaim) else {
            return Ok(());
        };
        let phase = volume.status.as_ref().and_then(|it| it.phase.as_deref());
        if phase != Some("Failed")
            && self
                .write_phase(&volume, "Failed", &message)
                .await?
                .is_some()
        {
            self.recorder.warning(&*volume, reason, message);
        }
        Ok(())
    }

    async fn write_phase(
        &self,
        volume: &Arc<PersistentVolume>,
        phase: &str,
        message: &str,
    ) -> Result<Option<Arc<PersistentVolume>>, ReconcileError> {
        let patch = bind::phase_of_volume(volume, phase, message);
        let call = "write the phase of a volume";
        self.volumes.patch(volume, patch, call).await
    }
}
