//! A VolumeAttributesClass goes once no claim and no volume names it.
//!
//! By what informers show, as upstream: a claim that comes at the same time may find its class
//! gone, and then waits.
//!
//! Source: `pkg/controller/volume/vacprotection/vac_protection_controller.go` at v1.37.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::VolumeAttributesClass,
};
use kube::Client;

use crate::{
    Manager,
    builder::Builder,
    cache::{By, Cache, Index, Key},
    context::Context,
    controller::{Outcome, Reconciler},
    finalizer,
};

const FINALIZER: &str = "kubernetes.io/vac-protection";

/// The controller; its state is in caches.
pub(super) struct AttributesProtection {
    client: Client,
    classes: Arc<Cache<VolumeAttributesClass>>,
    claims: By<PersistentVolumeClaim>,
    volumes: By<PersistentVolume>,
}

impl AttributesProtection {
    /// Says what it reads and what wakes it.
    pub(super) fn setup(manager: &mut Manager, context: &Context) {
        let name = "volumeattributesclass-protection-controller";
        let mut controller = Builder::managed_by(manager, name, "vacprotection");
        controller.watches(|claim: &PersistentVolumeClaim| keys(named_by_claim(claim)));
        controller.watches(|volume: &PersistentVolume| keys(named_by_volume(volume)));
        let name = "volumeAttributesClassName";
        let by_claim = Index::by_key(name, |claim: &PersistentVolumeClaim| {
            keys(named_by_claim(claim))
        });
        let by_volume = Index::by_key(name, |volume: &PersistentVolume| {
            keys(named_by_volume(volume))
        });
        let this = Self {
            client: context.client.clone(),
            classes: controller.for_kind(),
            claims: controller.index(by_claim),
            volumes: controller.index(by_volume),
        };
        controller.complete(Arc::new(this));
    }
}

impl Reconciler for AttributesProtection {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(class) = self.classes.get(&key) else {
            return Ok(None);
        };
        if finalizer::is_to_go(&class.metadata, FINALIZER) {
            if self.volumes.count(&key.name) == 0 && self.claims.count(&key.name) == 0 {
                let call = "let a class go that nothing names";
                finalizer::write(&self.client, &*class, FINALIZER, false, call).await?;
            }
        } else if finalizer::is_missing(&class.metadata, FINALIZER) {
            let call = "protect a VolumeAttributesClass";
            finalizer::write(&self.client, &*class, FINALIZER, true, call).await?;
        }
        Ok(None)
    }
}

fn keys<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Key> {
    let mut names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| Key::new("", name)).collect()
}

/// What it asks for, what it has, and what is being made of it.
fn named_by_claim(claim: &PersistentVolumeClaim) -> impl Iterator<Item = &str> {
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    let asked = spec.and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let given = status.and_then(|it| it.current_volume_attributes_class_name.as_deref());
    let change = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = change.and_then(|it| it.target_volume_attributes_class_name.as_deref());
    [asked, given, target].into_iter().flatten()
}

fn named_by_volume(volume: &PersistentVolume) -> Option<&str> {
    volume
        .spec
        .as_ref()?
        .volume_attributes_class_name
        .as_deref()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_names_what_it_asks_for_has_and_becomes() {
        let claim = json!({"spec": {"volumeAttributesClassName": "gold"}, "metadata": {},
            "status": {"currentVolumeAttributesClassName": "silver",
                "modifyVolumeStatus": {"status": "InProgress", "targetVolumeAttributesClassName": "gold"}}});
        let claim = serde_json::from_value(claim).unwrap();
        assert_eq!(
            keys(named_by_claim(&claim)),
            [Key::new("", "gold"), Key::new("", "silver")]
        );
        let volume = json!({"metadata": {}, "spec": {"volumeAttributesClassName": ""}});
        let volume = serde_json::from_value(volume).unwrap();
        assert_eq!(keys(named_by_volume(&volume)), []);
    }
}
