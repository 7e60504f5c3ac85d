//! What `/metrics` tells of this server, under upstream's names.
//!
//! Counters and histograms are kept while requests are served: two look-ups by a handful of words
//! each, which are constants but for kinds that came at run time. The rest (objects, the process)
//! is gathered when somebody asks. Words of clients never become labels: only what is served does.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/metrics/metrics.go`,
//! `pkg/storage/etcd3/metrics/metrics.go` at v1.37. What admission counts it keeps itself.

mod admission;
mod backend;
mod conversions;
mod observation;
pub(crate) mod page;
mod rules;

use std::sync::Arc;

use coracle_admission::{
    AdmissionMetrics, ConditionMetrics, PodSecurityMetrics, PolicyMetrics, WebhookMetrics,
};
use coracle_registry::{api_resource::Text, custom_resource::RuleMetrics};
use coracle_store::Backend;
use coracle_telemetry::metrics::{Counter, Gauge, Histogram, MetricsRegistry};
use prometheus_client::{encoding::EncodeLabelSet, metrics::family::Family};

pub(crate) use conversions::ConversionMetrics;
pub(crate) use observation::Observation;

/// Upper bounds in seconds; the first two are finer than upstream's.
const BUCKETS: [f64; 25] = [
    0.0005, 0.001, 0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0,
    6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// What is asked of what.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    component: &'static str,
    group: Text,
    resource: Text,
    scope: &'static str,
    subresource: &'static str,
    verb: &'static str,
    version: Text,
}

impl Request {
    /// `pods` or `pods/binding`.
    fn path(&self) -> String {
        match self.subresource {
            "" => self.resource.to_string(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    code: u32,
    component: &'static str,
    dry_run: &'static str,
    group: Text,
    resource: Text,
    scope: &'static str,
    subresource: &'static str,
    verb: &'static str,
    version: Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InFlight {
    request_kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Watched {
    group: Text,
    kind: Text,
    version: Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
}

type Times<L> = Family<L, Histogram, fn() -> Histogram>;

fn times<L: Clone + std::hash::Hash + Eq>() -> Times<L> {
    Family::new_with_constructor(|| Histogram::new(BUCKETS))
}

/// All that is kept.
pub(crate) struct Metrics {
    pub(crate) registry: MetricsRegistry,
    answers: Family<Answer, Counter>,
    durations: Times<Request>,
    in_flight: Family<InFlight, Gauge>,
    long_running: Family<Request, Gauge>,
    watchers: Family<Watched, Gauge>,
    store: Times<Operation>,
    /// Kept by admission.
    pub(crate) pod_security: PodSecurityMetrics,
    /// The same.
    pub(crate) admission: AdmissionMetrics,
    pub(crate) webhooks: WebhookMetrics,
    pub(crate) conditions: ConditionMetrics,
    pub(crate) policies: PolicyMetrics,
    pub(crate) rules: RuleMetrics,
    pub(crate) conversions: ConversionMetrics,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: MetricsRegistry::default(),
            answers: Family::default(),
            durations: times(),
            in_flight: Family::default(),
            long_running: Family::default(),
            watchers: Family::default(),
            store: times(),
            pod_security: PodSecurityMetrics::default(),
            admission: AdmissionMetrics::default(),
            webhooks: WebhookMetrics::default(),
            conditions: ConditionMetrics::default(),
            policies: PolicyMetrics::default(),
            rules: RuleMetrics::default(),
            conversions: ConversionMetrics::default(),
        };
        let registry = &metrics.registry;
        let help = "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, \
                    scope, component, and HTTP response code";
        registry.register("apiserver_request", help, metrics.answers.clone());
        let help = "Response latency distribution in seconds for each verb, group, version, resource, subresource, scope \
                    and component";
        registry.register(
            "apiserver_request_duration_seconds",
            help,
            metrics.durations.clone(),
        );
        let help =
            "Number of currently used inflight request limit of this apiserver per request kind";
        registry.register(
            "apiserver_current_inflight_requests",
            help,
            metrics.in_flight.clone(),
        );
        let help = "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, \
                    scope and component";
        registry.register(
            "apiserver_longrunning_requests",
            help,
            metrics.long_running.clone(),
        );
        let help = "Number of currently registered watchers for a given resource";
        registry.register(
            "apiserver_registered_watchers",
            help,
            metrics.watchers.clone(),
        );
        let help = "Store request latency in seconds for each operation; a txn is answered once it is durable";
        registry.register("etcd_request_duration_seconds", help, metrics.store.clone());
        admission::pod_security(registry, &metrics.pod_security);
        admission::plugins(registry, &metrics.admission);
        admission::webhooks(registry, &metrics.webhooks);
        admission::conditions(registry, &metrics.conditions);
        admission::policies(registry, &metrics.policies);
        rules::register(registry, &metrics.rules);
        metrics.conversions.register(registry);
        metrics
    }

    /// The same store, with its times taken.
    pub(crate) fn meter(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(backend::Metered {
            backend,
            times: self.store.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
