//! What is done about volumes, set 4 of upstream's cases, and what each write of a binding changes.

use coracle_api::volume::{BIND_COMPLETED, BOUND_BY_CONTROLLER, MIGRATED_TO, PROVISIONED_BY};
use serde_json::{Value, json};

use super::{
    super::{
        bind,
        volume_plan::{self, Reclaim, VolumePlan},
    },
    annotated, claim, merge, of, volume,
};

#[test]
fn a_volume_follows_its_claim() {
    let to = |name: Value| claim(&json!({"spec": {"volumeName": name}}));
    let mut made = of("c", "u");
    merge(
        &mut made,
        &json!({"metadata": {"annotations": {PROVISIONED_BY: "example.com/disk"}},
        "spec": {"persistentVolumeReclaimPolicy": "Delete"}}),
    );
    let mut kept = made.clone();
    merge(
        &mut kept,
        &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}),
    );
    let mut block = of("c", "u");
    merge(&mut block, &json!({"spec": {"volumeMode": "Block"}}));
    let own = of("c", "u");
    let left = || VolumePlan::Release(Reclaim::Leave);
    for (case, volume_is, claim, expect) in [
        ("4-1", json!({}), None, VolumePlan::Phase("Available")),
        ("4-2", of("c", ""), None, VolumePlan::Phase("Available")),
        ("4-3", own.clone(), None, left()),
        (
            "4-5",
            own.clone(),
            Some(to(Value::Null)),
            VolumePlan::WakeClaim,
        ),
        (
            "4-6",
            own.clone(),
            Some(to(json!("v"))),
            VolumePlan::Phase("Bound"),
        ),
        ("4-7", own, Some(to(json!("other"))), VolumePlan::Unbind),
        ("4-8", made, Some(to(json!("other"))), left()),
        ("", kept, Some(to(json!("other"))), VolumePlan::Unbind),
        ("4-9", block, Some(to(Value::Null)), VolumePlan::Mismatch),
    ] {
        let volume = volume("v", &volume_is);
        assert_eq!(volume_plan::plan(&volume, claim.as_ref()), expect, "{case}");
    }
}

#[test]
fn what_nobody_here_can_reclaim_fails_and_what_is_retained_stays() {
    let check = |more: &Value, expect: Option<(&str, &str)>| {
        let mut object = of("c", "u");
        merge(&mut object, more);
        let plan = volume_plan::plan(&volume("v", &object), None);
        let VolumePlan::Release(reclaim) = plan else {
            panic!("{plan:?}");
        };
        let found = match &reclaim {
            Reclaim::Leave => None,
            Reclaim::Fail { reason, message } => Some((*reason, message.as_str())),
        };
        assert_eq!(found, expect, "{more}");
    };
    let policy = |name: &str| json!({"spec": {"persistentVolumeReclaimPolicy": name}});
    let deleted = |name: &str, value: &str| {
        let mut object = policy("Delete");
        merge(
            &mut object,
            &json!({"metadata": {"annotations": {name: value}}}),
        );
        object
    };
    let no_deleter =
        "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched";
    check(&policy("Retain"), None);
    check(
        &policy("Recycle"),
        Some((
            "VolumeFailedRecycle",
            "No recycler plugin found for the volume!",
        )),
    );
    check(&policy("Delete"), Some(("VolumeFailedDelete", no_deleter)));
    check(
        &deleted(PROVISIONED_BY, "kubernetes.io/host-path"),
        Some(("VolumeFailedDelete", no_deleter)),
    );
    check(&deleted(PROVISIONED_BY, "example.com/disk"), None);
    check(&deleted(MIGRATED_TO, "example.com/disk"), None);
    let mut csi = policy("Delete");
    merge(
        &mut csi,
        &json!({"spec": {"csi": {"driver": "d", "volumeHandle": "h"}}}),
    );
    check(&csi, None);
    let unknown = "Volume has unrecognized PersistentVolumeReclaimPolicy";
    check(
        &policy("Other"),
        Some(("VolumeUnknownReclaimPolicy", unknown)),
    );
}

