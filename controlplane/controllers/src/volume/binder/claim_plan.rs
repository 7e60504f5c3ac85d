//! What has to be done about a claim. Pure.
//!
//! Source: `syncUnboundClaim`, `syncBoundClaim` in `pv_controller.go` and `findByClaim` in
//! `index.go`, `pkg/controller/volume/persistentvolume` at v1.37.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use coracle_api::{
    selector::ParseSelectorError,
    volume::{
        BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, Search, annotation, claim_of,
        claim_says_class, class_of_claim, default_class, find_matching, is_bound_to, satisfies,
        volume_of, waits_for_consumer,
    },
};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};

/// Of provisioners of the tree, of which none is here.
const IN_TREE: &str = "kubernetes.io/";

/// What is seen of everything around a claim.
pub(super) struct Seen<'a> {
    pub(super) claim: &'a PersistentVolumeClaim,
    /// All that there are.
    pub(super) volumes: &'a [Arc<PersistentVolume>],
    pub(super) classes: &'a [Arc<StorageClass>],
    /// The names of pods with the claim that are on no node yet and have not ended.
    pub(super) unscheduled: &'a [String],
}

/// An event about the claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tell {
    pub(super) is_warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The one thing that is done about a claim now; what follows from it comes with the next look.
#[derive(Debug, PartialEq)]
pub(super) enum ClaimPlan {
    /// Binds this volume, or finishes to do so.
    Bind(Arc<PersistentVolume>),
    /// Says which class it is of, by which it comes back.
    Assign(String),
    /// Asks this provisioner for a volume.
    Provision(String),
    /// It waits.
    Wait(Option<Tell>),
    /// Only tells, and leaves the status alone.
    Tell(Tell),
    /// What it was bound to is not there any more.
    Lost(Tell),
    /// Cannot be, and is told and tried again.
    Misbound(Tell),
}

fn normal(reason: &'static str, message: impl Into<String>) -> Tell {
    Tell {
        is_warning: false,
        reason,
        message: message.into(),
    }
}

fn warning(reason: &'static str, message: impl Into<String>) -> Tell {
    Tell {
        is_warning: true,
        ..normal(reason, message)
    }
}

/// Decides by what is seen at one moment. One that has been bound is never given another volume.
///
/// # Errors
/// The claim's selector cannot be meant.
pub(super) fn plan(seen: &Seen<'_>) -> Result<ClaimPlan, ParseSelectorError> {
    let claim = seen.claim;
    let named = volume_of(claim);
    let volume = seen
        .volumes
        .iter()
        .find(|volume| volume.metadata.name.as_deref() == Some(named));
    if annotation(&claim.metadata, BIND_COMPLETED).is_some() {
        return Ok(of_bound(claim, named, volume));
    }
    match (named, volume) {
        ("", _) => of_free(seen),
        // It may come yet.
        (_, None) => Ok(ClaimPlan::Wait(None)),
        (_, Some(volume)) => Ok(of_choosy(claim, volume)),
    }
}

/// A claim that has been bound.
fn of_bound(
    claim: &PersistentVolumeClaim,
    named: &str,
    volume: Option<&Arc<PersistentVolume>>,
) -> ClaimPlan {
    let lost = |reason, message: &str| ClaimPlan::Lost(warning(reason, message));
    let Some(volume) = volume else {
        return if named.is_empty() {
            let why =
                "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
            lost("ClaimLost", why)
        } else {
            let why = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            lost("ClaimLost", why)
        };
    };
    match claim_of(volume) {
        // Unbound by somebody, or not seen bound yet; and as it should be, where nothing is
        // written.
        None => ClaimPlan::Bind(volume.clone()),
        Some(reference) if reference.uid == claim.metadata.uid => ClaimPlan::Bind(volume.clone()),
        Some(_) => {
            let why = "Two claims are bound to the same volume, this one is bound incorrectly";
            lost("ClaimMisbound", why)
        }
    }
}

