//! How long plugins take, and each half of admission altogether, under upstream's names.
//!
//! A plugin that has nothing to do with a write is not counted for it; upstream's are asked, and
//! counted. Those that a write does not come to, because one before refuses it, are not counted in
//! either.
//!
//! Source: `k8s.io/apiserver/pkg/admission/metrics/metrics.go` at v1.37.

use coracle_api::status::Status;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
};
use tokio::time::Instant;

use crate::{attributes::Operation, manifests::metrics::ManifestMetrics};

/// Upper bounds in seconds.
const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

type Times<L> = Family<L, Histogram, fn() -> Histogram>;

/// Histograms, for the server to show.
#[derive(Debug, Clone)]
pub struct AdmissionMetrics {
    /// `apiserver_admission_step_admission_duration_seconds`.
    pub steps: Times<StepLabels>,
    /// `apiserver_admission_controller_admission_duration_seconds`.
    pub plugins: Times<PluginLabels>,
    /// Of static manifests.
    pub manifests: ManifestMetrics,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepLabels {
    operation: &'static str,
    rejected: &'static str,
    r#type: &'static str,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PluginLabels {
    name: &'static str,
    operation: &'static str,
    rejected: &'static str,
    r#type: &'static str,
}

/// Which half it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Look {
    Admit,
    Validate,
}

impl Default for AdmissionMetrics {
    fn default() -> Self {
        Self {
            steps: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            plugins: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            manifests: ManifestMetrics::default(),
        }
    }
}

impl AdmissionMetrics {
    /// A half that begins now. It counts as rejected unless it is [`done`](StepTiming::done), also
    /// when its client leaves.
    pub(crate) fn step(&self, look: Look, operation: Operation) -> StepTiming<'_> {
        StepTiming {
            metrics: self,
            look: match look {
                Look::Admit => "admit",
                Look::Validate => "validate",
            },
            operation: match operation {
                Operation::Create => "CREATE",
                Operation::Update => "UPDATE",
                Operation::Delete => "DELETE",
                Operation::Connect => "CONNECT",
            },
            start: Instant::now(),
            rejected: "true",
        }
    }
}

/// A half under way.
pub(crate) struct StepTiming<'a> {
    metrics: &'a AdmissionMetrics,
    look: &'static str,
    operation: &'static str,
    start: Instant,
    rejected: &'static str,
}

/// A plugin at work.
pub(crate) struct PluginTiming<'a> {
    step: &'a StepTiming<'a>,
    name: &'static str,
    start: Instant,
}

impl StepTiming<'_> {
    pub(crate) fn plugin(&self, name: &'static str) -> PluginTiming<'_> {
        PluginTiming {
            step: self,
            name,
            start: Instant::now(),
        }
    }

    pub(crate) fn done(mut self) {
        self.rejected = "false";
    }
}

impl Drop for StepTiming<'_> {
    fn drop(&mut self) {
        let labels = StepLabels {
            operation: self.operation,
            rejected: self.rejected,
            r#type: self.look,
        };
        let took = self.start.elapsed().as_secs_f64();
        self.metrics.steps.get_or_create(&labels).observe(took);
    }
}

impl PluginTiming<'_> {
    pub(crate) fn done(self, result: Result<(), Status>) -> Result<(), Status> {
        let labels = PluginLabels {
            name: self.name,
            operation: self.step.operation,
            rejected: if result.is_ok() { "false" } else { "true" },
            r#type: self.step.look,
        };
        let took = self.start.elapsed().as_secs_f64();
        let plugins = &self.step.metrics.plugins;
        plugins.get_or_create(&labels).observe(took);
        result
    }
}
