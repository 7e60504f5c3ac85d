//! Has CSI drivers attach volumes to the nodes whose pods use them, and take them off when none
//! does.
//!
//! The driver's own attacher does it, asked by a VolumeAttachment, as upstream. The Node's status
//! says which volumes the node may mount, and is written before a volume is taken off: a node
//! mounts nothing that is on its way. What a node has mounted stays until it says otherwise, or is
//! down for minutes, or somebody says that it is out of service.
//!
//! Only on nodes whose agent leaves it to this controller, which says so by an annotation of the
//! Node. Coracle's own does not: it runs no CSI drivers.
//!
//! Source: `pkg/controller/volume/attachdetach` at v1.37.

mod node;
mod plan;

use std::{collections::HashMap, sync::Arc, time::Duration};

use coracle_api::volume::{claim_of, is_bound_to, volume_of};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSIDriver, VolumeAttachment},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::plan::{Fate, Users};
use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Index, Key},
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore, ignore_missing},
    errors::is_already_exists,
    event_recorder::component::ComponentRecorder,
    pod::Pod,
    pod_claims::{by_claim, claims_of},
    pod_state::node_name,
    writes::Write,
};

/// Keys worked on at once.
const WORKERS: usize = 4;
/// Until it is tried again to attach what another volume of the handle has.
const TAKEN: Duration = Duration::from_secs(5);
/// The namespace of keys that are nodes; those without are volumes.
const NODES: &str = "nodes";

/// The controller; its state is in caches and `unneeded`.
pub(super) struct AttachDetachController {
    client: Client,
    recorder: ComponentRecorder,
    volumes: Arc<Cache<PersistentVolume>>,
    by_driver: By<PersistentVolume>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    drivers: Arc<Cache<CSIDriver>>,
    nodes: Arc<Cache<Node>>,
    pods: By<Pod>,
    of_volume: By<VolumeAttachment>,
    of_node: By<VolumeAttachment>,
    /// Since when nobody has needed what an attachment, by its name, has attached.
    unneeded: Mutex<HashMap<String, Instant>>,
}

