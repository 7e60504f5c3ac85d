//! Makes volumes of directories of nodes: for a claim that the scheduler has given a node, a volume
//! that is there and nowhere else, and takes it back when nobody needs it any more.
//!
//! A provisioner like those outside of the cluster, and asked in their way: by the annotation that
//! the binder puts on a claim. It touches no disk. The node makes the directory as a pod mounts it
//! first, and removes it as [`local_path::due`] says, before it takes the volume's finalizer off.
//! Where the Node object is gone nobody can, and the finalizer is taken off here; what is on that
//! machine's disk stays there.
//!
//! A volume is deleted only if its phase is Released, its policy says so, and the API server says
//! that its claim is gone or has another.
//!
//! A claim that grows is given what it asks for at once: a directory has as much as its disk has.
//!
//! Source: `sigs.k8s.io/sig-storage-lib-external-provisioner/controller` at v13 and
//! `kubernetes-csi/external-resizer` for the protocol and the words of Events.

mod plan;
mod resize;

use std::sync::Arc;

use coracle_api::volume::{
    SELECTED_NODE, annotation, claim_of, class_of_claim,
    local_path::{self, Due},
    volume_of,
};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use self::plan::{Plan, Seen};
use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Index, Key},
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore, ignore_missing},
    errors::is_already_exists,
    event_recorder::component::ComponentRecorder,
    finalizer,
    writes::Write,
};

/// Keys worked on at once.
const WORKERS: usize = 4;

/// The controller; its state is in caches. Keys without a namespace are volumes.
pub(super) struct LocalPathController {
    client: Client,
    recorder: ComponentRecorder,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    by_node: By<PersistentVolume>,
    classes: Arc<Cache<StorageClass>>,
    nodes: Arc<Cache<Node>>,
}

