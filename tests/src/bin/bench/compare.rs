//! Two builds side by side: each measured several times in turn, so that what the machine does
//! meanwhile meets both.
//!
//! What counts as noise: two medians differ only if they lie further apart than the wider of the
//! two spreads (largest less smallest of the runs) and than [`FLOOR`] of the first.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::report::{print_comparison, progress};

/// Differences below this part of a figure are never told as one.
const FLOOR: f64 = 0.01;

/// Binaries whose sizes are figures, too.
const BINARIES: [&str; 4] = ["coracle", "coracle-cni", "coracle-shim", "coracle-oci"];

/// What one build showed of one figure, run by run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            count if count % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        }
    }

    pub(crate) fn smallest(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub(crate) fn largest(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    fn spread(&self) -> f64 {
        self.largest() - self.smallest()
    }
}

/// One figure of both builds.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) unit: String,
    /// Whether less is better.
    pub(crate) at_most: bool,
    pub(crate) before: Sample,
    pub(crate) after: Sample,
}

/// What became of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Better,
    Same,
    Worse,
    /// A run did not give it.
    Unknown,
}

impl Figure {
    pub(crate) fn verdict(&self) -> Verdict {
        let (before, after) = (self.before.median(), self.after.median());
        let gained = if self.at_most {
            before - after
        } else {
            after - before
        };
        let noise = self.before.spread().max(self.after.spread());
        let noise = noise.max(before.abs() * FLOOR);
        let is_known = |sample: &Sample| sample.0.iter().all(|value| value.is_finite());
        if !is_known(&self.before) || !is_known(&self.after) || gained.is_nan() {
            Verdict::Unknown
        } else if gained > noise {
            Verdict::Better
        } else if -gained > noise {
            Verdict::Worse
        } else {
            Verdict::Same
        }
    }
}

/// Measures the binaries in two directories, each `runs` times, and prints the table; fails if a
/// figure got worse.
pub(crate) fn run(before: &str, after: &str, runs: &str, sections: &[&str]) -> anyhow::Result<()> {
    let runs: usize = runs
        .parse()
        .ok()
        .filter(|runs| *runs > 0)
        .with_context(|| format!("--runs {runs:?}: a number from 1 on is wanted"))?;
    let mut figures = sizes(Path::new(before), Path::new(after))?;
    let own = figures.len();
    for run in 0..runs {
        // Who is second has a warmer machine: they take turns.
        let order = [(before, true), (after, false)];
        let order = if run % 2 == 0 {
            order
        } else {
            [order[1], order[0]]
        };
        for (directory, is_before) in order {
            progress(&format!("run {} of {runs}: {directory}", run + 1));
            let rows = measure(directory, sections).with_context(|| directory.to_owned())?;
            collect(&mut figures, own, &rows, is_before)?;
        }
    }
    print_comparison(&figures);
    let worse = figures.iter().filter(|figure| {
        let verdict = figure.verdict();
        matches!(verdict, Verdict::Worse | Verdict::Unknown)
    });
    match worse.count() {
        0 => Ok(()),
        count => bail!("{count} of {} figures are worse", figures.len()),
    }
}

/// The sizes of the binaries that both builds have.
fn sizes(before: &Path, after: &Path) -> anyhow::Result<Vec<Figure>> {
    let size = |directory: &Path, name: &str| {
        let bytes = std::fs::metadata(directory.join(name)).ok()?.len();
        Some(Sample(vec![bytes as f64 / 1e6]))
    };
    let found = BINARIES.iter().filter_map(|name| {
        Some(Figure {
            what: format!("size of {name}"),
            unit: "MB".to_owned(),
            at_most: true,
            before: size(before, name)?,
            after: size(after, name)?,
        })
    });
    let found: Vec<Figure> = found.collect();
    ensure!(
        found.iter().any(|one| one.what == "size of coracle"),
        "no binary `coracle` in {} or in {}",
        before.display(),
        after.display()
    );
    Ok(found)
}

/// The rows that this program prints for the binaries in `directory`.
fn measure(directory: &str, sections: &[&str]) -> anyhow::Result<Vec<Value>> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("rows")
        .args(sections)
        .env("CORACLE_BIN_DIR", directory)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut rows = None;
    for line in BufReader::new(child.stdout.take().context("it is piped")?).lines() {
        let line = line?;
        match line.strip_prefix("... ") {
            Some(step) => progress(step),
            None => rows = serde_json::from_str(&line).ok().or(rows),
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "the measurement ended with {status}");
    rows.context("the measurement printed no rows")
}

/// Adds the rows of one run. All runs have the same rows in the same order: what they are called
/// may count objects.
fn collect(
    figures: &mut Vec<Figure>,
    own: usize,
    rows: &[Value],
    is_before: bool,
) -> anyhow::Result<()> {
    if figures.len() == own {
        figures.extend(rows.iter().map(|row| Figure {
            what: row["what"].as_str().unwrap_or_default().to_owned(),
            unit: row["unit"].as_str().unwrap_or_default().to_owned(),
            at_most: row["at_most"] == true,
            before: Sample(Vec::new()),
            after: Sample(Vec::new()),
        }));
    }
    let known = &mut figures[own..];
    ensure!(
        known.len() == rows.len(),
        "{} figures, and {} in the runs before",
        rows.len(),
        known.len()
    );
    for (figure, row) in known.iter_mut().zip(rows) {
        let sample = if is_before {
            &mut figure.before
        } else {
            &mut figure.after
        };
        sample.0.push(row["measured"].as_f64().unwrap_or(f64::NAN));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_counts_beyond_the_spread_only() {
        let check = |before: &[f64], after: &[f64], at_most: bool, expected: Verdict| {
            let figure = Figure {
                what: String::new(),
                unit: String::new(),
                at_most,
                before: Sample(before.to_vec()),
                after: Sample(after.to_vec()),
            };
            assert_eq!(figure.verdict(), expected, "{before:?} to {after:?}");
        };
        check(
            &[40.0, 41.0, 42.0],
            &[45.0, 44.0, 46.0],
            true,
            Verdict::Worse,
        );
        check(
            &[40.0, 41.0, 42.0],
            &[45.0, 44.0, 46.0],
            false,
            Verdict::Better,
        );
        check(
            &[40.0, 41.0, 42.0],
            &[37.0, 38.0, 39.0],
            true,
            Verdict::Better,
        );
        // Within the wider of the spreads.
        check(
            &[40.0, 41.0, 42.0],
            &[43.0, 42.0, 48.0],
            true,
            Verdict::Same,
        );
        // Every run gives the same: a hundredth is nothing yet.
        check(&[100.0], &[100.9], true, Verdict::Same);
        check(&[100.0], &[101.1], true, Verdict::Worse);
        check(&[40.0, f64::NAN], &[40.0, 40.0], true, Verdict::Unknown);
        check(&[], &[40.0], true, Verdict::Unknown);
    }

    #[test]
    fn runs_are_told_apart() {
        let rows = |value: f64| {
            vec![json!({"what": "a", "measured": value, "unit": "ms", "at_most": true})]
        };
        let mut figures = Vec::new();
        collect(&mut figures, 0, &rows(1.0), true).expect("the first run");
        collect(&mut figures, 0, &rows(2.0), false).expect("as many rows");
        collect(&mut figures, 0, &rows(4.0), false).expect("as many rows");
        assert_eq!(figures[0].before, Sample(vec![1.0]));
        assert_eq!(figures[0].after.median(), 3.0);
        assert!(collect(&mut figures, 0, &[], true).is_err());
    }
}
