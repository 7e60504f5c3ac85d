//! Binds claims and volumes, and takes volumes back.
//!
//! ```text
//! claim:  Pending --volume found, or made--> Bound --volume gone, or another's--> Lost
//! volume: Pending --> Available --claim found--> Bound --claim gone--> Released --cannot be reclaimed--> Failed
//!                        ^--the claim was given another, or its user lets it go--'
//! ```
//! A binding is two references, and both are written before it holds: `spec.claimRef` of the volume
//! first, with the uid of the claim, and `spec.volumeName` of the claim then. Each write is of the
//! version that was read: of two that want one volume the later one fails. Whatever stands half
//! done after a crash is found by either object and finished, or taken back. A volume counts as
//! released only once the API server itself, not an informer, has said that its claim is gone.
//!
//! One worker, as upstream: claims are served in turn. What is made for claims and removed after
//! them is a provisioner's; with `local_path` there is one. Where upstream looks at everything each
//! 15 s, here each change wakes what it concerns, and a round each ten minutes what waits.
//!
//! | module | does |
//! |---|---|
//! | `claim_plan`, `volume_plan` | what has to be done; pure |
//! | `bind` | what each write changes; pure |
//! | `act` | does it |
//!
//! Source: `pkg/controller/volume/persistentvolume/{pv_controller,pv_controller_base,index}.go` at
//! v1.37.

mod act;
mod bind;
mod claim_plan;
#[cfg(test)]
mod tests;
mod volume_plan;

use std::{sync::Arc, time::Duration};

use coracle_api::volume::{
    BIND_COMPLETED, annotation, claim_of, claim_says_class, class_of_claim, volume_of,
};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::Client;

use super::latest::Latest;
use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Index, Key},
    context::Context,
    controller::{Outcome, Reconciler},
    event_recorder::component::ComponentRecorder,
    pod::Pod,
    pod_claims::{by_claim, claims_of},
    pod_state::node_name,
};

const COMPONENT: &str = "persistentvolume-controller";
/// What waits is told again before its Events expire.
const ROUND: Duration = Duration::from_secs(600);

/// The controller; its state is in caches. Keys without a namespace are volumes.
pub(super) struct BinderController {
    client: Client,
    recorder: ComponentRecorder,
    queue: Arc<Queue>,
    claims: Latest<PersistentVolumeClaim>,
    volumes: Latest<PersistentVolume>,
    classes: Arc<Cache<StorageClass>>,
    pods: By<Pod>,
    /// Those that wait.
    waiting: By<PersistentVolumeClaim>,
    claims_by_volume: By<PersistentVolumeClaim>,
    volumes_by_claim: By<PersistentVolume>,
}

const WAITING: &str = "waiting";

impl BinderController {
    /// Says what it reads and what wakes it.
    pub(super) fn setup(manager: &mut Manager, context: &Context) {
        let name = "persistentvolume-binder-controller";
        let mut controller = Builder::managed_by(manager, name, "claims");
        let waiting = Index::new(WAITING, |claim: &PersistentVolumeClaim, put| {
            if annotation(&claim.metadata, BIND_COMPLETED).is_none() {
                put(WAITING);
            }
        });
        let by_volume = Index::new("volume", |claim: &PersistentVolumeClaim, put| {
            Some(volume_of(claim))
                .filter(|name| !name.is_empty())
                .into_iter()
                .for_each(put);
        });
        let by_claim_of = Index::by_key("claim", claim_key);
        let client = &context.client;
        let this = Arc::new(Self {
            client: client.clone(),
            recorder: context.recorder.of(COMPONENT),
            queue: controller.queue(),
            claims: Latest::new(client.clone(), controller.for_kind()),
            volumes: Latest::new(client.clone(), controller.for_kind()),
            classes: controller.reads(),
            pods: controller.index(by_claim()),
            waiting: controller.index(waiting),
            claims_by_volume: controller.index(by_volume),
            volumes_by_claim: controller.index(by_claim_of),
        });
        controller.on_change(&this, Self::claim_changed);
        controller.on_change(&this, Self::volume_changed);
        controller.on_change(&this, Self::class_changed);
        controller.on_change(&this, Self::pod_changed);
        controller.every(ROUND, &this, |this, queue| {
            this.wake_waiting(queue, |_| true);
        });
        controller.complete(this);
    }

    /// Its volumes: that it has, and that have it.
    fn claim_changed(&self, change: &Change<'_, PersistentVolumeClaim>, queue: &Queue) {
        let claim = change.latest();
        let named = volume_of(claim);
        if !named.is_empty() {
            queue.add(Key::new("", named));
        }
        let key = Key::of(claim.as_ref()).to_string();
        let volumes = self.volumes_by_claim.get(&key);
        volumes
            .iter()
            .for_each(|volume| queue.add(Key::of(volume.as_ref())));
    }

    /// Its claim, those that name it, and if anybody may have it, all that wait.
    fn volume_changed(&self, change: &Change<'_, PersistentVolume>, queue: &Queue) {
        let volume = change.latest();
        claim_key(volume).into_iter().for_each(|key| queue.add(key));
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let claims = self.claims_by_volume.get(name);
        claims
            .iter()
            .for_each(|claim| queue.add(Key::of(claim.as_ref())));
        if !matches!(change, Change::Deleted(_)) && claim_of(volume).is_none() {
            self.wake_waiting(queue, |_| true);
        }
    }

    /// Claims of the class, and those that may be given it as the default.
    fn class_changed(&self, change: &Change<'_, StorageClass>, queue: &Queue) {
        let name = change.latest().metadata.name.as_deref().unwrap_or_default();
        self.wake_waiting(queue, |claim| {
            !claim_says_class(claim) || class_of_claim(claim) == name
        });
    }

    /// A claim that waits for its first pod says so, and for which.
    #[allow(clippy::unused_self, reason = "the shape of a handler")]
    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        let is_news = match change {
            Change::Added(pod) => node_name(pod).is_empty(),
            Change::Updated { old, new } => node_name(old) != node_name(new),
            Change::Deleted(_) => false,
        };
        if is_news {
            claims_of(change.latest()).for_each(|claim| queue.add(claim));
        }
    }

    fn wake_waiting(&self, queue: &Queue, keep: impl Fn(&PersistentVolumeClaim) -> bool) {
        let waiting = self.waiting.filter(WAITING, keep);
        waiting
            .iter()
            .for_each(|claim| queue.add(Key::of(claim.as_ref())));
    }
}

impl Reconciler for BinderController {
    async fn reconcile(&self, key: Key) -> Outcome {
        if key.namespace.is_empty() {
            if let Some(volume) = self.volumes.get(&key) {
                self.sync_volume(volume).await?;
            }
        } else if let Some(claim) = self.claims.get(&key) {
            self.sync_claim(&key, claim).await?;
        }
        Ok(None)
    }
}

/// The key of the claim that a volume refers to.
fn claim_key(volume: &PersistentVolume) -> Option<Key> {
    let reference = claim_of(volume)?;
    Some(Key::new(
        reference.namespace.clone()?,
        reference.name.clone()?,
    ))
}
