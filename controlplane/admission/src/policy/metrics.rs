//! What is counted of policies, under upstream's names.
//!
//! What a validating policy lets pass is not counted, unless only its failure policy lets it.
//!
//! Source: `.../policy/{validating,mutating}/metrics/metrics.go` and
//! `.../policy/validating/errors.go` at v1.37.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};

const BUCKETS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];

type Times<L> = Family<L, Histogram, fn() -> Histogram>;

/// Figures, for the server to show.
#[derive(Debug, Clone)]
pub struct PolicyMetrics {
    /// `apiserver_validating_admission_policy_check_total`
    pub validations: Family<Validated, Counter>,
    /// `apiserver_validating_admission_policy_check_duration_seconds`
    pub validation_times: Times<Validated>,
    /// `apiserver_mutating_admission_policy_check_total`
    pub mutations: Family<Mutated, Counter>,
    /// `apiserver_mutating_admission_policy_check_duration_seconds`
    pub mutation_times: Times<Mutated>,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Validated {
    policy: String,
    policy_binding: String,
    error_type: &'static str,
    enforcement_action: &'static str,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Mutated {
    policy: String,
    policy_binding: String,
    error_type: &'static str,
}

impl Default for PolicyMetrics {
    fn default() -> Self {
        Self {
            validations: Family::default(),
            validation_times: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            mutations: Family::default(),
            mutation_times: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
}

impl PolicyMetrics {
    /// Counts a validation of a policy with a binding that says `message`, and what is done.
    pub(super) fn validated(
        &self,
        (policy, binding): (&str, &str),
        action: &'static str,
        message: &str,
        took: Duration,
    ) {
        let labels = Validated {
            policy: policy.to_owned(),
            policy_binding: binding.to_owned(),
            error_type: error_type(message),
            enforcement_action: action,
        };
        self.validations.get_or_create(&labels).inc();
        let times = self.validation_times.get_or_create(&labels);
        times.observe(took.as_secs_f64());
    }

    /// Counts a mutation of a policy with a binding, which may have failed for this.
    pub(super) fn mutated(
        &self,
        (policy, binding): (&str, &str),
        failed: Option<&str>,
        took: Duration,
    ) {
        let labels = Mutated {
            policy: policy.to_owned(),
            policy_binding: binding.to_owned(),
            error_type: failed.map_or("no_error", error_type),
        };
        self.mutations.get_or_create(&labels).inc();
        let times = self.mutation_times.get_or_create(&labels);
        times.observe(took.as_secs_f64());
    }
}

/// As upstream, a validation that says no is an error of no other sort.
fn error_type(message: &str) -> &'static str {
    if message.starts_with("compilation") {
        "compile_error"
    } else if message.starts_with("validation failed due to running out of cost budget") {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}
