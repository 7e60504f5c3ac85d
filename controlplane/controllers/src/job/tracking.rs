//! Counts each ended pod of a Job exactly once. Pure.
//!
//! A pod counts once, although the counters and the pod's finalizer lie in two objects: its uid is
//! first written to `status.uncountedTerminatedPods`, then its finalizer goes, then the uid turns
//! into a number.
//!
//! Source: `pkg/controller/job/job_controller.go` (trackJobStatusAndRemoveFinalizers) at v1.37.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::batch::v1::{JobSpec, JobStatus, UncountedTerminatedPods};

use super::{
    indexes::{self, Indexes},
    observed::{has_failed, is_indexed, uid},
};
use crate::{pod::Pod, pod_state};

/// Keeps a pod until it is counted.
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Most creates or deletes of one round, and most uids waiting to be counted.
pub(super) const BURST: usize = 500;

/// Numbers of ended pods, those that wait to be counted included.
pub(super) struct Tally {
    pub(super) succeeded: usize,
    pub(super) failed: usize,
    pub(super) uncounted: usize,
}

impl Tally {
    pub(super) fn of(status: &JobStatus) -> Self {
        let waiting = |uids: Option<&Vec<String>>| uids.map_or(0, Vec::len);
        let uncounted = status.uncounted_terminated_pods.as_ref();
        let succeeded = waiting(uncounted.and_then(|both| both.succeeded.as_ref()));
        let failed = waiting(uncounted.and_then(|both| both.failed.as_ref()));
        let counted = |number: Option<i32>| usize::try_from(number.unwrap_or(0)).unwrap_or(0);
        Self {
            succeeded: counted(status.succeeded) + succeeded,
            failed: counted(status.failed) + failed,
            uncounted: succeeded + failed,
        }
    }
}

/// As a status has it: zero is left out.
pub(super) fn number(count: usize) -> Option<i32> {
    (count > 0).then(|| i32::try_from(count).unwrap_or(i32::MAX))
}

pub(super) fn has_finalizer(pod: &Pod) -> bool {
    pod.metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FINALIZER)
}

/// The pods that are held until they are counted.
pub(super) fn held(pods: &[Arc<Pod>]) -> impl Iterator<Item = &Arc<Pod>> {
    pods.iter().filter(|pod| has_finalizer(pod))
}

/// Turns uids of pods without finalizer into numbers and puts newly ended pods among the uids;
/// gives the indexes that are complete, and the pods whose finalizer may go then.
pub(super) fn count(
    spec: &JobSpec,
    pods: &[Arc<Pod>],
    status: &mut JobStatus,
) -> (Indexes, Vec<Arc<Pod>>) {
    let mut waiting = count_released(pods, status);
    let mut completed = Indexes::parse(status.completed_indexes.as_deref().unwrap_or_default());
    let mut release = Vec::new();
    for pod in held(pods) {
        let succeeded = pod_state::phase(pod) == "Succeeded";
        if !succeeded && !has_failed(spec, pod) {
            continue;
        }
        let full = waiting.succeeded.iter().flatten().count()
            + waiting.failed.iter().flatten().count()
            >= BURST;
        // A completed index needs no uid: counted twice it is still one.
        match indexes::of_pod(pod).filter(|_| succeeded && is_indexed(spec)) {
            Some(index) => completed.insert(index),
            None if full => continue,
            None if succeeded => add(&mut waiting.succeeded, uid(pod)),
            None => add(&mut waiting.failed, uid(pod)),
        }
        release.push(pod.clone());
    }
    if is_indexed(spec) {
        completed.cut(spec.completions.unwrap_or(0));
        status.succeeded = number(completed.len());
        status.completed_indexes = (!completed.is_empty()).then(|| completed.to_string());
    }
    status.uncounted_terminated_pods = Some(waiting);
    (completed, release)
}

/// Adds the uids whose pods are held no more to the numbers; those that wait still.
fn count_released(pods: &[Arc<Pod>], status: &mut JobStatus) -> UncountedTerminatedPods {
    let held: HashSet<&str> = held(pods).map(|pod| uid(pod)).collect();
    let settle = |uids: &mut Option<Vec<String>>, total: &mut Option<i32>| {
        let uids = uids.get_or_insert_default();
        let before = uids.len();
        uids.retain(|uid| held.contains(uid.as_str()));
        if uids.len() < before {
            *total = number(usize::try_from(total.unwrap_or(0)).unwrap_or(0) + before - uids.len());
        }
    };
    let mut waiting = status.uncounted_terminated_pods.take().unwrap_or_default();
    settle(&mut waiting.succeeded, &mut status.succeeded);
    settle(&mut waiting.failed, &mut status.failed);
    waiting
}

/// The Job is decided: the pods that are still running need not be kept, and count as failed if the
/// Job failed.
pub(super) fn give_up_rest(
    pods: &[Arc<Pod>],
    failing: bool,
    status: &mut JobStatus,
    release: &mut Vec<Arc<Pod>>,
) {
    let waiting = status.uncounted_terminated_pods.get_or_insert_default();
    for pod in held(pods) {
        if release.len() >= BURST {
            return;
        }
        if release.iter().any(|known| uid(known) == uid(pod)) {
            continue;
        }
        if failing {
            add(&mut waiting.failed, uid(pod));
        }
        release.push(pod.clone());
    }
}

fn add(uids: &mut Option<Vec<String>>, uid: &str) {
    let uids = uids.get_or_insert_default();
    if !uids.iter().any(|known| known == uid) {
        uids.push(uid.to_owned());
    }
}
