//! What is counted of webhooks, under upstream's names.
//!
//! Source: `k8s.io/apiserver/pkg/admission/metrics/metrics.go` at v1.37.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

use super::kind::Kind;
use crate::attributes::Operation;

const WEBHOOK_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// What a webhook may say is its own; labels are not.
const LARGEST_CODE: u16 = 600;

type Times<L> = Family<L, Histogram, fn() -> Histogram>;

/// Figures, for the server to show. Two are gauges although they only grow: their names must not
/// end in `_total`.
#[derive(Debug, Clone)]
pub struct WebhookMetrics {
    /// `apiserver_admission_webhook_admission_duration_seconds`
    pub durations: Times<Called>,
    /// `apiserver_admission_webhook_request_total`
    pub requests: Family<Answered, Counter>,
    /// `apiserver_admission_webhook_rejection_count`
    pub rejections: Family<Rejected, Gauge>,
    /// `apiserver_admission_webhook_fail_open_count`
    pub fail_open: Family<FailedOpen, Gauge>,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        Self {
            durations: Family::new_with_constructor(|| Histogram::new(WEBHOOK_BUCKETS)),
            requests: Family::default(),
            rejections: Family::default(),
            fail_open: Family::default(),
        }
    }
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Called {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    rejected: &'static str,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Answered {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    code: u16,
    rejected: &'static str,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Rejected {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    error_type: &'static str,
    rejection_code: u16,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailedOpen {
    name: String,
    r#type: &'static str,
}

/// What a call has come to, for who counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) code: u16,
    /// Why the request was rejected, if it was: `calling_webhook_error` and so on.
    pub(crate) rejected_by: Option<&'static str>,
}

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }
}

impl WebhookMetrics {
    pub(crate) fn called(
        &self,
        (kind, name): (Kind, &str),
        operation: Operation,
        took: Duration,
        outcome: Outcome,
    ) {
        let (name, r#type, operation) = (name.to_owned(), kind.label(), operation.as_str());
        let rejected = if outcome.rejected_by.is_some() {
            "true"
        } else {
            "false"
        };
        let code = outcome.code.min(LARGEST_CODE);
        if let Some(error_type) = outcome.rejected_by {
            let labels = Rejected {
                name: name.clone(),
                r#type,
                operation,
                error_type,
                rejection_code: code,
            };
            self.rejections.get_or_create(&labels).inc();
        }
        let labels = Answered {
            name: name.clone(),
            r#type,
            operation,
            code,
            rejected,
        };
        self.requests.get_or_create(&labels).inc();
        let labels = Called {
            name,
            r#type,
            operation,
            rejected,
        };
        let durations = self.durations.get_or_create(&labels);
        durations.observe(took.as_secs_f64());
    }

    pub(crate) fn failed_open(&self, kind: Kind, name: &str) {
        let labels = FailedOpen {
            name: name.to_owned(),
            r#type: kind.label(),
        };
        self.fail_open.get_or_create(&labels).inc();
    }
}
