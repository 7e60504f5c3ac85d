//! Whose a pod's claims are: with an owner they go when it goes, as
//! `spec.persistentVolumeClaimRetentionPolicy` says. Pure.
//!
//! | whenScaled | whenDeleted | owner of a claim |
//! |---|---|---|
//! | Retain | Retain | nobody |
//! | Retain | Delete | the set |
//! | Delete | Retain | its pod, once that is one too many |
//! | Delete | Delete | the set; its pod, once that is one too many |
//!
//! Source: `pkg/controller/statefulset/stateful_set_utils.go` (isClaimOwnerUpToDate,
//! updateClaimOwnerRefForSetAndPod, hasUnexpectedController, hasStaleOwnerRef) at v1.37.

use k8s_openapi::{api::apps::v1::StatefulSet, apimachinery::pkg::apis::meta::v1::OwnerReference};

use crate::{owner::controller_reference, pod::Pod};

/// The value of a policy that lets claims go.
const DELETE: &str = "Delete";

/// Who may own the claims of one ordinal.
pub(super) struct Owners {
    set: OwnerReference,
    /// Without a uid if it is yet to be made.
    pod: OwnerReference,
    go_with_the_set: bool,
    go_with_the_pod: bool,
    /// Whether the pod is one too many.
    is_condemned: bool,
}

impl Owners {
    /// Of the claims that the pod of that name has, or will have.
    pub(super) fn new(
        set: &StatefulSet,
        (name, pod): (&str, Option<&Pod>),
        is_condemned: bool,
    ) -> Self {
        let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
        let deletes = |value: Option<&String>| value.is_some_and(|value| value == DELETE);
        let uid = pod.and_then(|pod| pod.metadata.uid.clone());
        Self {
            set: controller_reference(set),
            pod: OwnerReference {
                api_version: "v1".into(),
                kind: "Pod".into(),
                name: name.to_owned(),
                uid: uid.unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            },
            go_with_the_set: policy.is_some_and(|policy| deletes(policy.when_deleted.as_ref())),
            go_with_the_pod: policy.is_some_and(|policy| deletes(policy.when_scaled.as_ref())),
            is_condemned,
        }
    }

    /// The owner that the policy asks for.
    fn wanted(&self) -> Option<&OwnerReference> {
        if self.go_with_the_pod && self.is_condemned {
            return Some(&self.pod);
        }
        self.go_with_the_set.then_some(&self.set)
    }

    /// The owners of a claim that is made anew.
    pub(super) fn of_new(&self) -> Option<Vec<OwnerReference>> {
        self.wanted().map(|owner| vec![owner.clone()])
    }

    /// What the owners of a claim have to become; `None` if they are right, or must not be touched.
    pub(super) fn correction(&self, owners: &[OwnerReference]) -> Option<Vec<OwnerReference>> {
        let has = |owner: &OwnerReference| owners.iter().any(|known| known.uid == owner.uid);
        if is_stale(owners, &self.set) || is_stale(owners, &self.pod) {
            return None;
        }
        let is_contested = self.is_contested(owners);
        let is_right = if is_contested {
            !has(&self.set) && !has(&self.pod)
        } else {
            let is_ours =
                |owner: &OwnerReference| owner.uid == self.set.uid || owner.uid == self.pod.uid;
            let is_wanted = |owner: &OwnerReference| {
                self.wanted().is_some_and(|wanted| wanted.uid == owner.uid)
            };
            has(&self.set) == is_wanted(&self.set)
                && has(&self.pod) == is_wanted(&self.pod)
                && owners
                    .iter()
                    .filter(|owner| is_ours(owner))
                    .all(|owner| owner.controller == Some(true))
        };
        if is_right {
            return None;
        }
        let others = owners
            .iter()
            .filter(|owner| !names(owner, &self.set) && !names(owner, &self.pod));
        let wanted = self.wanted().filter(|_| !is_contested);
        Some(others.chain(wanted).cloned().collect())
    }

    /// Whether somebody else controls a claim that the policy speaks of.
    pub(super) fn is_contested(&self, owners: &[OwnerReference]) -> bool {
        let keeps_all = !self.go_with_the_set && !self.go_with_the_pod;
        let is_foreign = |owner: &OwnerReference| {
            let mut ours = [&self.set, &self.pod].into_iter();
            match ours.find(|ours| names(owner, ours)) {
                Some(ours) => owner.uid != ours.uid,
                None => owner.controller == Some(true),
            }
        };
        !keeps_all && owners.iter().any(is_foreign)
    }

    /// Whether a claim goes with a former pod of this name: a new pod has to wait for a new claim.
    pub(super) fn goes_with_a_former_pod(&self, owners: &[OwnerReference]) -> bool {
        self.go_with_the_pod && is_stale(owners, &self.pod)
    }
}

/// Whether two references are of the same name and kind, be it another object.
fn names(owner: &OwnerReference, other: &OwnerReference) -> bool {
    (&owner.api_version, &owner.kind, &owner.name) == (&other.api_version, &other.kind, &other.name)
}

/// Whether there is a reference to an object that had this name before.
fn is_stale(owners: &[OwnerReference], object: &OwnerReference) -> bool {
    let named = owners.iter().find(|owner| names(owner, object));
    named.is_some_and(|owner| owner.uid != object.uid)
}
