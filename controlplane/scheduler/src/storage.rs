//! What placing pods with volumes looks at: claims, volumes, classes, and what CSI drivers say of
//! nodes.
//!
//! | module | what |
//! |---|---|
//! | here | the objects, and which volumes a claim may have |
//! | `assume_cache` | claims and volumes as they will be once what was decided is written |
//! | `object` | one of these objects, of whichever kind |
//! | `binding` | pods whose volumes are being bound, and what has become of them and their nodes meanwhile |
//!
//! The scheduler's one task writes here what the informers tell it and what its plugins assume;
//! tasks that wait for volumes to be bound only read, and hear of each change. So there is a lock,
//! held for moments, and during an attempt nothing changes.

mod assume_cache;
mod binding;
mod object;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use coracle_api::volume::{claim_of, class_of_volume};
use coracle_client::cache::Key;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment},
};
use kube::ResourceExt;
use tokio::sync::watch;

use self::binding::Bindings;
pub(crate) use self::{
    assume_cache::{AssumeCache, AssumeError, version},
    object::{StorageKind, StorageObject},
};

/// What is shared between the scheduler's task and those that bind volumes.
#[derive(Debug, Default)]
pub(crate) struct SharedStorage {
    storage: Mutex<Storage>,
    changes: watch::Sender<()>,
}

impl SharedStorage {
    /// For a look, or a change that nobody waits for.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Storage> {
        // Each change is whole before anything that could panic.
        self.storage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it, and tells who waits for changes.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Storage) -> T) -> T {
        let result = change(&mut self.lock());
        self.changes.send_replace(());
        result
    }

    /// Tells pods whose volumes are being bound what has become of them or their nodes, if it is
    /// one of them.
    pub(crate) fn tell_if_asked(&self, tell: impl FnOnce(&mut Bindings) -> bool) {
        let is_asked = tell(&mut self.lock().bindings);
        if is_asked {
            self.changes.send_replace(());
        }
    }

    /// Hears of every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

/// The objects.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    claims: AssumeCache<PersistentVolumeClaim>,
    volumes: AssumeCache<PersistentVolume>,
    /// The volumes as they will be, by who may have them.
    by_taker: HashMap<Taker, BTreeMap<String, Arc<PersistentVolume>>>,
    classes: HashMap<String, Arc<StorageClass>>,
    csi_nodes: HashMap<String, Arc<CSINode>>,
    csi_drivers: HashMap<String, Arc<CSIDriver>>,
    capacities: HashMap<Key, Arc<CSIStorageCapacity>>,
    attachments: Attachments,
    pub(crate) bindings: Bindings,
}

/// Who may have a volume. Of thousands only a few are nobody's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Taker {
    /// Any claim of this class.
    Class(String),
    /// The claim that it refers to.
    Claim(Key),
}

/// Volumes that are attached, by node and name.
type Attachments = HashMap<String, HashMap<String, Arc<VolumeAttachment>>>;

impl Storage {
    /// Takes over an object as it is. Returns what it was before, of the same kind.
    pub(crate) fn apply(&mut self, new: &StorageObject) -> Option<StorageObject> {
        match new {
            StorageObject::Claim(claim) => {
                let old = self.claims.observe(claim.clone());
                old.map(StorageObject::Claim)
            }
            StorageObject::Volume(volume) => {
                let key = Key::of(&**volume);
                let old = self.with_volume(&key, |volumes| volumes.observe(volume.clone()));
                old.map(StorageObject::Volume)
            }
            StorageObject::Class(class) => {
                let old = self.classes.insert(class.name_any(), class.clone());
                old.map(StorageObject::Class)
            }
            StorageObject::CsiNode(node) => {
                let old = self.csi_nodes.insert(node.name_any(), node.clone());
                old.map(StorageObject::CsiNode)
            }
            StorageObject::CsiDriver(driver) => {
                let old = self.csi_drivers.insert(driver.name_any(), driver.clone());
                old.map(StorageObject::CsiDriver)
            }
            StorageObject::Capacity(capacity) => {
                let key = Key::of(&**capacity);
                let old = self.capacities.insert(key, capacity.clone());
                old.map(StorageObject::Capacity)
            }
            StorageObject::Attachment(attachment) => {
                let on_node = self
                    .attachments
                    .entry(attachment.spec.node_name.clone())
                    .or_default();
                let old = on_node.insert(attachment.name_any(), attachment.clone());
                old.map(StorageObject::Attachment)
            }
        }
    }

