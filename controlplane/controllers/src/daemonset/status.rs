//! What a DaemonSet tells of its pods. Pure.
//!
//! Source: `pkg/controller/daemon/daemon_controller.go` (updateDaemonSetStatus) at v1.37.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSetStatus;

use super::{node::Place, view::View};

/// The status that nodes and pods add up to, and when it may change by the mere passing of time.
pub(super) fn status(view: &View<'_>) -> (DaemonSetStatus, Option<Duration>) {
    let old = view.ds.status.clone().unwrap_or_default();
    let mut status = DaemonSetStatus {
        observed_generation: view.ds.metadata.generation,
        collision_count: old.collision_count,
        conditions: old.conditions,
        ..DaemonSetStatus::default()
    };
    let (mut updated, mut available, mut again) = (0, 0, None::<Duration>);
    for node in view.nodes.values() {
        let first = node.pods.first();
        if node.place != Place::Run {
            status.number_misscheduled += i32::from(first.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = first else { continue };
        status.current_number_scheduled += 1;
        updated += i32::from(view.is_updated(pod));
        if let Some(wait) = view.until_available(pod) {
            status.number_ready += 1;
            if wait.is_zero() {
                available += 1;
            } else {
                again = Some(again.map_or(wait, |sooner| sooner.min(wait)));
            }
        }
    }
    status.updated_number_scheduled = Some(updated);
    status.number_available = Some(available);
    status.number_unavailable = Some(status.desired_number_scheduled - available);
    (status, again)
}

/// Whether `new` says anything that `old` does not.
pub(super) fn differs(old: Option<&DaemonSetStatus>, new: &DaemonSetStatus) -> bool {
    let said = |status: &DaemonSetStatus| DaemonSetStatus {
        updated_number_scheduled: status.updated_number_scheduled.or(Some(0)),
        number_available: status.number_available.or(Some(0)),
        number_unavailable: status.number_unavailable.or(Some(0)),
        ..status.clone()
    };
    old.is_none_or(|old| said(old) != said(new))
}
