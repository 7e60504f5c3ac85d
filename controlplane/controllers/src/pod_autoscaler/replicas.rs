//! From what pods use to how many there should be. Pure.
//!
//! ```text
//! pods + samples > groups (ready, unready, missing, ignored) > usage over target > replicas
//! ```
//! Pods of which nothing is known damp the change: they use all they may on the way down, and
//! nothing on the way up.
//!
//! Source: `pkg/controller/podautoscaler/replica_calculator.go` and `metrics/utilization.go` at
//! v1.37.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::requests::requests;
use crate::{pod::Pod, pod_state};

/// What one pod uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) at: Timestamp,
    /// Over which time it was measured, up to `at`.
    pub(super) window: Duration,
    /// In thousandths.
    pub(super) value: i64,
}

/// By the name of the pod.
pub(super) type Samples = BTreeMap<String, Sample>;

/// Ratios of usage to target that change nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    fn cover(self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

/// When a pod's CPU tells nothing of its load yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Warmup {
    /// How long after its start what it uses may be due to that.
    pub(super) cpu_initialization: Duration,
    /// A pod that has not been ready after this time has never been.
    pub(super) initial_readiness: Duration,
}

/// What is known of the pods.
pub(super) struct Seen<'a> {
    pub(super) pods: &'a [Arc<Pod>],
    /// How many there should be so far.
    pub(super) current: i32,
    pub(super) resource: &'a str,
    pub(super) tolerances: Tolerances,
    pub(super) warmup: Warmup,
    pub(super) now: Timestamp,
}

/// What follows from one metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// In percent of what was asked for, if that is the target.
    pub(super) utilization: Option<i32>,
    /// Of a pod, in thousandths.
    pub(super) average: i64,
}

/// What a set of samples comes to.
#[derive(Debug, Clone, Copy)]
struct Usage {
    ratio: f64,
    utilization: Option<i32>,
    average: i64,
}

/// For a target in percent of what pods, or one container of each, ask for.
///
/// # Errors
/// The text for the user, as upstream says it.
pub(super) fn by_utilization(
    seen: &Seen<'_>,
    samples: Samples,
    target: i32,
    container: Option<&str>,
) -> Result<Proposal, String> {
    let groups = Groups::of(seen, samples)?;
    let requests = requests(seen.pods, container, seen.resource)?;
    let measure = |samples: &Samples| utilization(samples, &requests, target);
    groups.propose(seen, measure, |pod| {
        // All that it asks for, or more where more is wanted.
        requests.get(pod).copied().unwrap_or(0) * i64::from(target.max(100)) / 100
    })
}

/// For a target that is an amount a pod, in thousandths.
///
/// # Errors
/// The text for the user, as upstream says it.
pub(super) fn by_average(
    seen: &Seen<'_>,
    samples: Samples,
    target: i64,
) -> Result<Proposal, String> {
    let groups = Groups::of(seen, samples)?;
    groups.propose(seen, |samples| Ok(average(samples, target)), |_| target)
}

/// Source: `metrics/utilization.go` (GetResourceUtilizationRatio) at v1.37.
fn utilization(
    samples: &Samples,
    requests: &BTreeMap<&str, i64>,
    target: i32,
) -> Result<Usage, String> {
    let (mut used, mut asked, mut count) = (0_i64, 0_i64, 0_i64);
    for (pod, sample) in samples {
        // The requests may be of pods that the metrics do not know yet, and the other way round.
        let Some(request) = requests.get(pod.as_str()) else {
            continue;
        };
        used = used.saturating_add(sample.value);
        asked = asked.saturating_add(*request);
        count += 1;
    }
    if asked == 0 {
        return Err("no metrics returned matched known pods".to_owned());
    }
    let percent = i128::from(used) * 100 / i128::from(asked);
    let percent = i32::try_from(percent).unwrap_or(i32::MAX);
    Ok(Usage {
        ratio: f64::from(percent) / f64::from(target),
        utilization: Some(percent),
        average: used / count,
    })
}

/// Source: `metrics/utilization.go` (GetMetricUsageRatio) at v1.37.
fn average(samples: &Samples, target: i64) -> Usage {
    let total = samples
        .values()
        .fold(0_i64, |sum, sample| sum.saturating_add(sample.value));
    let average = total / i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1);
    Usage {
        ratio: float(average) / float(target),
        utilization: None,
        average,
    }
}

/// The pods by what is known of them.
struct Groups {
    ready: usize,
    unready: Vec<String>,
    missing: Vec<String>,
    /// Of those that are ready, and of pods that the cache does not have.
    samples: Samples,
}

