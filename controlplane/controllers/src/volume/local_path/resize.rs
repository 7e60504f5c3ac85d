//! What a claim that grows changes, as merge patches; `None` where nothing does. Pure.

use coracle_api::volume::{capacity, is_bound_to, requested, storage};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

/// Of a claim that is bound to the volume and asks for more than that has.
pub(super) fn volume(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Value> {
    let grows = may_grow(claim, volume) && requested(claim) > capacity(volume);
    grows.then(|| json!({"spec": {"capacity": asked(claim)}}))
}

/// Of a claim whose volume has what it asks for, or will have by [`volume`].
///
/// How far another resizer had come is forgotten: there is nothing left to do.
pub(super) fn claim(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Value> {
    let status = claim.status.as_ref();
    let has = storage(status.and_then(|status| status.capacity.as_ref())).unwrap_or_default();
    let grows = may_grow(claim, volume) && requested(claim) > has;
    let status = json!({"capacity": asked(claim), "allocatedResources": asked(claim),
        "allocatedResourceStatuses": null, "conditions": null});
    grows.then(|| json!({"status": status}))
}

fn may_grow(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let phase = claim.status.as_ref().and_then(|it| it.phase.as_deref());
    phase == Some("Bound")
        && is_bound_to(volume, claim)
        && claim.metadata.deletion_timestamp.is_none()
        && volume.metadata.deletion_timestamp.is_none()
}

/// As its user has written it.
fn asked(claim: &PersistentVolumeClaim) -> Value {
    let resources = claim.spec.as_ref().and_then(|it| it.resources.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    json!({"storage": requests.and_then(|requests| requests.get("storage"))})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_claim_that_asks_for_more_is_given_it_and_nobody_else_is() {
        // Of the claim: its phase, uid, what it asks for and has; of the volume: what it has.
        for (phase, uid, asked, has, of_volume, expect) in [
            ("Bound", "u", "2Gi", "1Gi", "1Gi", (true, true)),
            // Ended between the two writes.
            ("Bound", "u", "2Gi", "1Gi", "2Gi", (false, true)),
            ("Bound", "u", "2Gi", "2Gi", "2Gi", (false, false)),
            ("Bound", "u", "2048Mi", "2Gi", "2Gi", (false, false)),
            ("Bound", "u", "1Gi", "2Gi", "2Gi", (false, false)),
            // A claim of a larger volume that was made by hand.
            ("Bound", "u", "2Gi", "5Gi", "5Gi", (false, false)),
            ("Pending", "u", "2Gi", "1Gi", "1Gi", (false, false)),
            ("Lost", "u", "2Gi", "1Gi", "1Gi", (false, false)),
            ("Bound", "namesake", "2Gi", "1Gi", "1Gi", (false, false)),
        ] {
            let of_claim = json!({"metadata": {"namespace": "ns", "name": "data", "uid": uid},
                "spec": {"resources": {"requests": {"storage": asked}}, "volumeName": "v"},
                "status": {"phase": phase, "capacity": {"storage": has}}});
            let of_claim: PersistentVolumeClaim = serde_json::from_value(of_claim).unwrap();
            let reference = json!({"namespace": "ns", "name": "data", "uid": "u"});
            let object = json!({"metadata": {"name": "v"},
                "spec": {"capacity": {"storage": of_volume}, "claimRef": reference}});
            let object: PersistentVolume = serde_json::from_value(object).unwrap();
            let (first, second) = (volume(&of_claim, &object), claim(&of_claim, &object));
            let case = format!("{phase} {uid} {asked} {has} {of_volume}");
            assert_eq!((first.is_some(), second.is_some()), expect, "{case}");
            if let Some(patch) = first {
                assert_eq!(patch, json!({"spec": {"capacity": {"storage": asked}}}));
            }
            if let Some(patch) = second {
                assert_eq!(patch["status"]["capacity"], json!({"storage": asked}));
            }
        }
    }
}
