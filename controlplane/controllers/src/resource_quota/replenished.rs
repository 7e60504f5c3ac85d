//! Which changes of an object may give something back to a quota, or to another one. Pure.
//!
//! Source: `pkg/quota/v1/install/update_filter.go` at v1.37.

use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim, apimachinery::pkg::api::resource::Quantity,
};

use crate::{
    pod::{Pod, PodStatus},
    pod_state,
};

/// It is over, its containers have been given something else than they had, or it has a deadline
/// now, or none any more.
pub(super) fn by_pod(old: &Pod, new: &Pod) -> bool {
    let has_deadline = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.has_deadline);
    let ends = pod_state::is_active(old) && !pod_state::is_active(new);
    ends || has_deadline(old) != has_deadline(new) || !given(old).eq(given(new))
}

/// What its containers have, in their order.
fn given(pod: &Pod) -> impl Iterator<Item = u64> {
    let of = |status: &PodStatus| {
        let init = status.init_container_statuses.iter();
        let all = init.chain(&status.container_statuses).flatten();
        all.map(|container| container.resources)
            .filter(|resources| *resources != 0)
            .collect::<Vec<_>>()
    };
    pod.status.as_ref().map(of).unwrap_or_default().into_iter()
}

/// Its volume is of another size, or it comes to other classes of volume attributes.
pub(super) fn by_claim(old: &PersistentVolumeClaim, new: &PersistentVolumeClaim) -> bool {
    allocated(old) != allocated(new) || classes(old) != classes(new)
}

fn allocated(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    let status = claim.status.as_ref()?;
    status.allocated_resources.as_ref()?.get("storage")
}

/// Those that it is of, as quotas with scopes see it.
fn classes(claim: &PersistentVolumeClaim) -> [Option<&String>; 3] {
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    let modified = status.and_then(|status| status.modify_volume_status.as_ref());
    [
        spec.and_then(|spec| spec.volume_attributes_class_name.as_ref()),
        status.and_then(|status| status.current_volume_attributes_class_name.as_ref()),
        modified.and_then(|status| status.target_volume_attributes_class_name.as_ref()),
    ]
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn check<K: DeserializeOwned>(
        by: fn(&K, &K) -> bool,
        (old, new): (&Value, &Value),
        expect: bool,
    ) {
        let [before, after] = [old, new].map(|one| serde_json::from_value(one.clone()).unwrap());
        assert_eq!(by(&before, &after), expect, "{old} to {new}");
    }

    #[test]
    fn pods_give_back_when_they_end_shrink_or_get_a_deadline() {
        let running = json!({"status": {"phase": "Running"}});
        let has = |cpu: &str| json!({"status": {"containerStatuses": [{"resources": {"requests": {"cpu": cpu}}}]}});
        let ends = json!({"spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "Running"}});
        for (old, new, expect) in [
            (&running, &running, false),
            (&running, &json!({"status": {"phase": "Succeeded"}}), true),
            (
                &running,
                &json!({"status": {"containerStatuses": [{"restartCount": 1}]}}),
                false,
            ),
            (&has("1"), &has("1"), false),
            (&has("2"), &has("1"), true),
            (&running, &has("1"), true),
            (&running, &ends, true),
            (&ends, &running, true),
        ] {
            check(by_pod, (old, new), expect);
        }
    }

    #[test]
    fn claims_give_back_when_their_volume_or_its_class_changes() {
        let claim = |spec: Value, status: Value| json!({"spec": spec, "status": status});
        let plain = claim(json!({}), json!({"phase": "Bound"}));
        let size = |size: &str| claim(json!({}), json!({"allocatedResources": {"storage": size}}));
        for (old, new, expect) in [
            (&plain, &claim(json!({}), json!({"phase": "Lost"})), false),
            (&size("2Gi"), &size("1Gi"), true),
            (&size("2Gi"), &size("2Gi"), false),
            (&size("2Gi"), &plain, true),
            (
                &plain,
                &claim(json!({"volumeAttributesClassName": "gold"}), json!({})),
                true,
            ),
            (
                &plain,
                &claim(
                    json!({}),
                    json!({"currentVolumeAttributesClassName": "gold"}),
                ),
                true,
            ),
            (
                &plain,
                &claim(
                    json!({}),
                    json!({"modifyVolumeStatus": {"status": "Pending", "targetVolumeAttributesClassName": "gold"}}),
                ),
                true,
            ),
        ] {
            check(by_claim, (old, new), expect);
        }
    }
}
