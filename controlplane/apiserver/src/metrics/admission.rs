//! What admission counts, and counts itself: under which names it is told.

use coracle_admission::{
    AdmissionMetrics, ConditionMetrics, PodSecurityMetrics, PolicyMetrics, WebhookMetrics,
};
use coracle_telemetry::metrics::MetricsRegistry;

pub(super) fn pod_security(registry: &MetricsRegistry, kept: &PodSecurityMetrics) {
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

pub(super) fn plugins(registry: &MetricsRegistry, kept: &AdmissionMetrics) {
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
    let name =
        "apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds";
    registry.register(name, help, kept.last.clone());
    let help = "Hash of the static manifests of admission that hold, by plugin";
    let name = "apiserver_manifest_admission_config_controller_last_config_info";
    registry.register(name, help, kept.info.clone());
}

pub(super) fn webhooks(registry: &MetricsRegistry, kept: &WebhookMetrics) {
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
}

pub(super) fn conditions(registry: &MetricsRegistry, kept: &ConditionMetrics) {
    let name = "apiserver_admission_match_condition_evaluation_errors";
    let help = "Match conditions that could not be evaluated, by what has them, type and operation";
    registry.register(name, help, kept.errors.clone());
    let name = "apiserver_admission_match_condition_exclusions";
    let help = "Requests that match conditions have left out, by what has them, type and operation";
    registry.register(name, help, kept.exclusions.clone());
    let name = "apiserver_admission_match_condition_evaluation_seconds";
    let help = "Evaluation time of match conditions, by what has them, type and operation";
    registry.register(name, help, kept.times.clone());
}

pub(super) fn policies(registry: &MetricsRegistry, kept: &PolicyMetrics) {
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
