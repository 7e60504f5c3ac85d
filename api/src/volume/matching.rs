//! The best of several volumes for a claim.

use std::{collections::HashSet, hash::BuildHasher};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use thiserror::Error;

use super::{
    capacity, class_of_claim, class_of_volume, has_access_modes, is_bound_to, modes_differ,
    node_affinity_matches, requested,
};
use crate::{
    scheduling::NodeView,
    selector::{LabelSelector, ParseSelectorError},
};

/// For whom a volume is looked for.
#[derive(Debug, Clone, Copy)]
pub enum Search<'a> {
    /// The controller, for a claim that is bound at once.
    Immediate,
    /// The controller, for one that waits for its first pod: only what is kept for it already.
    Delayed,
    /// The scheduler, for a pod on this node.
    OnNode(NodeView<'a>),
}

/// Why a claim cannot have the volume that it names; the texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VolumeMismatch {
    /// It is being deleted.
    #[error("the volume is marked for deletion {0:?}")]
    Terminating(String),
    /// It has less than is asked for.
    #[error("requested PV is too small")]
    TooSmall,
    /// It is of another StorageClass.
    #[error("storageClassName does not match")]
    Class,
    /// It is of another VolumeAttributesClass.
    #[error("volumeAttributesClassName does not match")]
    AttributesClass,
    /// One is a file system and the other a device.
    #[error("incompatible volumeMode")]
    Mode,
    /// It cannot be used in each way that is asked for.
    #[error("incompatible accessMode")]
    AccessMode,
}

/// The volume for a claim: one that is bound to it, or kept for it; else the smallest that fits.
/// `excluded` are names of volumes that are spoken for.
///
/// As upstream, access modes are compared only where a node is given: the controller asks once for
/// each set of access modes that would do.
///
/// # Errors
/// The claim's selector cannot be meant. Validation refuses such claims.
///
/// Source: `FindMatchingVolume` in `k8s.io/component-helpers/storage/volume/pv_helpers.go` at
/// v1.37.
pub fn find_matching<'v, S: BuildHasher>(
    claim: &PersistentVolumeClaim,
    volumes: impl IntoIterator<Item = &'v PersistentVolume>,
    search: Search<'_>,
    excluded: &HashSet<String, S>,
) -> Result<Option<&'v PersistentVolume>, ParseSelectorError> {
    let (asked, selector) = (requested(claim), selector_of(claim)?);
    let mut smallest: Option<&PersistentVolume> = None;
    for volume in volumes {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let is_own = is_bound_to(volume, claim);
        if excluded.contains(name)
            || (super::claim_of(volume).is_some() && !is_own)
            || capacity(volume) < asked
            || modes_differ(volume, claim)
            || attributes_differ(volume, claim)
            || volume.metadata.deletion_timestamp.is_some()
        {
            continue;
        }
        let is_reached = match search {
            Search::OnNode(node) => node_affinity_matches(volume, node),
            Search::Immediate | Search::Delayed => true,
        };
        if is_own {
            // The claim is for this one alone: elsewhere it has none.
            return Ok(is_reached.then_some(volume));
        }
        let is_free = match search {
            // The scheduler will choose.
            Search::Delayed => false,
            Search::Immediate => true,
            Search::OnNode(_) => is_reached && has_access_modes(volume, claim),
        };
        if is_free
            && is_available(volume)
            && is_selected(volume, selector.as_ref())
            && class_of_volume(volume) == class_of_claim(claim)
            && smallest.is_none_or(|smallest| capacity(volume) < capacity(smallest))
        {
            smallest = Some(volume);
        }
    }
    Ok(smallest)
}

/// Whether a claim can have the volume that it names, which nobody has.
///
/// # Errors
/// The first reason against it.
///
/// Source: `checkVolumeSatisfyClaim` in `pkg/controller/volume/persistentvolume/pv_controller.go`
/// at v1.37.
pub fn satisfies(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
) -> Result<(), VolumeMismatch> {
    if volume.metadata.deletion_timestamp.is_some() {
        let name = volume.metadata.name.clone().unwrap_or_default();
        return Err(VolumeMismatch::Terminating(name));
    }
    if capacity(volume).value() < requested(claim).value() {
        return Err(VolumeMismatch::TooSmall);
    }
    if class_of_volume(volume) != class_of_claim(claim) {
        return Err(VolumeMismatch::Class);
    }
    if attributes_differ(volume, claim) {
        return Err(VolumeMismatch::AttributesClass);
    }
    if modes_differ(volume, claim) {
        return Err(VolumeMismatch::Mode);
    }
    if !has_access_modes(volume, claim) {
        return Err(VolumeMismatch::AccessMode);
    }
    Ok(())
}

fn selector_of(claim: &PersistentVolumeClaim) -> Result<Option<LabelSelector>, ParseSelectorError> {
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector
        .map(|selector| LabelSelector::from_object(&serde_json::json!(selector)))
        .transpose()
}

fn is_selected(volume: &PersistentVolume, selector: Option<&LabelSelector>) -> bool {
    let labels = volume.metadata.labels.as_ref();
    let label = |key: &str| labels?.get(key).map(String::as_str);
    selector.is_none_or(|selector| selector.matches(label))
}

/// Others become available when they may be taken, and to take one before fails in most cases.
fn is_available(volume: &PersistentVolume) -> bool {
    let status = volume.status.as_ref();
    status.is_some_and(|status| status.phase.as_deref() == Some("Available"))
}

fn attributes_differ(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    fn or_none(class: Option<&String>) -> &str {
        class.map_or("", String::as_str)
    }
    let asked = claim.spec.as_ref();
    let asked = asked.and_then(|spec| spec.volume_attributes_class_name.as_ref());
    let given = volume.spec.as_ref();
    let given = given.and_then(|spec| spec.volume_attributes_class_name.as_ref());
    or_none(asked) != or_none(given)
}
