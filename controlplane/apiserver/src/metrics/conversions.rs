//! What is counted of conversion webhooks.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/metrics.go` at v1.37.

use coracle_registry::converter::{Failure, Outcome};
use coracle_telemetry::metrics::{Counter, Histogram, MetricsRegistry};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::exponential_buckets},
};

use super::Times;

const CALL_BUCKETS: [f64; 15] = [
    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Converted {
    crd_name: String,
    from_version: String,
    to_version: String,
    succeeded: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    result: &'static str,
    failure_type: &'static str,
}

/// Figures of all kinds that webhooks convert.
#[derive(Clone)]
pub(crate) struct ConversionMetrics {
    conversions: Times<Converted>,
    calls: Family<Called, Counter>,
    durations: Times<Called>,
}

impl Default for ConversionMetrics {
    fn default() -> Self {
        Self {
            conversions: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 15))
            }),
            calls: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(CALL_BUCKETS)),
        }
    }
}

impl ConversionMetrics {
    pub(super) fn register(&self, registry: &MetricsRegistry) {
        let name = "apiserver_crd_conversion_webhook_duration_seconds";
        let help = "CRD webhook conversion duration in seconds";
        registry.register(name, help, self.conversions.clone());
        let name = "apiserver_conversion_webhook_request";
        let help = "Calls of conversion webhooks, by result and by what they have failed for";
        registry.register(name, help, self.calls.clone());
        let name = "apiserver_conversion_webhook_duration_seconds";
        let help = "Conversion webhook request latency";
        registry.register(name, help, self.durations.clone());
    }

    /// Counts what has come of a call for the kind of a definition.
    pub(crate) fn called(&self, definition: &str, outcome: &Outcome<'_>) {
        let took = outcome.took.as_secs_f64();
        let is_converted = outcome.failure.is_none();
        let labels = Converted {
            crd_name: definition.to_owned(),
            from_version: outcome.from_version.to_owned(),
            to_version: outcome.to_version.to_owned(),
            succeeded: if is_converted { "true" } else { "false" },
        };
        self.conversions.get_or_create(&labels).observe(took);
        let labels = Called {
            result: if is_converted { "success" } else { "failure" },
            failure_type: outcome.failure.map_or("", failure_type),
        };
        self.calls.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(took);
    }
}

fn failure_type(failure: Failure) -> &'static str {
    match failure {
        Failure::Call | Failure::TooLong => "conversion_webhook_call_failure",
        Failure::MalformedResponse => "conversion_webhook_malformed_response_failure",
        Failure::PartialResponse => "conversion_webhook_partial_response_failure",
        Failure::InvalidConvertedObject => "conversion_webhook_invalid_converted_object_failure",
    }
}
