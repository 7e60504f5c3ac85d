//! What `/metrics` tells of the scheduler, under upstream's names.
//!
//! Source: `pkg/scheduler/metrics/metrics.go` at v1.37.

use std::{collections::HashMap, time::Duration};

use coracle_telemetry::metrics::{Counter, Gauge, Histogram, MetricsRegistry};

use crate::queue::Lengths;

/// How an attempt ended.
#[derive(Debug)]
struct Attempts {
    count: Counter,
    times: Histogram,
}

impl Attempts {
    fn new(metrics: &MetricsRegistry, profile: &str, result: &str) -> Self {
        let labels = [("profile", profile), ("result", result)];
        let count = "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, \
                     while 'error' means an internal scheduler problem";
        let times = "Scheduling attempt latency in seconds (scheduling algorithm + binding)";
        Self {
            count: metrics.counter("scheduler_schedule_attempts", count, &labels),
            times: metrics.histogram(
                "scheduler_scheduling_attempt_duration_seconds",
                times,
                &labels,
            ),
        }
    }

    fn count(&self, took: Duration) {
        self.count.inc();
        self.times.observe(took.as_secs_f64());
    }
}

/// The attempts for pods of a profile.
#[derive(Debug)]
struct OfProfile {
    scheduled: Attempts,
    unschedulable: Attempts,
    error: Attempts,
}

/// The figures, looked up once.
#[derive(Debug)]
pub(crate) struct Metrics {
    profiles: HashMap<String, OfProfile>,
    algorithm: Histogram,
    active: Gauge,
    backoff: Gauge,
    unschedulable_pods: Gauge,
    gated: Gauge,
    preemptions: Counter,
    victims: Histogram,
    nodes: Gauge,
    pods: Gauge,
}

impl Metrics {
    pub(crate) fn new<'a>(
        metrics: &MetricsRegistry,
        profiles: impl Iterator<Item = &'a str>,
    ) -> Self {
        let of_profile = |profile: &'a str| OfProfile {
            scheduled: Attempts::new(metrics, profile, "scheduled"),
            unschedulable: Attempts::new(metrics, profile, "unschedulable"),
            error: Attempts::new(metrics, profile, "error"),
        };
        let pending = "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means \
                       number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the \
                       scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the \
                       scheduler never attempted to schedule because they are gated";
        let cache = "Number of nodes, pods, and assumed (bound) pods in the scheduler cache";
        let algorithm = "Scheduling algorithm latency in seconds";
        let queue =
            |name: &str| metrics.gauge("scheduler_pending_pods", pending, &[("queue", name)]);
        let cached = |kind: &str| metrics.gauge("scheduler_cache_size", cache, &[("type", kind)]);
        Self {
            profiles: profiles
                .map(|profile| (profile.to_owned(), of_profile(profile)))
                .collect(),
            algorithm: metrics.histogram(
                "scheduler_scheduling_algorithm_duration_seconds",
                algorithm,
                &[],
            ),
            active: queue("active"),
            backoff: queue("backoff"),
            unschedulable_pods: queue("unschedulable"),
            gated: queue("gated"),
            preemptions: metrics.counter(
                "scheduler_preemption_attempts",
                "Total preemption attempts in the cluster till now",
                &[],
            ),
            victims: metrics.histogram(
                "scheduler_preemption_victims",
                "Number of selected preemption victims",
                &[],
            ),
            nodes: cached("nodes"),
            pods: cached("pods"),
        }
    }

    /// A decision has been made; `fits` says whether there was a node.
    pub(crate) fn decided(&self, profile: &str, took: Duration, fits: bool) {
        self.algorithm.observe(took.as_secs_f64());
        if !fits && let Some(attempts) = self.profiles.get(profile) {
            attempts.unschedulable.count(took);
        }
    }

    /// A binding has ended. `took` counts from the decision.
    pub(crate) fn bound(&self, profile: &str, took: Duration, succeeded: bool) {
        let Some(attempts) = self.profiles.get(profile) else {
            return;
        };
        match succeeded {
            true => attempts.scheduled.count(took),
            false => attempts.error.count(took),
        }
    }

    /// Room was looked for by ending others.
    pub(crate) fn preemption_tried(&self) {
        self.preemptions.inc();
    }

    /// So many pods end to make room for another.
    pub(crate) fn preempted(&self, victims: usize) {
        self.victims
            .observe(f64::from(u32::try_from(victims).unwrap_or(u32::MAX)));
    }

    /// How many pods are where in the queue.
    pub(crate) fn queues(&self, lengths: Lengths) {
        set(&self.active, lengths.active);
        set(&self.backoff, lengths.backoff);
        set(&self.unschedulable_pods, lengths.unschedulable);
        set(&self.gated, lengths.gated);
    }

    /// What the cache holds.
    pub(crate) fn cache(&self, nodes: usize, pods: usize) {
        set(&self.nodes, nodes);
        set(&self.pods, pods);
    }
}

fn set(figure: &Gauge, value: usize) {
    figure.set(i64::try_from(value).unwrap_or(i64::MAX));
}
