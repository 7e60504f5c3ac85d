//! What is counted of match conditions, of webhooks and of policies, under upstream's names.
//!
//! Source: `k8s.io/apiserver/pkg/admission/metrics/metrics.go` at v1.37.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};

use super::conditions::Judged;
use crate::attributes::Operation;

const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

/// Figures, for the server to show.
#[derive(Debug, Clone)]
pub struct ConditionMetrics {
    /// `apiserver_admission_match_condition_evaluation_errors_total`
    pub errors: Family<Conditioned, Counter>,
    /// `apiserver_admission_match_condition_exclusions_total`
    pub exclusions: Family<Conditioned, Counter>,
    /// `apiserver_admission_match_condition_evaluation_seconds`
    pub times: Family<Conditioned, Histogram, fn() -> Histogram>,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Conditioned {
    name: String,
    kind: &'static str,
    r#type: &'static str,
    operation: &'static str,
}

impl Conditioned {
    /// The conditions of a webhook of a type, `admit` or `validate`.
    pub(crate) fn webhook(name: &str, r#type: &'static str, operation: Operation) -> Self {
        Self {
            name: name.to_owned(),
            kind: "webhook",
            r#type,
            operation: operation.as_str(),
        }
    }

    /// The conditions of a policy. As upstream, those that change are of no other type.
    pub(crate) fn policy(name: &str, operation: Operation) -> Self {
        Self {
            kind: "policy",
            ..Self::webhook(name, "validate", operation)
        }
    }
}

impl Default for ConditionMetrics {
    fn default() -> Self {
        Self {
            errors: Family::default(),
            exclusions: Family::default(),
            times: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
}

impl ConditionMetrics {
    /// Counts what match conditions have come to.
    pub(crate) fn judged(&self, of: &Conditioned, judged: Judged) {
        if judged.is_excluded {
            self.exclusions.get_or_create(of).inc();
        }
        if judged.errors > 0 {
            self.errors.get_or_create(of).inc_by(judged.errors as u64);
        }
        let times = self.times.get_or_create(of);
        times.observe(judged.took.as_secs_f64());
    }
}
