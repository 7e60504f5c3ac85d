//! Figures that are kept while things happen, for parts that need no more than counters, gauges and times.
//!
//! A figure is looked up once and kept by who counts; writing it takes no lock.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{Exposition, Kind};

/// Upper bounds in seconds, from 1 ms doubling to 16 s, as upstream's scheduler has them.
const BOUNDS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// A family of figures with one name.
#[derive(Debug)]
pub struct Family {
    /// Such as `workqueue_depth`.
    pub name: &'static str,
    /// What kind of figures.
    pub kind: Kind,
    /// What it says.
    pub help: &'static str,
}

/// Label names and values.
type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
enum Figure {
    Number(Arc<AtomicI64>),
    Times(Arc<Times>),
}

#[derive(Debug)]
struct Known {
    family: &'static Family,
    figures: Vec<(Labels, Figure)>,
}

/// All figures of a part. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Registry(Arc<Mutex<Vec<Known>>>);

impl Registry {
    /// The counter or gauge with these labels; made at the first call.
    #[must_use]
    pub fn number(&self, family: &'static Family, labels: &[(&'static str, &str)]) -> Arc<AtomicI64> {
        let number = self.figure(family, labels, |figure| match figure {
            Figure::Number(number) => Some(Arc::clone(number)),
            Figure::Times(_) => None,
        });
        number.unwrap_or_default()
    }

    /// The times with these labels; made at the first call.
    #[must_use]
    pub fn times(&self, family: &'static Family, labels: &[(&'static str, &str)]) -> Arc<Times> {
        let times = self.figure(family, labels, |figure| match figure {
            Figure::Times(times) => Some(Arc::clone(times)),
            Figure::Number(_) => None,
        });
        times.unwrap_or_default()
    }

    fn figure<T>(
        &self,
        family: &'static Family,
        labels: &[(&'static str, &str)],
        pick: impl Fn(&Figure) -> Option<T>,
    ) -> Option<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|known| known.family.name == family.name).unwrap_or_else(|| {
            all.push(Known { family, figures: Vec::new() });
            all.len() - 1
        });
        let figures = &mut all.get_mut(at)?.figures;
        let same =
            |known: &Labels| known.iter().map(|(name, value)| (*name, value.as_str())).eq(labels.iter().copied());
        if let Some((_, figure)) = figures.iter().find(|(known, _)| same(known)) {
            return pick(figure);
        }
        let figure =
            if family.kind == Kind::Histogram { Figure::Times(Arc::default()) } else { Figure::Number(Arc::default()) };
        let picked = pick(&figure);
        figures.push((labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), figure));
        picked
    }

    /// Writes everything as it is now.
    pub fn write(&self, out: &mut Exposition) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for Known { family, figures } in all.iter() {
            out.family(family.name, family.kind, family.help);
            for (labels, figure) in figures {
                let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
                match figure {
                    Figure::Number(number) => out.sample(family.name, &labels, as_f64(number.load(Ordering::Relaxed))),
                    Figure::Times(times) => times.write(out, family.name, &labels),
                }
            }
        }
    }
}

/// How long things took.
#[derive(Debug, Default)]
pub struct Times {
    /// One for each bound, and one beyond; not cumulative.
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Times {
    /// One more took so long.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn write(&self, out: &mut Exposition, name: &str, labels: &[(&str, &str)]) {
        let mut total = 0;
        for (at, count) in self.counts.iter().enumerate() {
            total += count.load(Ordering::Relaxed);
            let bound = BOUNDS.get(at).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            out.sample(&format!("{name}_bucket"), &labels, unsigned(total));
        }
        out.sample(&format!("{name}_sum"), labels, unsigned(self.micros.load(Ordering::Relaxed)) / 1e6);
        out.sample(&format!("{name}_count"), labels, unsigned(total));
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures beyond 2^53 need not be exact")]
fn as_f64(value: i64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "figures beyond 2^53 need not be exact")]
fn unsigned(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    static DEPTH: Family = Family { name: "depth", kind: Kind::Gauge, help: "How deep." };
    static WORK: Family = Family { name: "work_seconds", kind: Kind::Histogram, help: "How long." };

    #[test]
    fn figures_are_shared_by_name_and_labels() {
        let registry = Registry::default();
        registry.number(&DEPTH, &[("name", "a")]).fetch_add(2, Ordering::Relaxed);
        registry.number(&DEPTH, &[("name", "a")]).fetch_sub(1, Ordering::Relaxed);
        registry.number(&DEPTH, &[("name", "b")]).store(7, Ordering::Relaxed);
        let mut out = Exposition::default();
        registry.write(&mut out);
        assert_eq!(
            out.finish(),
            "# HELP depth How deep.\n# TYPE depth gauge\ndepth{name=\"a\"} 1\ndepth{name=\"b\"} 7\n"
        );
    }

    #[test]
    fn times_are_written_as_a_histogram() {
        let registry = Registry::default();
        let times = registry.times(&WORK, &[]);
        times.observe(Duration::from_micros(1500));
        times.observe(Duration::from_secs(60));
        let mut out = Exposition::default();
        registry.write(&mut out);
        let text = out.finish();
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
}
