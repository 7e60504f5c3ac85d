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
    conditions::Decision,
    failure_policy,
    indexes::Indexes,
    observed::{completions, has_failed, held, index_of, is_indexed, is_valid, uid},
    per_index::Delayed,
};
use crate::{pod::Pod, pod_state};

/// Most creates or deletes of one round, and most uids waiting to be counted.
pub(super) const BURST: usize = 500;

/// Numbers of ended pods: those that are counted, those that wait to be, and those that are new.
pub(super) struct Tally {
    pub(super) succeeded: usize,
    pub(super) failed: usize,
}

impl Tally {
    /// `completed` are the indexes of an Indexed Job that are done.
    pub(super) fn of(
        spec: &JobSpec,
        pods: &[Arc<Pod>],
        status: &JobStatus,
        completed: Option<&Indexes>,
    ) -> Self {
        let counted = |number: Option<i32>| usize::try_from(number.unwrap_or(0)).unwrap_or(0);
        let waiting = Waiting::of(status);
        let is_new_failure = |pod: &&Arc<Pod>| {
            has_failed(spec, pod)
                && is_valid(spec, pod)
                && !waiting.failed.contains(uid(pod))
                && failure_policy::counts(spec, pod)
        };
        let is_new_success = |pod: &&Arc<Pod>| {
            pod_state::phase(pod) == "Succeeded" && !waiting.succeeded.contains(uid(pod))
        };
        let new = held(pods).filter(is_new_success).count();
        let by_number = || counted(status.succeeded) + waiting.succeeded.len() + new;
        let new = held(pods).filter(is_new_failure).count();
        Self {
            succeeded: completed.map_or_else(by_number, Indexes::len),
            failed: counted(status.failed) + waiting.failed.len() + new,
        }
    }
}

/// The uids that wait to be counted.
struct Waiting<'a> {
    succeeded: HashSet<&'a str>,
    failed: HashSet<&'a str>,
}

impl<'a> Waiting<'a> {
    fn of(status: &'a JobStatus) -> Self {
        let waiting = status.uncounted_terminated_pods.as_ref();
        let set = |uids: Option<&'a Vec<String>>| {
            let uids = uids.into_iter().flatten();
            uids.map(String::as_str).collect()
        };
        Self {
            succeeded: set(waiting.and_then(|both| both.succeeded.as_ref())),
            failed: set(waiting.and_then(|both| both.failed.as_ref())),
        }
    }
}

/// How many uids wait to be counted.
pub(super) fn uncounted(status: &JobStatus) -> usize {
    let waiting = Waiting::of(status);
    waiting.succeeded.len() + waiting.failed.len()
}

/// As a status has it: zero is left out.
pub(super) fn number(count: usize) -> Option<i32> {
    (count > 0).then(|| i32::try_from(count).unwrap_or(i32::MAX))
}

/// The indexes that are done: those that the status has, and those of held pods.
pub(super) fn completed(spec: &JobSpec, status: &JobStatus, pods: &[Arc<Pod>]) -> Indexes {
    let text = status.completed_indexes.as_deref().unwrap_or_default();
    let succeeded = held(pods).filter(|pod| pod_state::phase(pod) == "Succeeded");
    let new = succeeded.filter_map(|pod| index_of(spec, pod));
    Indexes::parse(text, completions(spec)).with(new)
}

/// What becomes of the pods that are held.
pub(super) struct Fate<'a> {
    pub(super) decision: Option<Decision>,
    /// The Job goes, and its pods with it.
    pub(super) is_going: bool,
    /// Pods that are held although they have failed.
    pub(super) delayed: &'a Delayed,
}

impl Fate<'_> {
    /// Whether a pod need not be held any longer, once it is counted.
    fn lets_go(&self, spec: &JobSpec, pod: &Pod) -> bool {
        self.is_going
            || self.decision.is_some()
            || pod_state::phase(pod) == "Succeeded"
            || (has_failed(spec, pod) && !self.delayed.holds(pod))
    }

    /// The Job is decided: what still runs counts as failed if the Job failed.
    fn is_failure(&self, spec: &JobSpec, pod: &Pod) -> bool {
        has_failed(spec, pod) || self.decision == Some(Decision::Fails)
    }
}

/// Puts newly ended pods among the uids that wait; gives the pods whose finalizer may go once that
/// is written.
pub(super) fn count(
    spec: &JobSpec,
    pods: &[Arc<Pod>],
    fate: &Fate<'_>,
    status: &mut JobStatus,
) -> Vec<Arc<Pod>> {
    let mut waiting = status.uncounted_terminated_pods.take().unwrap_or_default();
    let (succeeded, failed) = (
        waiting.succeeded.get_or_insert_default(),
        waiting.failed.get_or_insert_default(),
    );
    let known: HashSet<String> = succeeded.iter().chain(&*failed).cloned().collect();
    let mut release = Vec::new();
    for pod in held(pods).filter(|pod| fate.lets_go(spec, pod)) {
        if release.len() >= BURST {
            break;
        }
        let is_full = succeeded.len() + failed.len() >= BURST;
        let has_succeeded = pod_state::phase(pod) == "Succeeded";
        let into = if known.contains(uid(pod)) || !is_valid(spec, pod) {
            None
        } else if has_succeeded {
            // A completed index needs no uid: counted twice it is still one.
            (!is_indexed(spec)).then_some(&mut *succeeded)
        } else if fate.is_failure(spec, pod) && failure_policy::counts(spec, pod) {
            Some(&mut *failed)
        } else {
            None
        };
        if let Some(uids) = into {
            if is_full {
                continue;
            }
            uids.push(uid(pod).to_owned());
        }
        release.push(Arc::clone(pod));
    }
    status.uncounted_terminated_pods = Some(waiting);
    release
}

/// Adds the uids whose pods are held no more to the numbers.
pub(super) fn settle(pods: &[Arc<Pod>], status: &mut JobStatus) {
    let held: HashSet<&str> = held(pods).map(|pod| uid(pod)).collect();
    let settle = |uids: &mut Option<Vec<String>>, total: &mut Option<i32>| {
        let uids = uids.get_or_insert_default();
        let before = uids.len();
        uids.retain(|uid| held.contains(uid.as_str()));
        if uids.len() < before {
            *total = number(usize::try_from(total.unwrap_or(0)).unwrap_or(0) + before - uids.len());
        }
    };
    let mut waiting: UncountedTerminatedPods =
        status.uncounted_terminated_pods.take().unwrap_or_default();
    settle(&mut waiting.succeeded, &mut status.succeeded);
    settle(&mut waiting.failed, &mut status.failed);
    status.uncounted_terminated_pods = Some(waiting);
}