impl Groups {
    /// Source: `groupPods` and its callers.
    fn of(seen: &Seen<'_>, mut samples: Samples) -> Result<Self, String> {
        if seen.pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".to_owned());
        }
        let mut groups = Self {
            ready: 0,
            unready: Vec::new(),
            missing: Vec::new(),
            samples: Samples::new(),
        };
        let mut ignored = HashSet::new();
        for pod in seen.pods {
            let name = pod.metadata.name.clone().unwrap_or_default();
            match pod_state::phase(pod) {
                _ if pod_state::is_terminating(pod) => drop(ignored.insert(name)),
                "Failed" => drop(ignored.insert(name)),
                "Pending" => groups.unready.push(name),
                _ => match samples.get(&name) {
                    None => groups.missing.push(name),
                    Some(sample) if seen.resource == "cpu" && is_starting(seen, pod, sample) => {
                        groups.unready.push(name);
                    }
                    Some(_) => groups.ready += 1,
                },
            }
        }
        samples.retain(|pod, _| !ignored.contains(pod) && !groups.unready.contains(pod));
        if samples.is_empty() {
            let why = "did not receive metrics for targeted pods (pods might be unready)";
            return Err(why.to_owned());
        }
        groups.samples = samples;
        Ok(groups)
    }

    /// `at_most` is what a pod of which nothing is known is taken to use on the way down.
    fn propose(
        mut self,
        seen: &Seen<'_>,
        measure: impl Fn(&Samples) -> Result<Usage, String>,
        at_most: impl Fn(&str) -> i64,
    ) -> Result<Proposal, String> {
        let usage = measure(&self.samples)?;
        let of = |replicas| Proposal {
            replicas,
            utilization: usage.utilization,
            average: usage.average,
        };
        let grows_with_unready = !self.unready.is_empty() && usage.ratio > 1.0;
        if !grows_with_unready && self.missing.is_empty() {
            if seen.tolerances.cover(usage.ratio) {
                return Ok(of(seen.current));
            }
            return Ok(of(times(usage.ratio, self.ready)));
        }
        let assumed = |value| Sample {
            at: seen.now,
            window: Duration::ZERO,
            value,
        };
        for pod in std::mem::take(&mut self.missing) {
            if usage.ratio < 1.0 {
                let most = at_most(&pod);
                self.samples.insert(pod, assumed(most));
            } else if usage.ratio > 1.0 {
                self.samples.insert(pod, assumed(0));
            }
        }
        if grows_with_unready {
            let unready = std::mem::take(&mut self.unready);
            self.samples
                .extend(unready.into_iter().map(|pod| (pod, assumed(0))));
        }
        let again = measure(&self.samples)?.ratio;
        let turns = (usage.ratio < 1.0 && again > 1.0) || (usage.ratio > 1.0 && again < 1.0);
        if seen.tolerances.cover(again) || turns {
            return Ok(of(seen.current));
        }
        let replicas = times(again, self.samples.len());
        // More pods count now than before, which alone must not turn it round.
        if (again < 1.0 && replicas > seen.current) || (again > 1.0 && replicas < seen.current) {
            return Ok(of(seen.current));
        }
        Ok(of(replicas))
    }
}

/// Whether what the pod's CPU does may be due to its start, or nobody sends it anything yet.
fn is_starting(seen: &Seen<'_>, pod: &Pod, sample: &Sample) -> bool {
    let started = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref());
    let (Some(ready), Some(started)) = (pod_state::condition(pod, "Ready"), started) else {
        return true;
    };
    let is_unready = ready.status == "False";
    // Upstream's is the zero time where none is said.
    let since = ready
        .last_transition_time
        .as_ref()
        .map_or(Timestamp::MIN, |time| time.0);
    let after = |at: Timestamp, time: Duration| at.checked_add(time).unwrap_or(Timestamp::MAX);
    if after(started.0, seen.warmup.cpu_initialization) > seen.now {
        is_unready || sample.at < after(since, sample.window)
    } else {
        is_unready && after(started.0, seen.warmup.initial_readiness) > since
    }
}

/// So many pods, rounded up.
fn times(ratio: f64, pods: usize) -> i32 {
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 pods")]
    let pods = pods as f64;
    whole((ratio * pods).ceil())
}

/// A whole number; what is too large is the largest there is.
pub(super) fn whole(number: f64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    let whole = number as i32;
    whole
}

fn float(milli: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "ratios need no more digits")]
    let float = milli as f64;
    float
}
