//! Jobs with `backoffLimitPerIndex`: each index fails for itself. Pure.
//!
//! How often an index has failed is written on its pod, and goes from there to the pod that
//! follows: one that has failed is held until there is another of its index, or none is to come.
//!
//! Source: `pkg/controller/job/indexed_job_utils.go` (calculateFailedIndexes,
//! getPodsWithDelayedDeletionPerIndex, getNewIndexFailureCounts), `backoff_utils.go`
//! (getRemainingTimePerIndex) at v1.37.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::batch::v1::{JobSpec, JobStatus},
    jiff::Timestamp,
};

use super::{
    backoff,
    failure_policy::{self, Action},
    indexes::{self, Indexes},
    observed::{completions, has_failed, held, index_of, uid},
};
use crate::pod::Pod;

/// How often an index had failed when the pod was made.
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// The same of failures that the policy ignores.
pub(super) const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// How often an index has failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failures {
    pub(super) counted: u32,
    pub(super) ignored: u32,
}

impl Failures {
    /// As the pod was told: what is no number is zero, as anybody may write it.
    fn told(pod: &Pod) -> Self {
        let number = |key: &str| {
            let text = pod.metadata.annotations.as_ref()?.get(key)?;
            text.parse::<i32>().ok()?.try_into().ok()
        };
        Self {
            counted: number(FAILURES).unwrap_or(0),
            ignored: number(IGNORED).unwrap_or(0),
        }
    }

    fn all(self) -> u32 {
        self.counted.saturating_add(self.ignored)
    }

    /// What the pod that follows `pod` is told.
    pub(super) fn after(spec: &JobSpec, pod: &Pod) -> Self {
        let mut failures = Self::told(pod);
        let number = match failure_policy::counts(spec, pod) {
            true => &mut failures.counted,
            false => &mut failures.ignored,
        };
        *number = number.saturating_add(1);
        failures
    }
}

/// Whether each index of the Job has a limit of its own.
pub(super) fn is_used(spec: &JobSpec) -> bool {
    spec.backoff_limit_per_index.is_some()
}

/// The indexes that have failed for good: those that the status has, and those of held pods.
pub(super) fn failed_indexes(spec: &JobSpec, status: &JobStatus, pods: &[Arc<Pod>]) -> Indexes {
    let text = status.failed_indexes.as_deref().unwrap_or_default();
    let lost = |pod: &&Arc<Pod>| is_lost(spec, pod);
    let new = held(pods)
        .filter(lost)
        .filter_map(|pod| index_of(spec, pod));
    Indexes::parse(text, completions(spec)).with(new)
}

/// Whether a pod takes its index with it.
fn is_lost(spec: &JobSpec, pod: &Pod) -> bool {
    if !has_failed(spec, pod) {
        return false;
    }
    let limit = spec.backoff_limit_per_index.unwrap_or(0);
    let over = i64::from(Failures::told(pod).counted) >= i64::from(limit);
    match failure_policy::action(spec, pod) {
        Some(Action::FailIndex) => true,
        Some(Action::Ignore) => false,
        _ => over,
    }
}

/// The last failed pod of each index that is to be tried again, by index.
#[derive(Debug, Default)]
pub(super) struct Delayed(HashMap<u32, Arc<Pod>>);

impl Delayed {
    /// `settled` are the indexes that are done or given up, `active` those that pods work on: who
    /// follows has been told by then.
    pub(super) fn of(
        spec: &JobSpec,
        pods: &[Arc<Pod>],
        settled: &Indexes,
        active: &BTreeSet<u32>,
    ) -> Self {
        let mut last: HashMap<u32, Arc<Pod>> = HashMap::new();
        for pod in held(pods).filter(|pod| has_failed(spec, pod)) {
            let Some(index) = index_of(spec, pod) else {
                continue;
            };
            if settled.contains(index) || active.contains(&index) {
                continue;
            }
            let rank = |pod: &Pod| (Failures::told(pod).all(), backoff::finish_time(pod));
            let is_later = |known: &Arc<Pod>| {
                let (new, old) = (rank(pod), rank(known));
                new.0 >= old.0 && new.1 >= old.1
            };
            if last.get(&index).is_none_or(is_later) {
                last.insert(index, Arc::clone(pod));
            }
        }
        Self(last)
    }

    pub(super) fn holds(&self, pod: &Pod) -> bool {
        indexes::of_pod(pod)
            .and_then(|index| self.0.get(&index))
            .is_some_and(|last| uid(last) == uid(pod))
    }

    /// What is to be written on the next pod of `index`.
    pub(super) fn failures(&self, spec: &JobSpec, index: u32) -> Failures {
        let last = self.0.get(&index);
        last.map_or_else(Failures::default, |pod| Failures::after(spec, pod))
    }

    /// How long the next pod of `index` has to wait.
    fn remaining(&self, index: u32, now: Timestamp) -> Option<Duration> {
        let last = self.0.get(&index)?;
        let failures = Failures::told(last).all().saturating_add(1);
        backoff::remaining(failures, backoff::finish_time(last), now)
    }

    /// Those of `indexes` whose pods may be made now, and how long until the next of the others.
    pub(super) fn ready(
        &self,
        indexes: impl Iterator<Item = u32>,
        now: Timestamp,
    ) -> (Vec<u32>, Option<Duration>) {
        let (mut ready, mut wait) = (Vec::new(), None::<Duration>);
        for index in indexes {
            match self.remaining(index, now) {
                None => ready.push(index),
                Some(left) => wait = Some(wait.map_or(left, |sooner| sooner.min(left))),
            }
        }
        (ready, wait)
    }
}
