//! The table.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    compare::{Figure, Sample, Verdict},
    stages::Stage,
};

/// The value below which `percent` of the times lie, in milliseconds.
pub(crate) fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(index).map_or(f64::NAN, Duration::as_secs_f64) * 1e3
}

/// One line of the table.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) unit: &'static str,
    pub(crate) goal: f64,
    /// Whether less is better.
    pub(crate) at_most: bool,
    /// Whether there is a goal at all.
    pub(crate) has_goal: bool,
}

impl Row {
    pub(crate) fn at_most(
        what: impl Into<String>,
        measured: f64,
        unit: &'static str,
        goal: f64,
    ) -> Self {
        Self {
            what: what.into(),
            measured,
            unit,
            goal,
            at_most: true,
            has_goal: true,
        }
    }

    pub(crate) fn at_least(
        what: impl Into<String>,
        measured: f64,
        unit: &'static str,
        goal: f64,
    ) -> Self {
        Self {
            what: what.into(),
            measured,
            unit,
            goal,
            at_most: false,
            has_goal: true,
        }
    }

    /// Said for comparison; no goal is set.
    pub(crate) fn told(what: impl Into<String>, measured: f64, unit: &'static str) -> Self {
        Self {
            what: what.into(),
            measured,
            unit,
            goal: f64::NAN,
            at_most: true,
            has_goal: false,
        }
    }
}

#[allow(clippy::print_stdout, reason = "the table is this program's result")]
pub(crate) fn print_table(rows: &[Row]) {
    println!("\n{:<58} {:>12} {:>14}", "what", "measured", "goal");
    for row in rows {
        let met = if row.at_most {
            row.measured <= row.goal
        } else {
            row.measured >= row.goal
        };
        let sign = if row.at_most { "<=" } else { ">=" };
        let (measured, goal) = (
            format!("{:.1} {}", row.measured, row.unit),
            format!("{sign} {} {}", row.goal, row.unit),
        );
        if !row.has_goal {
            println!("{:<58} {measured:>12}", row.what);
            continue;
        }
        println!(
            "{:<58} {measured:>12} {goal:>14}  {}",
            row.what,
            if met { "met" } else { "MISSED" }
        );
    }
}

#[allow(clippy::print_stdout, reason = "the table is this program's result")]
pub(crate) fn print_stages(stages: &[Stage]) {
    if stages.is_empty() {
        return;
    }
    println!(
        "\n{:<58} {:>12} {:>14}",
        "where the time of one pod start goes", "p50", "p99"
    );
    for Stage {
        what,
        p50_ms,
        p99_ms,
    } in stages
    {
        println!(
            "{what:<58} {:>12} {:>14}",
            format!("{p50_ms:.2} ms"),
            format!("{p99_ms:.2} ms")
        );
    }
}

/// The rows for who compares them.
pub(crate) fn as_json(rows: &[Row]) -> Value {
    let told = rows.iter().map(|row| {
        json!({"what": row.what, "measured": row.measured, "unit": row.unit, "at_most": row.at_most})
    });
    told.collect()
}

#[allow(clippy::print_stdout, reason = "the table is this program's result")]
pub(crate) fn print_comparison(figures: &[Figure]) {
    println!(
        "\n{:<58} {:>30} {:>30} {:>9}",
        "median (smallest to largest)", "before", "after", "change"
    );
    for figure in figures {
        let shown = |sample: &Sample| {
            format!(
                "{:.1} {} ({:.1} to {:.1})",
                sample.median(),
                figure.unit,
                sample.smallest(),
                sample.largest()
            )
        };
        let change = (figure.after.median() / figure.before.median() - 1.0) * 100.0;
        let verdict = match figure.verdict() {
            Verdict::Better => "better",
            Verdict::Same => "within noise",
            Verdict::Worse => "WORSE",
            Verdict::Unknown => "UNKNOWN",
        };
        println!(
            "{:<58} {:>30} {:>30} {:>9}  {verdict}",
            figure.what,
            shown(&figure.before),
            shown(&figure.after),
            format!("{change:+.1} %")
        );
    }
}

#[allow(clippy::print_stdout, reason = "a measurement's one line")]
pub(crate) fn print_json(value: &Value) {
    println!("{value}");
}

#[allow(clippy::print_stdout, reason = "long steps show progress")]
pub(crate) fn progress(what: &str) {
    println!("... {what}");
}

#[allow(clippy::print_stderr, reason = "the last word of a failing program")]
pub(crate) fn complain(error: &anyhow::Error) {
    eprintln!("bench: {error:#}");
}
