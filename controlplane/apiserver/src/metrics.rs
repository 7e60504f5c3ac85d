//! What `/metrics` tells of this server, under upstream's names.
//!
//! Counters and histograms are kept while requests are served: two look-ups by a handful of words
//! each, which are constants but for kinds that came at run time. The rest (objects, the process)
//! is gathered when somebody asks. Words of clients never become labels: only what is served does.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/metrics/metrics.go`,
//! `pkg/storage/etcd3/metrics/metrics.go` at v1.37. What admission counts it keeps itself.

mod backend;
mod conversions;
mod observation;
pub(crate) mod page;

use std::sync::Arc;

use coracle_admission::{AdmissionMetrics, PodSecurityMetrics, PolicyMetrics, WebhookMetrics};
use coracle_registry::api_resource::Text;
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
    pub(crate) policies: PolicyMetrics,
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
            policies: PolicyMetrics::default(),
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
        metrics.register_pod_security();
        metrics.register_admission();
        metrics.register_webhooks();
        metrics.register_policies();
        metrics.conversions.register(&metrics.registry);
        metrics
    }

    fn register_pod_security(&self) {
        let (registry, kept) = (&self.registry, &self.pod_security);
        let help =
            "Number of policy evaluations that occurred, not counting ignored or exempt requests";
        let name = "pod_security_evaluations";
        registry.register(name, help, kept.evaluations.clone());
        let help = "Number of exempt requests, not counting ignored or out of scope requests";
        registry.register("pod_security_exemptions", help, kept.exemptions.clone());
        let help = "Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted \
                    profile being used for evaluation";
        registry.register("pod_security_errors", help, kept.errors.clone());
    }

    fn register_admission(&self) {
        let (registry, kept) = (&self.registry, &self.admission);
        let help = "Admission sub-step latency histogram in seconds, broken out for each operation and API resource and \
                    step type (validate or admit)";
        let name = "apiserver_admission_step_admission_duration_seconds";
        registry.register(name, help, kept.steps.clone());
        let help = "Admission controller latency histogram in seconds, identified by name and broken out for each \
                    operation and API resource and type (validate or admit)";
        let name = "apiserver_admission_controller_admission_duration_seconds";
        registry.register(name, help, kept.plugins.clone());
        let kept = &kept.manifests;
        let help = "Reads of static manifests of admission, by status and plugin";
        let name = "apiserver_manifest_admission_config_controller_automatic_reloads";
        registry.register(name, help, kept.reloads.clone());
        let help = "When static manifests of admission were read last, by status and plugin";
        let name = "apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds";
        registry.register(name, help, kept.last.clone());
        let help = "Hash of the static manifests of admission that hold, by plugin";
        let name = "apiserver_manifest_admission_config_controller_last_config_info";
        registry.register(name, help, kept.info.clone());
    }

    fn register_webhooks(&self) {
        let (registry, kept) = (&self.registry, &self.webhooks);
        let name = "apiserver_admission_webhook_admission_duration_seconds";
        let help = "Admission webhook latency histogram in seconds, identified by name and broken out for each operation \
                    and type";
        registry.register(name, help, kept.durations.clone());
        let name = "apiserver_admission_webhook_request";
        let help = "Admission webhook requests, by name, type and operation, by whether the request was rejected and by \
                    HTTP status code";
        registry.register(name, help, kept.requests.clone());
        let name = "apiserver_admission_webhook_rejection_count";
        let help =
            "Admission webhook rejection count, by name, type, operation, kind of error and code";
        registry.register(name, help, kept.rejections.clone());
        let name = "apiserver_admission_webhook_fail_open_count";
        let help = "Admission webhook fail open count, by name and type";
        registry.register(name, help, kept.fail_open.clone());
        let name = "apiserver_admission_match_condition_evaluation_errors";
        let help =
            "Match conditions that could not be evaluated, by what has them, type and operation";
        registry.register(name, help, kept.condition_errors.clone());
        let name = "apiserver_admission_match_condition_exclusions";
        let help =
            "Requests that match conditions have left out, by what has them, type and operation";
        registry.register(name, help, kept.exclusions.clone());
        let name = "apiserver_admission_match_condition_evaluation_seconds";
        let help = "Evaluation time of match conditions, by what has them, type and operation";
        registry.register(name, help, kept.condition_times.clone());
    }

    fn register_policies(&self) {
        let (registry, kept) = (&self.registry, &self.policies);
        let name = "apiserver_validating_admission_policy_check";
        let help = "Validations of policies that refuse, warn or are put on record, by policy, binding and action";
        registry.register(name, help, kept.validations.clone());
        let name = "apiserver_validating_admission_policy_check_duration_seconds";
        let help = "Latency of single validations, by policy, binding and enforcement action";
        registry.register(name, help, kept.validation_times.clone());
        let name = "apiserver_mutating_admission_policy_check";
        let help = "Mutations of policies, by policy and binding";
        registry.register(name, help, kept.mutations.clone());
        let name = "apiserver_mutating_admission_policy_check_duration_seconds";
        let help = "Latency of single mutations, by policy and binding";
        registry.register(name, help, kept.mutation_times.clone());
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