impl AttachDetachController {
    /// Says what it reads and what wakes it.
    pub(super) fn setup(manager: &mut Manager, context: &Context) {
        let name = "persistentvolume-attach-detach-controller";
        let mut controller = Builder::managed_by(manager, name, "attachdetach").workers(WORKERS);
        let by_driver = Index::new("csi driver", |volume: &PersistentVolume, put| {
            plan::source(volume)
                .into_iter()
                .for_each(|source| put(&source.driver));
        });
        let of_volume = Index::new("volume", |attachment: &VolumeAttachment, put| {
            volume_name(attachment).into_iter().for_each(put);
        });
        let of_node = Index::new("node", |attachment: &VolumeAttachment, put| {
            put(&attachment.spec.node_name);
        });
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.of("attachdetach-controller"),
            volumes: controller.reads(),
            by_driver: controller.index(by_driver),
            claims: controller.reads(),
            drivers: controller.reads(),
            nodes: controller.reads(),
            pods: controller.index(by_claim()),
            of_volume: controller.index(of_volume),
            of_node: controller.index(of_node),
            unneeded: Mutex::default(),
        });
        controller.on_change(&this, Self::volume_changed);
        controller.on_change(&this, Self::claim_changed);
        controller.on_change(&this, Self::driver_changed);
        controller.on_change(&this, Self::node_changed);
        controller.on_change(&this, Self::pod_changed);
        controller.on_change(&this, Self::attachment_changed);
        controller.complete(this);
    }

    #[allow(clippy::unused_self, reason = "the shape of a handler")]
    fn volume_changed(&self, change: &Change<'_, PersistentVolume>, queue: &Queue) {
        if plan::source(change.latest()).is_some() {
            queue.add(Key::of(change.latest().as_ref()));
        }
    }

    fn claim_changed(&self, change: &Change<'_, PersistentVolumeClaim>, queue: &Queue) {
        self.wake_volume(volume_of(change.latest()), queue);
    }

    fn driver_changed(&self, change: &Change<'_, CSIDriver>, queue: &Queue) {
        let name = change.latest().metadata.name.as_deref().unwrap_or_default();
        wake_all(&self.by_driver.get(name), queue);
    }

    /// What is attached to it; and all volumes, if it can be given some from now on.
    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        let was_managed = matches!(change, Change::Updated { old, .. } if plan::is_managed(old));
        let node = change.latest();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let attached = self.of_node.get(name);
        let attached = attached.iter().filter_map(|one| volume_name(one));
        attached.for_each(|volume| self.wake_volume(volume, queue));
        if plan::is_managed(node) {
            queue.add(Key::new(NODES, name));
            if !was_managed {
                let is_a_drivers = |volume: &PersistentVolume| plan::source(volume).is_some();
                wake_all(&self.volumes.filter(is_a_drivers), queue);
            }
        }
    }

    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        if let Change::Updated { old, new } = change
            && (node_name(old), plan::has_ended(old)) == (node_name(new), plan::has_ended(new))
        {
            return;
        }
        for claim in claims_of(change.latest()) {
            if let Some(claim) = self.claims.get(&claim) {
                self.wake_volume(volume_of(&claim), queue);
            }
        }
    }

    fn attachment_changed(&self, change: &Change<'_, VolumeAttachment>, queue: &Queue) {
        let attachment = change.latest();
        if matches!(change, Change::Deleted(_)) {
            self.forget(attachment);
        }
        if let Some(volume) = volume_name(attachment) {
            self.wake_volume(volume, queue);
        }
        queue.add(Key::new(NODES, attachment.spec.node_name.as_str()));
    }

    /// If a driver keeps it.
    fn wake_volume(&self, name: &str, queue: &Queue) {
        let key = Key::new("", name);
        let volume = self.volumes.get(&key);
        if volume.is_some_and(|volume| plan::source(&volume).is_some()) {
            queue.add(key);
        }
    }

    /// The pods that use a volume, on nodes that leave attaching to this controller.
    fn users(&self, volume: &PersistentVolume) -> Users {
        let mut users = Users::new();
        let Some(source) = plan::source(volume) else {
            return users;
        };
        let driver = self.drivers.get(&Key::new("", source.driver.as_str()));
        let Some(reference) = claim_of(volume).filter(|_| plan::attaches(driver.as_deref())) else {
            return users;
        };
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = Key::new(part(&reference.namespace), part(&reference.name));
        let claim = self.claims.get(&key);
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        if !claim.is_some_and(|claim| volume_of(&claim) == name && is_bound_to(volume, &claim)) {
            return users;
        }
        for pod in self
            .pods
            .filter(&key.to_string(), |pod| !plan::has_ended(pod))
        {
            let node = self.nodes.get(&Key::new("", node_name(&pod)));
            if node.is_some_and(|node| plan::is_managed(&node)) {
                users
                    .entry(node_name(&pod).to_owned())
                    .or_default()
                    .push(pod);
            }
        }
        users
    }

    /// How long nobody has needed what is attached.
    fn unneeded_for(&self, attachment: &VolumeAttachment, is_wanted: bool) -> Duration {
        if is_wanted {
            self.forget(attachment);
            return Duration::ZERO;
        }
        let name = attachment.metadata.name.clone().unwrap_or_default();
        let mut unneeded = self.unneeded.lock();
        unneeded.entry(name).or_insert_with(Instant::now).elapsed()
    }

    fn forget(&self, attachment: &VolumeAttachment) {
        let name = attachment.metadata.name.as_deref().unwrap_or_default();
        self.unneeded.lock().remove(name);
    }

    fn fate(&self, attachment: &VolumeAttachment, name: &str, users: &Users) -> Fate {
        let node = &attachment.spec.node_name;
        let is_wanted = users.contains_key(node);
        let waited = self.unneeded_for(attachment, is_wanted);
        let node = self.nodes.get(&Key::new("", node.as_str()));
        plan::fate(attachment, name, node.as_deref(), is_wanted, waited)
    }

    /// Takes off first: who waits for another node's end waits no longer than that.
    async fn reconcile_volume(&self, volume: &PersistentVolume) -> Outcome {
        let Some(source) = plan::source(volume) else {
            return Ok(None);
        };
        let (users, name) = (self.users(volume), plan::unique_name(source));
        let own = volume.metadata.name.as_deref().unwrap_or_default();
        let present = self.of_volume.get(own);
        let mut again: Option<Duration> = None;
        for attachment in &present {
            match self.fate(attachment, &name, &users) {
                Fate::Keep => self.tell_failure(attachment, own, &users),
                Fate::Going | Fate::Wait(None) => {}
                Fate::Wait(Some(rest)) => again = Some(again.map_or(rest, |one| one.min(rest))),
                Fate::Detach { is_forced } => self.detach(attachment, &name, is_forced).await?,
            }
        }
        let (mut attach, mut refused) = plan::attach(volume, &users, &present);
        if !attach.is_empty() {
            // What was made a moment ago the cache may not show yet.
            (attach, refused) = plan::attach(volume, &users, &self.live(own).await?);
        }
        for refused in refused {
            self.warn(&users, &refused.node, &refused.message);
        }
        for node in attach {
            let attachment = plan::attachment(own, source, &node)
                .map_err(|error| ReconcileError::NotYet(error.to_string()))?;
            let api: Api<VolumeAttachment> = Api::all(self.client.clone());
            let created = api.create(&PostParams::default(), &attachment).await;
            let created = ignore(created, is_already_exists).during("have a volume attached")?;
            if created.is_none() {
                // Another volume of the same handle has it there, or had it.
                again = Some(again.map_or(TAKEN, |one| one.min(TAKEN)));
            }
        }
        Ok(again)
    }

    /// The attachments of a volume, by the API server.
    async fn live(&self, volume: &str) -> Result<Vec<Arc<VolumeAttachment>>, ReconcileError> {
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        let all = api.list(&ListParams::default()).await;
        let all = all.during("list what is attached")?.items.into_iter();
        let own = all.filter(|one| volume_name(one) == Some(volume));
        Ok(own.map(Arc::new).collect())
    }

    fn tell_failure(&self, attachment: &VolumeAttachment, volume: &str, users: &Users) {
        let status = attachment.status.as_ref().filter(|status| !status.attached);
        if let Some(error) = status.and_then(|status| status.attach_error.as_ref()) {
            let why = error.message.as_deref().unwrap_or_default();
            let message = format!("AttachVolume.Attach failed for volume {volume:?} : {why}");
            self.warn(users, &attachment.spec.node_name, &message);
        }
    }

    fn warn(&self, users: &Users, node: &str, message: &str) {
        for pod in users.get(node).into_iter().flatten() {
            self.recorder
                .warning(&**pod, "FailedAttachVolume", message.to_owned());
        }
    }

    /// Once the node's status does not lead to it any more; its change comes back here.
    async fn detach(
        &self,
        attachment: &VolumeAttachment,
        name: &str,
        is_forced: bool,
    ) -> Result<(), ReconcileError> {
        let node = attachment.spec.node_name.as_str();
        if let Some(cached) = self.nodes.get(&Key::new("", node)) {
            if plan::reported(&cached).any(|one| one == name) {
                return match plan::is_managed(&cached) {
                    true => self.reconcile_node(&cached).await,
                    false => Ok(()),
                };
            }
            // The API server is asked: a pod of it may have been mounting the volume meanwhile.
            let nodes: Api<Node> = Api::all(self.client.clone());
            let live = ignore_missing(nodes.get(node).await).during("read a node's volumes")?;
            if let Some(live) = live {
                let is_led_to = plan::reported(&live).any(|one| one == name);
                if is_led_to && plan::is_managed(&live) {
                    return self.reconcile_node(&live).await;
                }
                if is_led_to || !is_forced && plan::is_in_use(&live, name) {
                    return Ok(());
                }
            }
        }
        let call = "have a volume taken off its node";
        let write = Write::to(&self.client, attachment, call);
        write.delete(DeleteParams::default()).await
    }
}

impl Reconciler for AttachDetachController {
    async fn reconcile(&self, key: Key) -> Outcome {
        if key.namespace == NODES {
            let node = self.nodes.get(&Key::new("", key.name.as_str()));
            if let Some(node) = node.filter(|node| plan::is_managed(node)) {
                self.reconcile_node(&node).await?;
            }
            return Ok(None);
        }
        match self.volumes.get(&key) {
            Some(volume) => self.reconcile_volume(&volume).await,
            None => Ok(None),
        }
    }
}

fn wake_all(volumes: &[Arc<PersistentVolume>], queue: &Queue) {
    let keys = volumes.iter().map(|volume| Key::of(volume.as_ref()));
    keys.for_each(|key| queue.add(key));
}

fn volume_name(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}
