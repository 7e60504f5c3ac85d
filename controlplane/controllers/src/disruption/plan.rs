//! What a PodDisruptionBudget allows, as a pure function of the budget and its pods.
//!
//! Source: `pkg/controller/disruption/disruption.go` (trySync and what it calls) at v1.37.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use coracle_api::disruption;
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus},
    apimachinery::pkg::{apis::meta::v1::Time, util::intstr::IntOrString},
    jiff::Timestamp,
};

use crate::{int_or_percent::scaled, pod::Pod, pod_state};

/// A pod that was evicted is believed to go for so long; then it counts again.
const DELETION_TIMEOUT: Duration = Duration::from_secs(120);

/// What is known.
pub(super) struct Observed<'a> {
    pub(super) budget: &'a PodDisruptionBudget,
    /// All that it selects.
    pub(super) pods: &'a [Arc<Pod>],
    /// What the owners of the pods want together, if [`needs_scale`].
    pub(super) scale: i32,
    pub(super) now: Timestamp,
}

/// What follows.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) status: PodDisruptionBudgetStatus,
    /// Evicted, and still there after all the time they had.
    pub(super) overdue: Vec<Arc<Pod>>,
    /// When the next evicted pod counts again.
    pub(super) again: Option<Duration>,
}

/// Whether the number of pods that there should be is that of their owners, not of the pods that
/// there are.
pub(super) fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

pub(super) fn plan(seen: &Observed<'_>) -> Plan {
    let spec = seen.budget.spec.clone().unwrap_or_default();
    let expected = if needs_scale(&spec) {
        seen.scale
    } else {
        count(seen.pods.len())
    };
    let desired = match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => (expected - scaled(most, expected, true)).max(0),
        (None, Some(least)) => scaled(least, expected, true),
        (None, None) => 0,
    };
    let evicted = Evicted::sort(seen);
    let healthy = seen.pods.iter().filter(|pod| {
        let is_going = evicted
            .waiting
            .contains_key(pod.metadata.name.as_deref().unwrap_or_default());
        !pod_state::is_terminating(pod) && !is_going && pod_state::is_ready(pod)
    });
    let healthy = count(healthy.count());
    // A budget without pods allows nothing: the first ones may come before the next count.
    let allowed = if expected > 0 {
        (healthy - desired).max(0)
    } else {
        0
    };
    let status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        expected_pods: Some(expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!evicted.waiting.is_empty()).then_some(evicted.waiting),
        observed_generation: seen.budget.metadata.generation,
        conditions: seen
            .budget
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone()),
    };
    Plan {
        status: with_condition(status, disruption::settle),
        overdue: evicted.overdue,
        again: evicted.again,
    }
}

/// The status of a budget that cannot be counted.
pub(super) fn failed(budget: &PodDisruptionBudget, why: &str) -> PodDisruptionBudgetStatus {
    with_condition(budget.status.clone().unwrap_or_default(), |status| {
        disruption::fail(status, why)
    })
}

fn with_condition(
    status: PodDisruptionBudgetStatus,
    change: impl FnOnce(&mut serde_json::Value),
) -> PodDisruptionBudgetStatus {
    let mut value = serde_json::to_value(&status).unwrap_or_default();
    change(&mut value);
    serde_json::from_value(value).unwrap_or(status)
}

/// The pods that the eviction subresource has written into the status.
#[derive(Default)]
struct Evicted {
    /// About to go.
    waiting: BTreeMap<String, Time>,
    overdue: Vec<Arc<Pod>>,
    again: Option<Duration>,
}

impl Evicted {
    fn sort(seen: &Observed<'_>) -> Self {
        let mut sorted = Self::default();
        let noted = seen
            .budget
            .status
            .as_ref()
            .and_then(|status| status.disrupted_pods.as_ref());
        for pod in seen
            .pods
            .iter()
            .filter(|pod| !pod_state::is_terminating(pod))
        {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let Some(since) = noted.and_then(|noted| noted.get(name)) else {
                continue;
            };
            let waited = Duration::try_from(seen.now.duration_since(since.0)).unwrap_or_default();
            match DELETION_TIMEOUT.checked_sub(waited) {
                None => sorted.overdue.push(pod.clone()),
                Some(left) => {
                    sorted.again = Some(sorted.again.map_or(left, |sooner| sooner.min(left)));
                    sorted.waiting.insert(name.to_owned(), since.clone());
                }
            }
        }
        sorted
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
