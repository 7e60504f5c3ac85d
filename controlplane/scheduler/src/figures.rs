//! What `/metrics` tells of the scheduler, under upstream's names.
//!
//! Source: `pkg/scheduler/metrics/metrics.go` at v1.37.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use coracle_api::exposition::{Family, Kind, Registry, Times};

static ATTEMPTS: Family = Family {
    name: "scheduler_schedule_attempts_total",
    kind: Kind::Counter,
    help: "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, \
           while 'error' means an internal scheduler problem.",
};
static ATTEMPT_TIMES: Family = Family {
    name: "scheduler_scheduling_attempt_duration_seconds",
    kind: Kind::Histogram,
    help: "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
};
static ALGORITHM_TIMES: Family = Family {
    name: "scheduler_scheduling_algorithm_duration_seconds",
    kind: Kind::Histogram,
    help: "Scheduling algorithm latency in seconds",
};
static PENDING: Family = Family {
    name: "scheduler_pending_pods",
    kind: Kind::Gauge,
    help: "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number \
           of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods.",
};
static CACHED: Family = Family {
    name: "scheduler_cache_size",
    kind: Kind::Gauge,
    help: "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
};

/// How an attempt ended.
#[derive(Debug)]
struct Attempts {
    count: Arc<AtomicI64>,
    times: Arc<Times>,
}

impl Attempts {
    fn new(metrics: &Registry, profile: &str, result: &str) -> Self {
        let labels = [("profile", profile), ("result", result)];
        Self { count: metrics.number(&ATTEMPTS, &labels), times: metrics.times(&ATTEMPT_TIMES, &labels) }
    }

    fn count(&self, took: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.times.observe(took);
    }
}

/// The figures, looked up once.
#[derive(Debug)]
pub(crate) struct Figures {
    scheduled: Attempts,
    unschedulable: Attempts,
    error: Attempts,
    algorithm: Arc<Times>,
    active: Arc<AtomicI64>,
    backoff: Arc<AtomicI64>,
    waiting: Arc<AtomicI64>,
    nodes: Arc<AtomicI64>,
    pods: Arc<AtomicI64>,
}

impl Figures {
    pub(crate) fn new(metrics: &Registry, profile: &str) -> Self {
        let queue = |name: &str| metrics.number(&PENDING, &[("queue", name)]);
        let cached = |kind: &str| metrics.number(&CACHED, &[("type", kind)]);
        Self {
            scheduled: Attempts::new(metrics, profile, "scheduled"),
            unschedulable: Attempts::new(metrics, profile, "unschedulable"),
            error: Attempts::new(metrics, profile, "error"),
            algorithm: metrics.times(&ALGORITHM_TIMES, &[]),
            active: queue("active"),
            backoff: queue("backoff"),
            waiting: queue("unschedulable"),
            nodes: cached("nodes"),
            pods: cached("pods"),
        }
    }

    /// A decision has been made; `fits` says whether there was a node.
    pub(crate) fn decided(&self, took: Duration, fits: bool) {
        self.algorithm.observe(took);
        if !fits {
            self.unschedulable.count(took);
        }
    }

    /// A binding has ended. `took` counts from the decision.
    pub(crate) fn bound(&self, took: Duration, succeeded: bool) {
        if succeeded { self.scheduled.count(took) } else { self.error.count(took) }
    }

    /// The lengths of the queues: active, backing off, unschedulable.
    pub(crate) fn queues(&self, [active, backoff, waiting]: [usize; 3]) {
        set(&self.active, active);
        set(&self.backoff, backoff);
        set(&self.waiting, waiting);
    }

    /// What the cache holds.
    pub(crate) fn cache(&self, nodes: usize, pods: usize) {
        set(&self.nodes, nodes);
        set(&self.pods, pods);
    }
}

fn set(figure: &AtomicI64, value: usize) {
    figure.store(i64::try_from(value).unwrap_or(i64::MAX), Ordering::Relaxed);
}
