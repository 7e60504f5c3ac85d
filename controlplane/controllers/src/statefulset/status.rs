//! What a StatefulSet tells of its pods. Pure.
//!
//! Source: `pkg/controller/statefulset/stateful_set_control.go` (computeReplicaStatus),
//! `stateful_set_utils.go` (completeRollingUpdate, inconsistentStatus) at v1.37.

use k8s_openapi::api::apps::v1::StatefulSetStatus;

use super::{identity::revision_of, view::View};
use crate::pod_state;

/// The status that the pods add up to.
pub(super) fn status(view: &View<'_>) -> StatefulSetStatus {
    let old = view.set.status.clone().unwrap_or_default();
    let (current, update) = (view.versions.current.name, view.versions.update.name);
    let mut counts = Counts::default();
    for pod in view.pods() {
        if pod_state::phase(pod).is_empty() {
            continue;
        }
        counts.replicas += 1;
        if pod_state::phase(pod) == "Running" && pod_state::is_ready(pod) {
            counts.ready += 1;
            counts.available += i32::from(view.is_available(pod));
        }
        if !pod_state::is_terminating(pod) {
            counts.current += i32::from(revision_of(pod) == current);
            counts.updated += i32::from(revision_of(pod) == update);
        }
    }
    let wanted = view.wanted();
    let all = [counts.updated, counts.ready, counts.replicas];
    let is_complete = view.rolls() && all.iter().all(|count| *count == wanted);
    let current = if is_complete {
        counts.current = counts.updated;
        update
    } else {
        current
    };
    let some = |count: i32| (count > 0).then_some(count);
    StatefulSetStatus {
        available_replicas: Some(counts.available),
        collision_count: old.collision_count.or(Some(0)),
        conditions: old.conditions,
        current_replicas: some(counts.current),
        current_revision: Some(current.to_owned()),
        observed_generation: view.set.metadata.generation,
        ready_replicas: some(counts.ready),
        replicas: counts.replicas,
        update_revision: Some(update.to_owned()),
        updated_replicas: some(counts.updated),
    }
}

/// Whether `new` says anything that `old` does not: a count that is left out is none.
pub(super) fn differs(old: Option<&StatefulSetStatus>, new: Option<&StatefulSetStatus>) -> bool {
    let said = |status: Option<&StatefulSetStatus>| {
        let status = status.cloned().unwrap_or_default();
        let count = |count: Option<i32>| count.or(Some(0));
        StatefulSetStatus {
            available_replicas: count(status.available_replicas),
            current_replicas: count(status.current_replicas),
            ready_replicas: count(status.ready_replicas),
            updated_replicas: count(status.updated_replicas),
            ..status
        }
    };
    said(old) != said(new)
}

#[derive(Default)]
struct Counts {
    replicas: i32,
    ready: i32,
    available: i32,
    current: i32,
    updated: i32,
}
