//! What a pod's claim stands for: looked up once, and on record from then on.
//!
//! A claim of a pod is asked for until the pod has its volume. After that the record
//! ([`record`]) is the truth: the API may be away, and a claim that goes under a running pod takes
//! nothing from it. What the API says is checked again here, because the scheduler that placed the
//! pod may have known less, or there was none.
//!
//! Source: `createVolumeSpec`, `getPVCExtractPV`, `getPVSpec` in
//! `pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go`, `VolumeIsForPod` in
//! `k8s.io/component-helpers/storage/ephemeral` at v1.37.

pub(super) mod record;

use std::{fmt::Debug, time::Duration};

use coracle_api::name;
use coracle_client::errors::message_of;
use k8s_openapi::api::core::v1::{Container, PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use kube::{Api, Resource, api::ObjectMeta};
use serde::de::DeserializeOwned;

use self::record::Claimed;
use crate::pod::PodExt;

const FETCH_LIMIT: Duration = Duration::from_secs(10);
const BOUND: &str = "Bound";
const FILESYSTEM: &str = "Filesystem";

/// A claim, as a pod refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    /// Of the claim, in the pod's namespace.
    pub(super) name: String,
    pub(super) read_only: bool,
    /// It must have been made for this pod, and for this volume of it.
    is_ephemeral: bool,
}

/// The claim that a volume of a pod is, if it is one.
pub(super) fn of(pod: &Pod, volume: &Volume) -> Option<Reference> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(Reference {
            name: source.claim_name.clone(),
            read_only: source.read_only == Some(true),
            is_ephemeral: false,
        });
    }
    volume.ephemeral.as_ref().map(|_| Reference {
        name: format!("{}-{}", pod.name(), volume.name),
        read_only: false,
        is_ephemeral: true,
    })
}

/// Why a claim stands for nothing that could be mounted, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("error processing PVC {namespace}/{name}")]
    Processing {
        namespace: String,
        name: String,
        source: Unusable,
    },
    #[error("PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)")]
    NotOwner {
        namespace: String,
        claim: String,
        pod: String,
    },
    #[error("volume {volume} has volumeMode {mode}, but is specified in {field}")]
    Mode {
        volume: String,
        mode: String,
        field: &'static str,
    },
}

/// What is wrong with a claim or its volume.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    // In the server's words, as upstream: whoever reads them looks for those.
    #[error("failed to fetch {what} from API server: {why}")]
    Fetch { what: String, why: String },
    #[error("failed to fetch {what} from API server: timed out")]
    Timeout { what: String },
    #[error("PVC is being deleted")]
    Deleted,
    #[error("PVC is not bound")]
    NotBound,
    #[error("PVC has empty pvc.Spec.VolumeName")]
    NoVolume,
    #[error(
        "found PV object {volume} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
    )]
    NoReference { volume: String },
    #[error(
        "found PV object {volume} but its pv.Spec.ClaimRef.UID {found} does not point to claim.UID {expected}"
    )]
    Foreign {
        volume: String,
        found: String,
        expected: String,
    },
    #[error("{name:?} is no name of a volume: {why}")]
    Name { name: String, why: String },
}

/// Looks claims up.
pub(super) struct Claims {
    pub(super) client: kube::Client,
}

impl Claims {
    /// What a claim of `pod` stands for now.
    pub(super) async fn resolve(
        &self,
        pod: &Pod,
        volume: &Volume,
        reference: &Reference,
    ) -> Result<Claimed, ClaimError> {
        let processing = |source| ClaimError::Processing {
            namespace: pod.namespace().to_owned(),
            name: reference.name.clone(),
            source,
        };
        let claims = Api::namespaced(self.client.clone(), pod.namespace());
        let claim: PersistentVolumeClaim = fetch(&claims, &reference.name, "PVC".to_owned())
            .await
            .map_err(processing)?;
        let name = volume_of(&claim).map_err(processing)?.to_owned();
        if reference.is_ephemeral && !is_made_for(&claim.metadata, pod) {
            return Err(ClaimError::NotOwner {
                namespace: pod.namespace().to_owned(),
                claim: reference.name.clone(),
                pod: pod.name().to_owned(),
            });
        }
        let volumes = Api::all(self.client.clone());
        let found: PersistentVolume = fetch(&volumes, &name, format!("PV {name}"))
            .await
            .map_err(processing)?;
        check_volume(&found, &claim).map_err(processing)?;
        check_mode(pod, volume, &found)?;
        Ok(Claimed {
            claim: reference.name.clone(),
            volume: kept(found),
            ready: false,
        })
    }
}