    /// An object is gone.
    pub(crate) fn remove(&mut self, gone: &StorageObject) {
        match gone {
            StorageObject::Claim(claim) => self.claims.remove(&Key::of(&**claim)),
            StorageObject::Volume(volume) => {
                let key = Key::of(&**volume);
                self.with_volume(&key, |volumes| volumes.remove(&key));
            }
            StorageObject::Class(class) => drop(self.classes.remove(&class.name_any())),
            StorageObject::CsiNode(node) => drop(self.csi_nodes.remove(&node.name_any())),
            StorageObject::CsiDriver(driver) => drop(self.csi_drivers.remove(&driver.name_any())),
            StorageObject::Capacity(capacity) => {
                self.capacities.remove(&Key::of(&**capacity));
            }
            StorageObject::Attachment(attachment) => {
                let node = &attachment.spec.node_name;
                if let Some(on_node) = self.attachments.get_mut(node) {
                    on_node.remove(&attachment.name_any());
                    if on_node.is_empty() {
                        self.attachments.remove(node);
                    }
                }
            }
        }
    }

    pub(crate) fn claims(&self) -> &AssumeCache<PersistentVolumeClaim> {
        &self.claims
    }

    pub(crate) fn volumes(&self) -> &AssumeCache<PersistentVolume> {
        &self.volumes
    }

    /// The volumes that a claim of this class may have: those of nobody, and those that are kept
    /// for it. In order of name.
    pub(crate) fn volumes_for(&self, claim: &Key, class: &str) -> Vec<Arc<PersistentVolume>> {
        let of = |taker| self.by_taker.get(&taker).into_iter().flatten();
        let kept = of(Taker::Claim(claim.clone()));
        let kept = kept.filter(|(_, volume)| class_of_volume(volume) == class);
        kept.chain(of(Taker::Class(class.to_owned())))
            .map(|(_, volume)| volume.clone())
            .collect()
    }

    pub(crate) fn class(&self, name: &str) -> Option<&Arc<StorageClass>> {
        self.classes.get(name)
    }

    pub(crate) fn csi_node(&self, name: &str) -> Option<&Arc<CSINode>> {
        self.csi_nodes.get(name)
    }

    pub(crate) fn has_csi_nodes(&self) -> bool {
        !self.csi_nodes.is_empty()
    }

    pub(crate) fn csi_driver(&self, name: &str) -> Option<&Arc<CSIDriver>> {
        self.csi_drivers.get(name)
    }

    pub(crate) fn csi_drivers(&self) -> impl Iterator<Item = &Arc<CSIDriver>> {
        self.csi_drivers.values()
    }

    /// How much room there is for volumes of this class, and where.
    pub(crate) fn capacities(&self, class: &str) -> impl Iterator<Item = &Arc<CSIStorageCapacity>> {
        let of_class = move |one: &&Arc<CSIStorageCapacity>| one.storage_class_name == class;
        self.capacities.values().filter(of_class)
    }

    /// What is attached to a node, or about to be.
    pub(crate) fn attachments(&self, node: &str) -> impl Iterator<Item = &Arc<VolumeAttachment>> {
        self.attachments
            .get(node)
            .into_iter()
            .flat_map(HashMap::values)
    }

    /// Takes a claim for what was decided of it.
    ///
    /// # Errors
    /// It is gone or has changed.
    pub(crate) fn assume_claim(
        &mut self,
        claim: Arc<PersistentVolumeClaim>,
    ) -> Result<(), AssumeError> {
        self.claims.assume(claim)
    }

    /// Takes a volume for what was decided of it.
    ///
    /// # Errors
    /// It is gone or has changed.
    pub(crate) fn assume_volume(
        &mut self,
        volume: Arc<PersistentVolume>,
    ) -> Result<(), AssumeError> {
        let key = Key::of(&*volume);
        self.with_volume(&key, |volumes| volumes.assume(volume))
    }

    /// Takes an assumption back, if it still holds.
    pub(crate) fn restore_claim(&mut self, assumed: &Arc<PersistentVolumeClaim>) {
        self.claims.restore(assumed);
    }

    /// Takes an assumption back, if it still holds.
    pub(crate) fn restore_volume(&mut self, assumed: &Arc<PersistentVolume>) {
        let key = Key::of(&**assumed);
        self.with_volume(&key, |volumes| volumes.restore(assumed));
    }

    /// Changes a volume, and who may have it.
    fn with_volume<T>(
        &mut self,
        key: &Key,
        change: impl FnOnce(&mut AssumeCache<PersistentVolume>) -> T,
    ) -> T {
        if let Some(before) = self.volumes.get(key) {
            let taker = taker(before);
            if let Some(volumes) = self.by_taker.get_mut(&taker) {
                volumes.remove(&key.name);
                if volumes.is_empty() {
                    self.by_taker.remove(&taker);
                }
            }
        }
        let result = change(&mut self.volumes);
        if let Some(after) = self.volumes.get(key) {
            let volumes = self.by_taker.entry(taker(after)).or_default();
            volumes.insert(key.name.clone(), after.clone());
        }
        result
    }
}

fn taker(volume: &PersistentVolume) -> Taker {
    let Some(reference) = claim_of(volume) else {
        return Taker::Class(class_of_volume(volume).to_owned());
    };
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    Taker::Claim(Key::new(part(&reference.namespace), part(&reference.name)))
}

#[cfg(test)]
mod tests;
