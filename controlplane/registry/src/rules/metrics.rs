//! How long rules take.

use coracle_telemetry::metrics::Histogram;

/// Prometheus' own.
const BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Figures of all kinds with rules, for the server to show.
#[derive(Debug, Clone)]
pub struct RuleMetrics {
    /// `apiserver_cel_compilation_duration_seconds`: of all rules of a kind in a version.
    pub compilation: Histogram,
    /// `apiserver_cel_evaluation_duration_seconds`: of all rules over an object.
    pub evaluation: Histogram,
}

impl Default for RuleMetrics {
    fn default() -> Self {
        Self {
            compilation: Histogram::new(BUCKETS),
            evaluation: Histogram::new(BUCKETS),
        }
    }
}