/// A claim that names a volume.
fn of_choosy(claim: &PersistentVolumeClaim, volume: &Arc<PersistentVolume>) -> ClaimPlan {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if claim_of(volume).is_none() {
        return match satisfies(volume, claim) {
            Ok(()) => ClaimPlan::Bind(volume.clone()),
            Err(why) => {
                let message = format!("Cannot bind to requested volume {name:?}: {why}");
                ClaimPlan::Wait(Some(warning("VolumeMismatch", message)))
            }
        };
    }
    if is_bound_to(volume, claim) {
        return ClaimPlan::Bind(volume.clone());
    }
    let message = format!("volume {name:?} already bound to a different claim.");
    let tell = warning("FailedBinding", message);
    if annotation(&claim.metadata, BOUND_BY_CONTROLLER).is_none() {
        ClaimPlan::Wait(Some(tell))
    } else {
        // Somebody has taken its annotation away.
        ClaimPlan::Misbound(tell)
    }
}

/// A claim that takes any volume that fits.
fn of_free(seen: &Seen<'_>) -> Result<ClaimPlan, ParseSelectorError> {
    let (claim, name) = (seen.claim, class_of_claim(seen.claim));
    let class = seen
        .classes
        .iter()
        .find(|class| class.metadata.name.as_deref() == Some(name));
    let is_delayed = class.is_some_and(|class| waits_for_consumer(class));
    let search = if is_delayed {
        Search::Delayed
    } else {
        Search::Immediate
    };
    if let Some(volume) = best(claim, seen.volumes, search)? {
        return Ok(ClaimPlan::Bind(volume));
    }
    if !claim_says_class(claim)
        && let Some(class) = default_class(seen.classes.iter().map(|class| &**class))
    {
        let name = class.metadata.name.clone();
        return Ok(ClaimPlan::Assign(name.unwrap_or_default()));
    }
    if is_delayed && annotation(&claim.metadata, SELECTED_NODE).is_none() {
        return Ok(ClaimPlan::Wait(Some(wait_for_consumer(seen.unscheduled))));
    }
    if name.is_empty() {
        let why = "no persistent volumes available for this claim and no storage class is set";
        return Ok(ClaimPlan::Wait(Some(normal("FailedBinding", why))));
    }
    let failed = |why| ClaimPlan::Tell(warning("ProvisioningFailed", why));
    Ok(match class {
        None => failed(format!("storageclass.storage.k8s.io {name:?} not found")),
        Some(class) if class.provisioner.starts_with(IN_TREE) => {
            let provisioner = &class.provisioner;
            failed(format!("no volume plugin matched name: {provisioner}"))
        }
        Some(class) => ClaimPlan::Provision(class.provisioner.clone()),
    })
}

fn wait_for_consumer(unscheduled: &[String]) -> Tell {
    match unscheduled {
        [] => {
            let message = "waiting for first consumer to be created before binding";
            normal("WaitForFirstConsumer", message)
        }
        [one] => {
            let message = format!("waiting for pod {one} to be scheduled");
            normal("WaitForPodScheduled", message)
        }
        several => {
            let pods = several.join(",");
            let message = format!("waiting for pods {pods} to be scheduled");
            normal("WaitForPodScheduled", message)
        }
    }
}

/// The best volume of those with the fewest access modes that will do.
fn best(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    search: Search<'_>,
) -> Result<Option<Arc<PersistentVolume>>, ParseSelectorError> {
    let asked = claim.spec.as_ref().and_then(|it| it.access_modes.as_ref());
    let sets: BTreeSet<(usize, BTreeSet<&str>)> = volumes
        .iter()
        .map(|volume| modes_of(volume))
        .filter(|set| {
            asked
                .into_iter()
                .flatten()
                .all(|mode| set.contains(mode.as_str()))
        })
        .map(|set| (set.len(), set))
        .collect();
    for (_, set) in &sets {
        let alike = volumes.iter().filter(|volume| modes_of(volume) == *set);
        let alike: Vec<_> = alike.collect();
        let candidates = alike.iter().map(|volume| &***volume);
        let found = find_matching(claim, candidates, search, &HashSet::<String>::new())?;
        if let Some(found) = found {
            let same = alike
                .into_iter()
                .find(|volume| std::ptr::eq(&***volume, found));
            return Ok(same.cloned());
        }
    }
    Ok(None)
}

fn modes_of(volume: &PersistentVolume) -> BTreeSet<&str> {
    let modes = volume.spec.as_ref().and_then(|it| it.access_modes.as_ref());
    modes.into_iter().flatten().map(String::as_str).collect()
}