#[test]
fn each_side_of_a_binding_is_written_once() {
    let asks = claim(&json!({"metadata": {"resourceVersion": "7"}}));
    let reference = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "ns", "name": "c",
        "uid": "u", "resourceVersion": "7"});
    let by_us = || json!({"annotations": {BOUND_BY_CONTROLLER: "yes"}});
    for (is, expect) in [
        (
            json!({}),
            Some(json!({"spec": {"claimRef": reference}, "metadata": by_us()})),
        ),
        // Kept for it by its user, who chose.
        (of("c", ""), Some(json!({"spec": {"claimRef": reference}}))),
        (of("c", "u"), None),
    ] {
        assert_eq!(bind::volume(&volume("v", &is), &asks), expect, "{is}");
    }
    let free = volume("v", &json!({}));
    let done = json!({"annotations": {BIND_COMPLETED: "yes"}});
    let mut both = done.clone();
    merge(&mut both, &by_us());
    let bound = json!({"metadata": done, "spec": {"volumeName": "v"}});
    for (is, expect) in [
        (
            json!({}),
            Some(json!({"spec": {"volumeName": "v"}, "metadata": both})),
        ),
        (
            json!({"spec": {"volumeName": "v"}}),
            Some(json!({"metadata": done})),
        ),
        (bound, None),
    ] {
        assert_eq!(bind::claim(&claim(&is), &free), expect, "{is}");
    }
    let unbound = bind::unbound(&volume("v", &annotated(BOUND_BY_CONTROLLER)));
    assert_eq!(unbound["spec"], json!({"claimRef": null}));
    assert_eq!(
        unbound["metadata"]["annotations"],
        json!({BOUND_BY_CONTROLLER: null})
    );
    let kept = bind::unbound(&volume("v", &of("c", "u")));
    assert_eq!(kept, json!({"spec": {"claimRef": {"uid": null}}}));
}

#[test]
fn a_claim_has_what_its_volume_has_from_the_moment_that_it_is_bound() {
    let gold =
        json!({"spec": {"capacity": {"storage": "2Gi"}, "volumeAttributesClassName": "gold"}});
    let resized = json!({"metadata": {"annotations": {"volume.alpha.kubernetes.io/pre-resize-capacity": "1Gi"}}});
    let status = |claim_has: Value, phase: &str, with: Option<&Value>| {
        let volume = with.map(|more| volume("v", more));
        let claim = claim(&json!({"status": claim_has}));
        bind::status_of_claim(&claim, phase, volume.as_deref())
    };
    let modes = json!(["ReadWriteOnce"]);
    assert_eq!(
        status(json!({}), "Bound", Some(&gold)),
        Some(
            json!({"status": {"phase": "Bound", "accessModes": modes, "capacity": {"storage": "2Gi"},
            "currentVolumeAttributesClassName": "gold"}})
        )
    );
    // A file system that has not grown yet, and one that has since.
    assert_eq!(
        status(json!({}), "Bound", Some(&resized)).unwrap()["status"]["capacity"],
        json!({"storage": "1Gi"})
    );
    let bound = json!({"phase": "Bound", "accessModes": modes, "capacity": {"storage": "1Gi"}});
    assert_eq!(status(bound.clone(), "Bound", Some(&gold)), None);
    assert_eq!(
        status(bound, "Lost", None),
        Some(json!({"status": {"phase": "Lost", "accessModes": null, "capacity": null}}))
    );
    assert_eq!(status(json!({}), "Pending", None), None);
}

#[test]
fn a_phase_is_written_where_it_differs() {
    let available = volume("v", &json!({}));
    assert_eq!(bind::phase_of_volume(&available, "Available", ""), None);
    let bound = json!({"status": {"phase": "Bound", "message": null}});
    assert_eq!(bind::phase_of_volume(&available, "Bound", ""), Some(bound));
    let failed = json!({"status": {"phase": "Failed", "message": "why"}});
    assert_eq!(
        bind::phase_of_volume(&available, "Failed", "why"),
        Some(failed)
    );
}
