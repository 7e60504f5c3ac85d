//! What is counted of rules in CEL of custom resources.
//!
//! Upstream counts each part of a schema and of an object, here it is once a kind and an object.
//!
//! Source: `k8s.io/apiserver/pkg/cel/metrics/metrics.go` at v1.37.

use coracle_registry::custom_resource::RuleMetrics;
use coracle_telemetry::metrics::MetricsRegistry;

pub(super) fn register(registry: &MetricsRegistry, kept: &RuleMetrics) {
    let name = "apiserver_cel_compilation_duration_seconds";
    registry.register(
        name,
        "CEL compilation time in seconds",
        kept.compilation.clone(),
    );
    let name = "apiserver_cel_evaluation_duration_seconds";
    registry.register(
        name,
        "CEL evaluation time in seconds",
        kept.evaluation.clone(),
    );
}
