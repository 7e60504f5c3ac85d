//! One object that has to do with volumes, of whichever kind.

use std::sync::Arc;

use coracle_client::cache::Key;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment},
};

/// An object, as the informer of its kind holds it.
#[derive(Debug, Clone)]
pub(crate) enum StorageObject {
    Claim(Arc<PersistentVolumeClaim>),
    Volume(Arc<PersistentVolume>),
    Class(Arc<StorageClass>),
    CsiNode(Arc<CSINode>),
    CsiDriver(Arc<CSIDriver>),
    Capacity(Arc<CSIStorageCapacity>),
    Attachment(Arc<VolumeAttachment>),
}

/// Of which kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StorageKind {
    Claim,
    Volume,
    Class,
    CsiNode,
    CsiDriver,
    Capacity,
    Attachment,
}

impl StorageObject {
    /// Which object it is.
    pub(crate) fn id(&self) -> (StorageKind, Key) {
        match self {
            Self::Claim(object) => (StorageKind::Claim, Key::of(&**object)),
            Self::Volume(object) => (StorageKind::Volume, Key::of(&**object)),
            Self::Class(object) => (StorageKind::Class, Key::of(&**object)),
            Self::CsiNode(object) => (StorageKind::CsiNode, Key::of(&**object)),
            Self::CsiDriver(object) => (StorageKind::CsiDriver, Key::of(&**object)),
            Self::Capacity(object) => (StorageKind::Capacity, Key::of(&**object)),
            Self::Attachment(object) => (StorageKind::Attachment, Key::of(&**object)),
        }
    }
}
