//! A node with those of its pods that would have to end, and which of several costs least.
//!
//! Source: `pickOneNodeForPreemption` in `pkg/scheduler/framework/preemption/preemption.go` at
//! v1.37.

use std::{cmp::Reverse, sync::Arc};

use crate::pod_info::PodInfo;

/// What one node would cost.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Where it is in the snapshot.
    pub(super) node: usize,
    /// The most important first.
    pub(super) victims: Vec<Arc<PodInfo>>,
    /// How many of them a budget protects.
    pub(super) violations: usize,
}

/// When the pod was started; one that has not been is the latest.
fn started(pod: &PodInfo) -> i64 {
    pod.started.unwrap_or(i64::MAX)
}

/// Ascending: the most important first, and the names decide between equals.
pub(super) fn by_importance(pod: &Arc<PodInfo>) -> (Reverse<i32>, i64, Arc<str>) {
    (Reverse(pod.priority), started(pod), pod.uid.0.clone())
}

impl Candidate {
    /// Ascending: budgets broken, the highest priority among the victims, the sum of theirs, how
    /// many they are, and how long the most important have run.
    fn cost(&self) -> (usize, Option<i32>, i64, usize, Reverse<Option<i64>>) {
        let highest = self.victims.first().map(|pod| pod.priority);
        // So that fewer victims are never worse than more of the same negative priority.
        let sum = self
            .victims
            .iter()
            .map(|pod| i64::from(pod.priority) - i64::from(i32::MIN));
        let most_important = self
            .victims
            .iter()
            .filter(|pod| Some(pod.priority) == highest);
        let earliest = most_important.map(|pod| started(pod)).min();
        (
            self.violations,
            highest,
            sum.sum(),
            self.victims.len(),
            Reverse(earliest),
        )
    }
}

/// The one that costs least; of equals the first.
pub(super) fn cheapest(candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(Candidate::cost)
}
