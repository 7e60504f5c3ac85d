//! Which pods of a Job go where there are too many. Pure.
//!
//! Source: `pkg/controller/job/job_controller.go` (activePodsForRemoval), `indexed_job_utils.go`
//! (appendDuplicatedIndexPodsForRemoval), `pkg/controller/controller_utils.go` (ActivePods) at
//! v1.37.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use k8s_openapi::{api::batch::v1::JobSpec, jiff::Timestamp};

use super::observed::{index_of, is_indexed};
use crate::{pod::Pod, pod_state};

/// At least `count` of the `active` pods: of an Indexed Job those first that have no index of the
/// Job, or whose index a better one has.
pub(super) fn surplus(spec: &JobSpec, active: &[Arc<Pod>], count: usize) -> Vec<Arc<Pod>> {
    let (mut gone, mut left) = match is_indexed(spec) {
        true => duplicates(spec, active),
        false => (Vec::new(), active.to_vec()),
    };
    let more = count.saturating_sub(gone.len());
    if more > 0 {
        left.sort_by_cached_key(|pod| rank(pod));
        gone.extend(left.into_iter().take(more));
    }
    gone
}

fn duplicates(spec: &JobSpec, active: &[Arc<Pod>]) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let (mut gone, mut left) = (Vec::new(), Vec::new());
    let mut by_index: BTreeMap<u32, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in active {
        match index_of(spec, pod) {
            Some(index) => by_index.entry(index).or_default().push(Arc::clone(pod)),
            None => gone.push(Arc::clone(pod)),
        }
    }
    for mut twins in by_index.into_values() {
        twins.sort_by_cached_key(|pod| rank(pod));
        left.extend(twins.pop());
        gone.append(&mut twins);
    }
    (gone, left)
}

/// Smaller goes first: what has not come as far, or has for less long.
type Rank = (
    bool,
    u8,
    bool,
    Reverse<Option<Timestamp>>,
    Reverse<i32>,
    Reverse<Option<Timestamp>>,
);

fn rank(pod: &Pod) -> Rank {
    let phase = match pod_state::phase(pod) {
        "Pending" | "" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| &status.container_statuses);
    let restarts = statuses.flatten().map(|status| status.restart_count).max();
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (
        !pod_state::node_name(pod).is_empty(),
        phase,
        pod_state::is_ready(pod),
        Reverse(pod_state::ready_since(pod)),
        Reverse(restarts.unwrap_or(0)),
        Reverse(created),
    )
}
