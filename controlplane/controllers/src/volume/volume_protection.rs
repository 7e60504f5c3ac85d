//! A volume goes once it is not bound.
//!
//! Admission puts the finalizer on; this one puts it on what is older, and takes it off a volume
//! that is to go and whose phase the binder has made another than Bound.
//!
//! Source: `pkg/controller/volume/pvprotection/pv_protection_controller.go` at v1.37.

use std::sync::Arc;

use coracle_api::volume::VOLUME_PROTECTION;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Client;

use crate::{
    Manager,
    builder::Builder,
    cache::{Cache, Key},
    context::Context,
    controller::{Outcome, Reconciler},
    finalizer,
};

/// The controller; its state is in a cache.
pub(super) struct VolumeProtection {
    client: Client,
    volumes: Arc<Cache<PersistentVolume>>,
}

impl VolumeProtection {
    /// Says what it reads and what wakes it.
    pub(super) fn setup(manager: &mut Manager, context: &Context) {
        let name = "persistentvolume-protection-controller";
        let mut controller = Builder::managed_by(manager, name, "pvprotection");
        let this = Self {
            client: context.client.clone(),
            volumes: controller.for_kind(),
        };
        controller.complete(Arc::new(this));
    }
}

impl Reconciler for VolumeProtection {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(volume) = self.volumes.get(&key) else {
            return Ok(None);
        };
        let is_bound = volume
            .status
            .as_ref()
            .is_some_and(|status| status.phase.as_deref() == Some("Bound"));
        if finalizer::is_to_go(&volume.metadata, VOLUME_PROTECTION) {
            if !is_bound {
                let call = "let a volume go that is not bound";
                finalizer::write(&self.client, &*volume, VOLUME_PROTECTION, false, call).await?;
            }
        } else if finalizer::is_missing(&volume.metadata, VOLUME_PROTECTION) {
            let call = "protect a volume";
            finalizer::write(&self.client, &*volume, VOLUME_PROTECTION, true, call).await?;
        }
        Ok(None)
    }
}
