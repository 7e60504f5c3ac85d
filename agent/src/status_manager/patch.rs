//! The strategic merge patch that turns one pod status into another (pure).

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use serde_json::{Map, Value, json};

use crate::{
    pod_status::{self, condition_is_true, is_ready},
    runtime::types::PodRef,
};

/// The patch, or `None` if nothing differs. Lists that merge by key (`conditions`, `podIPs`,
/// `hostIPs`) get their own treatment; all others are replaced.
pub(super) fn diff(pod: &PodRef, from: &PodStatus, to: &PodStatus) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Ok(Value::Object(from)), Ok(Value::Object(to))) =
        (serde_json::to_value(from), serde_json::to_value(to))
    else {
        return None;
    };
    let mut changes = Map::new();
    for (key, value) in &to {
        let before = from.get(key);
        if before == Some(value) {
            continue;
        }
        let change = match key.as_str() {
            "conditions" => conditions(before, value),
            "podIPs" | "hostIPs" => addresses(before, value),
            _ => value.clone(),
        };
        changes.insert(key.clone(), change);
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    (!changes.is_empty()).then(|| json!({"metadata": {"uid": pod.uid}, "status": changes}))
}

/// Changed conditions whole, with explicit nulls for what they no longer say.
fn conditions(from: Option<&Value>, to: &Value) -> Value {
    let from = from
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let to = to.as_array().map(Vec::as_slice).unwrap_or_default();
    let same_type = |a: &Value, b: &Value| a.get("type") == b.get("type");
    let mut changes = Vec::new();
    for condition in to {
        let before = from.iter().find(|before| same_type(before, condition));
        if before == Some(condition) {
            continue;
        }
        let mut change = condition.clone();
        if let (Some(before), Some(change)) =
            (before.and_then(Value::as_object), change.as_object_mut())
        {
            for key in before.keys() {
                change.entry(key.clone()).or_insert(Value::Null);
            }
        }
        changes.push(change);
    }
    for gone in from
        .iter()
        .filter(|before| !to.iter().any(|condition| same_type(before, condition)))
    {
        changes.push(json!({"$patch": "delete", "type": gone.get("type")}));
    }
    Value::Array(changes)
}

fn addresses(from: Option<&Value>, to: &Value) -> Value {
    let from = from
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let to = to.as_array().map(Vec::as_slice).unwrap_or_default();
    let gone = from
        .iter()
        .filter(|before| !to.contains(before))
        .map(|before| json!({"$patch": "delete", "ip": before.get("ip")}));
    Value::Array(gone.chain(to.iter().cloned()).collect())
}

/// What of a status is written by others alone: see [`pod_status::of_others`].
const OF_OTHERS: [&str; 4] = [
    "nominatedNodeName",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
];

/// Whether the API shows anything else of what this node writes than it reported: after a
/// partition, or by somebody's hand. Conditions of others are theirs.
///
/// Source: `isPodStatusByKubeletEqual` in `pkg/kubelet/status/status_manager.go` at v1.37.
pub(super) fn was_changed_by_others(in_api: &PodStatus, reported: &PodStatus) -> bool {
    in_api != reported && own_part(in_api) != own_part(reported)
}

/// As it is written, so with whole seconds; conditions in any order, and nothing for what is empty.
fn own_part(status: &PodStatus) -> Option<Map<String, Value>> {
    let Ok(Value::Object(mut own)) = serde_json::to_value(status) else {
        return None;
    };
    if let Some(Value::Array(conditions)) = own.get_mut("conditions") {
        let kind = |condition: &Value| condition["type"].as_str().map(str::to_owned);
        conditions.retain(|one| kind(one).is_some_and(|kind| pod_status::is_own_condition(&kind)));
        conditions.sort_by_key(kind);
    }
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    own.retain(|key, value| !OF_OTHERS.contains(&key.as_str()) && !is_empty(&*value));
    Some(own)
}

/// Whether somebody waits for this change.
pub(super) fn is_urgent(from: &PodStatus, to: &PodStatus) -> bool {
    // Pending is what everybody expects of a new pod; any other phase is news.
    let phase = |status: &PodStatus| status.phase.clone().unwrap_or_else(|| "Pending".to_owned());
    is_ready(from) != is_ready(to)
        || condition_is_true(from, "ContainersReady") != condition_is_true(to, "ContainersReady")
        || phase(from) != phase(to)
        || restarts(from) != restarts(to)
        || trouble(from) != trouble(to)
        || begun(from) < begun(to)
}

fn restarts(status: &PodStatus) -> i32 {
    statuses(status).map(|status| status.restart_count).sum()
}

/// Ephemeral containers that have started: no readiness tells whoever attaches to them.
fn begun(status: &PodStatus) -> usize {
    let begun = |status: &&ContainerStatus| status.container_id.is_some();
    status
        .ephemeral_container_statuses
        .iter()
        .flatten()
        .filter(begun)
        .count()
}

