//! How many pods of a Job should run, and which. Pure.
//!
//! Source: `pkg/controller/job/job_controller.go` (manageJob, activePodsForRemoval) at v1.37.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use k8s_openapi::api::batch::v1::JobSpec;

use super::{
    backoff::backoff,
    indexes::{self, Indexes},
    observed::{Observed, Running, is_indexed, replaces_failed_alone},
    tracking::BURST,
};
use crate::{pod::Pod, pod_state};

/// What makes as many pods run as should.
#[derive(Debug, Default)]
pub(super) struct Scale {
    /// One entry a pod to make; its completion index in an Indexed Job.
    pub(super) create: Vec<Option<u32>>,
    pub(super) surplus: Vec<Arc<Pod>>,
    /// How long to wait before more are made.
    pub(super) wait: Option<Duration>,
}

/// Decides, for a Job that is to go on, of which `succeeded` pods and the indexes `completed` are
/// done.
pub(super) fn scale(
    spec: &JobSpec,
    seen: &Observed<'_>,
    running: &Running,
    completed: &Indexes,
    succeeded: usize,
) -> Scale {
    let active = &running.active;
    let wanted = wanted(spec, active.len(), succeeded);
    let completions = spec.completions.unwrap_or(0);
    let (surplus, kept) = match is_indexed(spec) {
        true => indexes::surplus(active, completed, completions, wanted),
        false => least_missed(active, wanted),
    };
    let occupied = match replaces_failed_alone(spec) {
        true => running.terminating,
        false => 0,
    };
    let mut scale = Scale {
        surplus: surplus.into_iter().take(BURST).collect(),
        ..Scale::default()
    };
    let missing = wanted.saturating_sub(kept.len() + occupied).min(BURST);
    if missing == 0 {
        return scale;
    }
    scale.wait = backoff(spec, seen);
    if scale.wait.is_none() {
        scale.create = match is_indexed(spec) {
            true => {
                let free = indexes::missing(&kept, completed, completions);
                free.take(missing).map(Some).collect()
            }
            false => vec![None; missing],
        };
    }
    scale
}

fn wanted(spec: &JobSpec, active: usize, succeeded: usize) -> usize {
    let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or(0);
    match spec.completions {
        Some(completions) => usize::try_from(completions)
            .unwrap_or(0)
            .saturating_sub(succeeded)
            .min(parallelism),
        // One success means that the work is done: those that run may end, and nobody follows them.
        None if succeeded > 0 => active.min(parallelism),
        None => parallelism,
    }
}

/// Those that are missed least, beyond `wanted`, and the rest.
fn least_missed(active: &[Arc<Pod>], wanted: usize) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut ranked = active.to_vec();
    ranked.sort_by_cached_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let running = pod_state::phase(pod) == "Running";
        (
            !pod_state::node_name(pod).is_empty(),
            running,
            pod_state::is_ready(pod),
            Reverse(created),
        )
    });
    let kept = ranked.split_off(ranked.len().saturating_sub(wanted));
    (ranked, kept)
}
