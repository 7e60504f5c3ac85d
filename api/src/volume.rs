//! Claims and the volumes that they are bound to, for the controllers that bind them, the scheduler
//! that looks for a node with a volume, and the node that mounts it: one answer for all of them.
//!
//! | module | what |
//! |---|---|
//! | here | of which class a claim or a volume is, whose a volume is, where it can be reached |
//! | `matching` | the best of several volumes for a claim |
//! | [`local_path`] | the names that server and nodes use for directories of nodes as volumes |
//!
//! Not here: who writes what, and the events about it.
//!
//! Source: `k8s.io/component-helpers/storage/volume/{helpers,pv_helpers}.go` at v1.37.

pub mod local_path;
mod matching;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::{api::resource, apis::meta::v1::ObjectMeta},
};

use crate::{
    quantity::Quantity,
    scheduling::{NodeView, meets_term},
};

pub use matching::{Search, VolumeMismatch, find_matching, satisfies};

/// On a claim: it has been bound, and what is missing now was lost. The value does not matter.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim or a volume: the controller has chosen the other side, not a user. The value does not
/// matter.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: the node for which the scheduler wants a volume made.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a claim: who is to make its volume.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// As [`STORAGE_PROVISIONER`], for provisioners that know the older name alone.
pub const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a volume: who has made it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim or a volume: a CSI driver does what was the tree's.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// The provisioner of classes whose volumes nobody makes.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// On a StorageClass: it is for claims that name none.
pub const IS_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BETA_IS_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";
/// The class of a claim or volume, as it was said before there was a field for it.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Nothing deletes the claim while a pod uses it.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Nothing deletes the volume while it is bound.
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// The resource that claims ask for and volumes have.
pub const STORAGE: &str = "storage";

/// An annotation of an object.
#[must_use]
pub fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The name of a claim's StorageClass; empty for none.
#[must_use]
pub fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let spec = claim.spec.as_ref();
    annotation(&claim.metadata, BETA_STORAGE_CLASS)
        .or_else(|| spec.and_then(|spec| spec.storage_class_name.as_deref()))
        .unwrap_or_default()
}

/// Whether a claim says of which class it is, or that it is of none: an empty name.
#[must_use]
pub fn claim_says_class(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata, BETA_STORAGE_CLASS).is_some()
        || claim
            .spec
            .as_ref()
            .is_some_and(|spec| spec.storage_class_name.is_some())
}

/// The name of a volume's StorageClass; empty for none.
#[must_use]
pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    annotation(&volume.metadata, BETA_STORAGE_CLASS)
        .or_else(|| spec.and_then(|spec| spec.storage_class_name.as_deref()))
        .unwrap_or_default()
}

/// Whether claims of a class are bound once a pod that uses them has been given a node.
#[must_use]
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The class for claims that name none: of several the youngest, and of these the first by name.
///
/// Source: `pkg/volume/util/storageclass.go` (`GetDefaultClass`) at v1.37.
pub fn default_class<'a>(
    classes: impl IntoIterator<Item = &'a StorageClass>,
) -> Option<&'a StorageClass> {
    let is_default = |class: &&StorageClass| {
        [IS_DEFAULT_CLASS, BETA_IS_DEFAULT_CLASS]
            .iter()
            .any(|name| annotation(&class.metadata, name) == Some("true"))
    };
    let created = |class: &StorageClass| class.metadata.creation_timestamp.clone();
    classes.into_iter().filter(is_default).min_by(|one, other| {
        let younger = created(other).cmp(&created(one));
        younger.then_with(|| one.metadata.name.cmp(&other.metadata.name))
    })
}

/// Whether a volume is given to a claim, or kept for it by its user. A reference without a uid is
/// to any claim of that name.
#[must_use]
pub fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_of(volume).is_some_and(|reference| {
        let uid = reference.uid.as_deref().unwrap_or_default();
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
    })
}

/// The claim that a volume refers to.
#[must_use]
pub fn claim_of(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// The name of the volume that a claim refers to; empty for none.
#[must_use]
pub fn volume_of(claim: &PersistentVolumeClaim) -> &str {
    let spec = claim.spec.as_ref();
    spec.and_then(|spec| spec.volume_name.as_deref())
        .unwrap_or_default()
}

/// Whether nodes with these labels reach a volume. One without a rule is reached from everywhere.
#[must_use]
pub fn node_affinity_matches(volume: &PersistentVolume, node: NodeView<'_>) -> bool {
    let affinity = volume
        .spec
        .as_ref()
        .and_then(|it| it.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|selector| {
        let mut terms = selector.node_selector_terms.iter();
        terms.any(|term| meets_term(term, node))
    })
}

/// Whether a volume can be used in every way that a claim asks for.
#[must_use]
pub fn has_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let asked = claim.spec.as_ref().and_then(|it| it.access_modes.as_ref());
    let given = volume.spec.as_ref().and_then(|it| it.access_modes.as_ref());
    let is_given = |mode: &String| given.is_some_and(|given| given.contains(mode));
    asked.into_iter().flatten().all(is_given)
}

/// Whether one is a file system and the other a device.
#[must_use]
pub fn modes_differ(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    fn or_filesystem(mode: Option<&String>) -> &str {
        mode.map_or("Filesystem", String::as_str)
    }
    let asked = claim.spec.as_ref().and_then(|it| it.volume_mode.as_ref());
    let given = volume.spec.as_ref().and_then(|it| it.volume_mode.as_ref());
    or_filesystem(asked) != or_filesystem(given)
}

/// How much a claim asks for.
#[must_use]
pub fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    let resources = claim.spec.as_ref().and_then(|it| it.resources.as_ref());
    storage(resources.and_then(|resources| resources.requests.as_ref())).unwrap_or_default()
}

/// How much a volume has.
#[must_use]
pub fn capacity(volume: &PersistentVolume) -> Quantity {
    storage(volume.spec.as_ref().and_then(|it| it.capacity.as_ref())).unwrap_or_default()
}

/// The amount of storage in a list of amounts.
#[must_use]
pub fn storage(amounts: Option<&BTreeMap<String, resource::Quantity>>) -> Option<Quantity> {
    Quantity::parse(&amounts?.get(STORAGE)?.0).ok()
}

#[cfg(test)]
mod tests;