async fn fetch<K>(api: &Api<K>, name: &str, what: String) -> Result<K, Unusable>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    match tokio::time::timeout(FETCH_LIMIT, api.get(name)).await {
        Ok(Ok(object)) => Ok(object),
        Ok(Err(error)) => Err(Unusable::Fetch {
            what,
            why: message_of(&error),
        }),
        Err(_) => Err(Unusable::Timeout { what }),
    }
}

/// The name of the volume that a claim is bound to.
fn volume_of(claim: &PersistentVolumeClaim) -> Result<&str, Unusable> {
    // Who finds it deleted has not begun to use it: its protection may be over at any moment.
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(Unusable::Deleted);
    }
    let phase = claim
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if phase != Some(BOUND) {
        return Err(Unusable::NotBound);
    }
    let spec = claim.spec.as_ref();
    let name = spec.and_then(|spec| spec.volume_name.as_deref());
    let name = name
        .filter(|name| !name.is_empty())
        .ok_or(Unusable::NoVolume)?;
    // It becomes the name of a directory.
    match name::dns_subdomain_error(name) {
        None => Ok(name),
        Some(why) => Err(Unusable::Name {
            name: name.to_owned(),
            why,
        }),
    }
}

fn check_volume(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), Unusable> {
    let name = || volume.metadata.name.clone().unwrap_or_default();
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    let reference = reference.ok_or_else(|| Unusable::NoReference { volume: name() })?;
    if reference.uid != claim.metadata.uid {
        return Err(Unusable::Foreign {
            volume: name(),
            found: reference.uid.clone().unwrap_or_default(),
            expected: claim.metadata.uid.clone().unwrap_or_default(),
        });
    }
    Ok(())
}

fn is_made_for(claim: &ObjectMeta, pod: &Pod) -> bool {
    let mut owners = claim.owner_references.iter().flatten();
    owners.any(|owner| {
        owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref()
    })
}

/// Whether containers use a volume as what it is.
fn check_mode(pod: &Pod, volume: &Volume, found: &PersistentVolume) -> Result<(), ClaimError> {
    let mode = found
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_mode.as_deref());
    let mode = mode.unwrap_or(FILESYSTEM);
    let uses = Uses::of(pod, &volume.name);
    let wrong = |field| {
        Err(ClaimError::Mode {
            volume: volume.name.clone(),
            mode: mode.to_owned(),
            field,
        })
    };
    if uses.mounted && mode != FILESYSTEM {
        return wrong("volumeMounts");
    }
    if uses.as_device && mode == FILESYSTEM {
        return wrong("volumeDevices");
    }
    Ok(())
}

/// How the containers of a pod use a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Uses {
    pub(super) mounted: bool,
    pub(super) as_device: bool,
}

impl Uses {
    /// Source: `GetPodVolumeNames` in `pkg/volume/util/util.go` at v1.37.
    pub(super) fn of(pod: &Pod, volume: &str) -> Self {
        let of_one = |container: &Container| Self {
            mounted: container
                .volume_mounts
                .iter()
                .flatten()
                .any(|mount| mount.name == volume),
            as_device: container
                .volume_devices
                .iter()
                .flatten()
                .any(|device| device.name == volume),
        };
        let debuggers = pod.ephemeral_containers();
        pod.all_containers()
            .chain(&debuggers)
            .map(of_one)
            .fold(Self::default(), |all, one| Self {
                mounted: all.mounted || one.mounted,
                as_device: all.as_device || one.as_device,
            })
    }

    pub(super) fn any(self) -> bool {
        self.mounted || self.as_device
    }
}

/// What is worth a place on disk.
fn kept(mut volume: PersistentVolume) -> PersistentVolume {
    volume.metadata.managed_fields = None;
    volume.status = None;
    volume
}

#[cfg(test)]
mod tests;