impl LocalPathController {
    /// Says what it reads and what wakes it.
    pub(super) fn setup(manager: &mut Manager, context: &Context) {
        let name = "local-path-provisioner";
        let mut controller = Builder::managed_by(manager, name, "local_path").workers(WORKERS);
        let by_node = Index::new("local-path node", |volume: &PersistentVolume, put| {
            node_of(volume).into_iter().for_each(put);
        });
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.of(local_path::PROVISIONER),
            claims: controller.for_kind(),
            volumes: controller.for_kind(),
            by_node: controller.index(by_node),
            classes: controller.reads(),
            nodes: controller.reads(),
        });
        controller.on_change(&this, Self::node_changed);
        controller.complete(this);
    }

    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        if let Change::Deleted(node) = change {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let volumes = self.by_node.get(name);
            volumes
                .iter()
                .for_each(|volume| queue.add(Key::of(volume.as_ref())));
        }
    }

    /// A claim that has a volume and asks for more: the volume first, as resizers outside do.
    async fn resize(&self, claim: &PersistentVolumeClaim) -> Result<(), ReconcileError> {
        let volume = self.volumes.get(&Key::new("", volume_of(claim)));
        let Some(volume) = volume.filter(|volume| plan::is_own(volume)) else {
            return Ok(());
        };
        if let Some(patch) = resize::volume(claim, &volume) {
            let call = "make a volume larger";
            let write = Write::to(&self.client, &*volume, call).if_unchanged();
            if write.patch(patch).await?.is_none() {
                return Ok(());
            }
        }
        if let Some(patch) = resize::claim(claim, &volume) {
            let call = "write that a claim has more";
            let write = Write::to(&self.client, claim, call).if_unchanged();
            if write.patch_status(patch).await?.is_some() {
                let message = "Resize volume succeeded";
                self.recorder
                    .normal(claim, "VolumeResizeSuccessful", message);
            }
        }
        Ok(())
    }

    async fn provision(&self, claim: &PersistentVolumeClaim) -> Result<(), ReconcileError> {
        let node = annotation(&claim.metadata, SELECTED_NODE).unwrap_or_default();
        let class = self.classes.get(&Key::new("", class_of_claim(claim)));
        let plan = plan::plan(&Seen {
            claim,
            class: class.as_deref(),
            node: self.nodes.get(&Key::new("", node)).as_deref(),
        });
        match plan {
            Plan::Nothing => Ok(()),
            Plan::Fail(why) => {
                self.failed(claim, &why);
                Ok(())
            }
            // Another node may do.
            Plan::Reschedule(why) => {
                self.failed(claim, &why);
                let patch = json!({"metadata": {"annotations": {SELECTED_NODE: null}}});
                let call = "have a claim given another node";
                let write = Write::to(&self.client, claim, call).if_unchanged();
                write.patch(patch).await.map(drop)
            }
            Plan::Make(volume) => self.make(claim, *volume).await,
        }
    }

    fn failed(&self, claim: &PersistentVolumeClaim, why: &str) {
        let class = class_of_claim(claim);
        let message = format!("failed to provision volume with StorageClass {class:?}: {why}");
        self.recorder.warning(claim, "ProvisioningFailed", message);
    }

    /// Its name is the claim's alone, so it is made once.
    async fn make(
        &self,
        claim: &PersistentVolumeClaim,
        volume: PersistentVolume,
    ) -> Result<(), ReconcileError> {
        let name = volume.metadata.name.clone().unwrap_or_default();
        if self.volumes.get(&Key::new("", name.as_str())).is_some() {
            return Ok(());
        }
        let key = Key::of(claim).to_string();
        let message = format!("External provisioner is provisioning volume for claim {key:?}");
        self.recorder.normal(claim, "Provisioning", message);
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let created = volumes.create(&PostParams::default(), &volume).await;
        let created = ignore(created, is_already_exists).during("create a volume for a claim");
        if created?.is_some() {
            let message = format!("Successfully provisioned volume {name}");
            self.recorder
                .normal(claim, "ProvisioningSucceeded", message);
        }
        Ok(())
    }

    async fn look_after(&self, volume: &PersistentVolume) -> Result<(), ReconcileError> {
        if plan::is_to_be_deleted(volume) && self.is_unclaimed(volume).await? {
            let call = "delete a volume that is released";
            let write = Write::to(&self.client, volume, call).if_unchanged();
            return write.delete(DeleteParams::default()).await;
        }
        if local_path::due(volume) == Due::Keep {
            return Ok(());
        }
        let Some(node) = node_of(volume) else {
            return Ok(());
        };
        if !self.is_gone(node).await? {
            return Ok(());
        }
        let call = "let a volume go whose node is gone";
        finalizer::write(&self.client, volume, local_path::FINALIZER, false, call).await?;
        let directory = plan::directory_of(volume);
        let message = format!(
            "node {node:?} is gone: its directory {directory:?} was not removed, and is still there if its disk is"
        );
        self.recorder.warning(volume, "VolumeFailedDelete", message);
        Ok(())
    }

    /// The API server is asked: it is the last moment.
    async fn is_unclaimed(&self, volume: &PersistentVolume) -> Result<bool, ReconcileError> {
        let Some(reference) = claim_of(volume) else {
            return Ok(false);
        };
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let claim = claims.get(reference.name.as_deref().unwrap_or_default());
        let claim = ignore_missing(claim.await).during("read the claim of a volume")?;
        Ok(claim.is_none_or(|claim| {
            let has = volume_of(&claim);
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            claim.metadata.uid != reference.uid || (!has.is_empty() && has != name)
        }))
    }

    async fn is_gone(&self, node: &str) -> Result<bool, ReconcileError> {
        if self.nodes.get(&Key::new("", node)).is_some() {
            return Ok(false);
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let present = ignore_missing(nodes.get(node).await);
        Ok(present.during("read the node of a volume")?.is_none())
    }
}

impl Reconciler for LocalPathController {
    async fn reconcile(&self, key: Key) -> Outcome {
        if key.namespace.is_empty() {
            if let Some(volume) = self.volumes.get(&key).filter(|it| plan::is_own(it)) {
                self.look_after(&volume).await?;
            }
        } else if let Some(claim) = self.claims.get(&key) {
            match volume_of(&claim) {
                "" => self.provision(&claim).await?,
                _ => self.resize(&claim).await?,
            }
        }
        Ok(None)
    }
}

fn node_of(volume: &PersistentVolume) -> Option<&str> {
    let labels = volume.metadata.labels.as_ref()?;
    labels.get(local_path::NODE).map(String::as_str)
}