/// Waiting reasons other than those of a normal start.
fn trouble(status: &PodStatus) -> Vec<&str> {
    statuses(status)
        .filter_map(|status| status.state.as_ref()?.waiting.as_ref()?.reason.as_deref())
        .filter(|reason| !matches!(*reason, "ContainerCreating" | "PodInitializing"))
        .collect()
}

fn statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runtime::types::PodUid;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).expect("status")
    }

    fn check(from: Value, to: Value, expected: Option<Value>) {
        let pod = PodRef {
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            uid: PodUid("u".to_owned()),
        };
        let expected = expected.map(|changes| json!({"metadata": {"uid": "u"}, "status": changes}));
        assert_eq!(diff(&pod, &status(from), &status(to)), expected);
    }

    #[test]
    fn only_differences_are_written() {
        check(
            json!({"phase": "Running"}),
            json!({"phase": "Running"}),
            None,
        );
        check(
            json!({"phase": "Pending", "hostIP": "1.2.3.4"}),
            json!({"phase": "Running", "hostIP": "1.2.3.4"}),
            Some(json!({"phase": "Running"})),
        );
        check(
            json!({"reason": "Evicted"}),
            json!({}),
            Some(json!({"reason": null})),
        );
    }

    #[test]
    fn conditions_forget_what_they_no_longer_say() {
        check(
            json!({"conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}, {"type": "X", "status": "True"}]}),
            json!({"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "True"}]}),
            Some(json!({"conditions": [{"type": "Ready", "status": "True", "reason": null}]})),
        );
    }

    #[test]
    fn changed_addresses_replace_the_old() {
        check(
            json!({"podIPs": [{"ip": "10.0.0.1"}]}),
            json!({"podIPs": [{"ip": "10.0.0.2"}]}),
            Some(json!({"podIPs": [{"$patch": "delete", "ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]})),
        );
    }

    #[test]
    fn whatever_the_node_writes_is_compared_and_nothing_else() {
        let reported = json!({
            "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}],
            "containerStatuses": [{"name": "a", "image": "i", "imageID": "", "ready": true, "started": true,
                "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}]});
        let with = |pointer: &str, value: Value| {
            let mut changed = reported.clone();
            let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
            changed.pointer_mut(parent).expect("parent")[key] = value;
            changed
        };
        let conditions = |extra: &[Value]| {
            let own = [
                json!({"type": "Initialized", "status": "True"}),
                json!({"type": "Ready", "status": "True"}),
            ];
            Value::Array(own.iter().chain(extra).cloned().collect())
        };
        let first = "/containerStatuses/0";
        for (in_api, changed) in [
            (reported.clone(), false),
            (with("/phase", json!("Failed")), true),
            (with("/podIP", json!("10.9.9.9")), true),
            (with("/podIPs", json!([{"ip": "10.9.9.9"}])), true),
            (with("/podIPs", json!([])), true),
            (with("/reason", json!("Evicted")), true),
            (with("/hostIP", json!("192.0.2.1")), true),
            (with(&format!("{first}/ready"), json!(false)), true),
            (with(&format!("{first}/started"), json!(false)), true),
            (
                with(&format!("{first}/state"), json!({"waiting": {}})),
                true,
            ),
            (with("/conditions", json!([])), true),
            (with("/conditions", conditions(&[])), false),
            (
                with(
                    "/conditions",
                    conditions(&[json!({"type": "of/others", "status": "True"})]),
                ),
                false,
            ),
            (with("/nominatedNodeName", json!("n2")), false),
            (
                with("/resourceClaimStatuses", json!([{"name": "c"}])),
                false,
            ),
            (with("/initContainerStatuses", json!([])), false),
        ] {
            let (in_api, reported) = (status(in_api), status(reported.clone()));
            assert_eq!(
                was_changed_by_others(&in_api, &reported),
                changed,
                "{in_api:?}"
            );
        }
        // The API has whole seconds.
        let mut exact = status(reported.clone());
        let start = exact.start_time.as_mut().expect("a start");
        start.0 += Duration::from_millis(400);
        assert!(!was_changed_by_others(&status(reported), &exact));
    }

    #[test]
    fn readiness_and_trouble_are_urgent() {
        let ready =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let creating = json!({"phase": "Pending", "containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]});
        let failing = json!({"phase": "Pending", "containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull"}}}]});
        let debugged = |id: Option<&str>| json!({"phase": "Running", "ephemeralContainerStatuses": [{"name": "e", "image": "", "imageID": "", "ready": false, "restartCount": 0, "containerID": id}]});
        let cases = [
            (json!({"phase": "Running"}), debugged(None), false),
            (debugged(None), debugged(Some("coracle://1")), true),
            (
                debugged(Some("coracle://1")),
                debugged(Some("coracle://1")),
                false,
            ),
            (json!({}), creating.clone(), false),
            (creating.clone(), failing, true),
            (creating, ready.clone(), true),
            (ready.clone(), ready, false),
        ];
        for (from, to, urgent) in cases {
            assert_eq!(
                is_urgent(&status(from.clone()), &status(to.clone())),
                urgent,
                "{from} {to}"
            );
        }
    }
}
