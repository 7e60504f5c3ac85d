//! How many pods of a Job should run. Pure; which go where there are too many is `removal`'s.
//!
//! Source: `pkg/controller/job/job_controller.go` (manageJob,
//! getPodCreationInfoForIndependentIndexes) at v1.37.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::batch::v1::JobSpec;

use super::{
    backoff::backoff,
    indexes::{self, Indexes},
    observed::{Observed, Running, completions, is_indexed, replaces_failed_alone},
    per_index::{self, Delayed, Failures},
    removal::surplus,
    tracking::BURST,
};
use crate::pod::Pod;

/// A pod to be made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct NewPod {
    /// Its completion index in an Indexed Job.
    pub(super) index: Option<u32>,
    /// How often that has failed, where each index has a limit of its own.
    pub(super) failures: Option<Failures>,
}

/// What makes as many pods run as should.
#[derive(Debug, Default)]
pub(super) struct Scale {
    pub(super) create: Vec<NewPod>,
    pub(super) surplus: Vec<Arc<Pod>>,
    /// How long to wait before more are made.
    pub(super) wait: Option<Duration>,
}

/// What of a Job is done.
pub(super) struct Done<'a> {
    pub(super) succeeded: usize,
    /// Indexes that are done, or have failed for good.
    pub(super) settled: &'a Indexes,
    pub(super) delayed: &'a Delayed,
}

/// Decides, for a Job that is to go on. As long as there are too many pods none is made.
pub(super) fn scale(
    spec: &JobSpec,
    seen: &Observed<'_>,
    running: &Running,
    done: &Done<'_>,
) -> Scale {
    let active = running.active.len();
    let wanted = wanted(spec, active, done.succeeded);
    let surplus = surplus(spec, &running.active, active.saturating_sub(wanted));
    let occupied = match replaces_failed_alone(spec) {
        true => running.terminating.len(),
        false => 0,
    };
    let missing = wanted.saturating_sub(active + occupied).min(BURST);
    if !surplus.is_empty() || missing == 0 {
        return Scale {
            surplus: surplus.into_iter().take(BURST).collect(),
            ..Scale::default()
        };
    }
    let has_own_limits = per_index::is_used(spec);
    let wait = backoff(spec, seen).filter(|_| !has_own_limits);
    if wait.is_some() {
        return Scale {
            wait,
            ..Scale::default()
        };
    }
    if !is_indexed(spec) {
        return Scale {
            create: vec![NewPod::default(); missing],
            ..Scale::default()
        };
    }
    let (ready, wait) = done
        .delayed
        .ready(pending(spec, running, done, missing), seen.now);
    let failures = |index| has_own_limits.then(|| done.delayed.failures(spec, index));
    let new = |index| NewPod {
        index: Some(index),
        failures: failures(index),
    };
    Scale {
        create: ready.into_iter().map(new).collect(),
        wait,
        ..Scale::default()
    }
}

/// The first indexes that are neither settled nor worked on. A pod that is still ending occupies
/// its own, where only ended ones are replaced.
fn pending(
    spec: &JobSpec,
    running: &Running,
    done: &Done<'_>,
    count: usize,
) -> impl Iterator<Item = u32> {
    let ending = running
        .terminating
        .iter()
        .filter(|_| replaces_failed_alone(spec));
    let pods = running.active.iter().chain(ending);
    let taken = done.settled.with(indexes::of_pods(pods.map(Arc::as_ref)));
    let pending: Vec<u32> = taken.missing(completions(spec)).take(count).collect();
    pending.into_iter()
}

fn wanted(spec: &JobSpec, active: usize, succeeded: usize) -> usize {
    let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or(0);
    match spec.completions {
        Some(completions) => usize::try_from(completions)
            .unwrap_or(0)
            .saturating_sub(succeeded)
            .min(parallelism),
        // One success means that the work is done: those that run may end, and nobody follows them.
        None if succeeded > 0 => active,
        None => parallelism,
    }
}
