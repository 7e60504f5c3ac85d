//! Figures: those that are kept while things happen, in one registry for all parts of a process,
//! and those that are gathered when somebody asks ([`Exposition`]).
//!
//! `prometheus-client` keeps and writes the first. It writes OpenMetrics; what is served is the
//! text form that every scraper of Kubernetes reads.

mod exposition;
mod process;

use std::{collections::HashMap, sync::Arc};

pub use exposition::{CONTENT_TYPE, Exposition, Kind};
use parking_lot::Mutex;
pub use process::ProcessFigures;
pub use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};
use prometheus_client::{
    encoding::text,
    metrics::family::Family,
    registry::{Metric, Registry},
};

/// Upper bounds in seconds, from 1 ms doubling to 16 s, as upstream's scheduler has them.
const BOUNDS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];

/// Label names and values.
type Labels = Vec<(&'static str, String)>;

/// A family whose members are made as they are asked for.
#[derive(Debug, Clone)]
enum Members {
    Counters(Family<Labels, Counter>),
    Gauges(Family<Labels, Gauge>),
    Histograms(Family<Labels, Histogram, fn() -> Histogram>),
}

#[derive(Debug, Default)]
struct Kept {
    registry: Registry,
    families: HashMap<&'static str, Members>,
}

/// All figures that a process keeps. Clones are one. A figure is looked up once and kept by who
/// counts; writing it takes no lock of the registry. A part that is started again goes on with the
/// figures that it had.
#[derive(Debug, Clone, Default)]
pub struct MetricsRegistry(Arc<Mutex<Kept>>);

impl MetricsRegistry {
    /// The counter with these labels. Its samples' name ends in `_total`, which is not given here.
    ///
    /// # Panics
    /// In debug builds, if the name is that of figures of another kind: they would not be shown.
    #[must_use]
    pub fn counter(
        &self,
        name: &'static str,
        help: &str,
        labels: &[(&'static str, &str)],
    ) -> Counter {
        match self.members(name, help, || Members::Counters(Family::default())) {
            Members::Counters(counters) => counters.get_or_create_owned(&owned(labels)),
            other => unknown(name, &other),
        }
    }

    /// The gauge with these labels.
    ///
    /// # Panics
    /// As [`Self::counter`].
    #[must_use]
    pub fn gauge(&self, name: &'static str, help: &str, labels: &[(&'static str, &str)]) -> Gauge {
        match self.members(name, help, || Members::Gauges(Family::default())) {
            Members::Gauges(gauges) => gauges.get_or_create_owned(&owned(labels)),
            other => unknown(name, &other),
        }
    }

    /// The histogram of seconds, from 1 ms to 16 s, with these labels.
    ///
    /// # Panics
    /// As [`Self::counter`].
    #[must_use]
    pub fn histogram(
        &self,
        name: &'static str,
        help: &str,
        labels: &[(&'static str, &str)],
    ) -> Histogram {
        let make: fn() -> Histogram = || Histogram::new(BOUNDS);
        match self.members(name, help, || {
            Members::Histograms(Family::new_with_constructor(make))
        }) {
            Members::Histograms(histograms) => histograms.get_or_create_owned(&owned(labels)),
            other => {
                debug_assert!(false, "{name} is {other:?}");
                make()
            }
        }
    }

    /// Takes a family whose labels are of a type of its own, where looking one up is on a hot path.
    /// Once a name.
    pub fn register(&self, name: &'static str, help: &str, metric: impl Metric) {
        self.0.lock().registry.register(name, help, metric);
    }

    /// Everything as it is now, in Prometheus' text form.
    #[must_use]
    pub fn text(&self) -> String {
        let mut open = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut open, &self.0.lock().registry);
        exposition::from_open_metrics(&open)
    }

    fn members(&self, name: &'static str, help: &str, make: impl FnOnce() -> Members) -> Members {
        let Kept { registry, families } = &mut *self.0.lock();
        // The library ends every help with a full stop.
        let help = help.trim_end_matches('.');
        let register = || {
            let members = make();
            match &members {
                Members::Counters(counters) => registry.register(name, help, counters.clone()),
                Members::Gauges(gauges) => registry.register(name, help, gauges.clone()),
                Members::Histograms(histograms) => {
                    registry.register(name, help, histograms.clone())
                }
            }
            members
        };
        families.entry(name).or_insert_with(register).clone()
    }
}

fn owned(labels: &[(&'static str, &str)]) -> Labels {
    labels
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect()
}

/// A figure that nobody is shown.
fn unknown<T: Default>(name: &str, members: &Members) -> T {
    debug_assert!(false, "{name} is {members:?}");
    T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shared_by_name_and_labels() {
        let metrics = MetricsRegistry::default();
        let again = metrics.clone();
        metrics
            .gauge("depth", "How deep.", &[("name", "a")])
            .inc_by(2);
        again.gauge("depth", "How deep.", &[("name", "a")]).dec();
        again.gauge("depth", "How deep.", &[("name", "b")]).set(7);
        metrics.counter("tries", "How often", &[]).inc();
        let text = metrics.text();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "# HELP depth How deep.",
                "# HELP tries_total How often.",
                "# TYPE depth gauge",
                "# TYPE tries_total counter",
                "depth{name=\"a\"} 1",
                "depth{name=\"b\"} 7",
                "tries_total 1",
            ]
        );
    }

    #[test]
    fn times_are_written_as_a_histogram() {
        let metrics = MetricsRegistry::default();
        let times = metrics.histogram("work_seconds", "How long.", &[]);
        times.observe(0.0015);
        times.observe(60.0);
        let text = metrics.text();
        for line in [
            "# TYPE work_seconds histogram",
            "work_seconds_bucket{le=\"0.001\"} 0",
            "work_seconds_bucket{le=\"0.002\"} 1",
            "work_seconds_bucket{le=\"+Inf\"} 2",
            "work_seconds_sum 60.0015",
            "work_seconds_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }

    #[test]
    #[should_panic(expected = "tries is")]
    fn a_name_has_one_kind() {
        let metrics = MetricsRegistry::default();
        metrics.counter("tries", "How often", &[]).inc();
        metrics.gauge("tries", "How often", &[]).inc();
    }
}
