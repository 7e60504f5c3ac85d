//! Which of several nodes costs least, by those of its pods that would have to end.
//!
//! Source: `pickOneNodeForPreemption` in `pkg/scheduler/framework/preemption/preemption.go` at
//! v1.37.

use std::{cmp::Reverse, sync::Arc};

use crate::{framework::Candidate, pod_info::PodInfo};

/// When the pod was started; one that has not been is the latest.
fn started(pod: &PodInfo) -> i64 {
    pod.started.unwrap_or(i64::MAX)
}

/// Ascending: the most important first, and the names decide between equals.
pub(super) fn by_importance(pod: &Arc<PodInfo>) -> (Reverse<i32>, i64, Arc<str>) {
    (Reverse(pod.priority), started(pod), pod.uid.0.clone())
}

/// Ascending: budgets broken, the highest priority among the victims, the sum of theirs, how many
/// they are, and how long the most important have run.
fn cost(candidate: &Candidate) -> (usize, Option<i32>, i64, usize, Reverse<Option<i64>>) {
    let highest = candidate.victims.first().map(|pod| pod.priority);
    // So that fewer victims are never worse than more of the same negative priority.
    let sum = candidate
        .victims
        .iter()
        .map(|pod| i64::from(pod.priority) - i64::from(i32::MIN));
    let most_important = candidate
        .victims
        .iter()
        .filter(|pod| Some(pod.priority) == highest);
    let earliest = most_important.map(|pod| started(pod)).min();
    (
        candidate.violations,
        highest,
        sum.sum(),
        candidate.victims.len(),
        Reverse(earliest),
    )
}

/// The one that costs least; of equals the first.
pub(super) fn cheapest(candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(cost)
}
