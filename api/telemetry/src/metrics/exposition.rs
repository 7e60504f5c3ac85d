//! Prometheus' text form (version 0.0.4), for figures that are gathered when somebody asks.
//!
//! [`from_open_metrics`] brings what the client library writes into the same form.
//!
//! Source: "Exposition formats" of Prometheus' documentation.

use std::fmt::Write as _;

/// The media type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What kind of figure a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How often figures were up to each of some bounds.
    Histogram,
}

/// A text under way.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// Begins a family: its samples follow.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample, now.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.write(name, labels, value);
        self.0.push('\n');
    }

    /// A sample taken at a time, in milliseconds since 1970.
    pub fn sample_at(&mut self, name: &str, labels: &[(&str, &str)], value: f64, unix_millis: i64) {
        self.write(name, labels, value);
        let _ = writeln!(self.0, " {unix_millis}");
    }

    /// A family of one sample without labels.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Text in the same form from elsewhere.
    pub fn append(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// The text.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }

    fn write(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if index == 0 { '{' } else { ',' });
            for c in text.chars() {
                match c {
                    '\\' | '"' => self.0.extend(['\\', c]),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        let _ = write!(
            self.0,
            "{} {value}",
            if labels.is_empty() { "" } else { "}" }
        );
    }
}

/// OpenMetrics' text as Prometheus' own: counters are declared under the name of their samples,
/// nothing is said of labels where there are none, and there is no end mark.
pub(super) fn from_open_metrics(text: &str) -> String {
    let mut converted = String::with_capacity(text.len() + 256);
    let mut help: Option<(&str, &str)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let kind = if kind == "unknown" { "untyped" } else { kind };
            if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
                let _ = writeln!(converted, "# HELP {name}{suffix} {text}");
            }
            let _ = writeln!(converted, "# TYPE {name}{suffix} {kind}");
        } else if line != "# EOF" && !line.starts_with("# UNIT ") {
            match line
                .split_once('{')
                .map(|(name, rest)| (name, rest.strip_prefix('}')))
            {
                Some((name, Some(value))) => converted.extend([name, value]),
                _ => converted.push_str(line),
            }
            converted.push('\n');
        }
    }
    converted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_written_with_escaped_labels() {
        let mut out = Exposition::default();
        out.family("pods", Kind::Gauge, "Pods.");
        out.sample("pods", &[("a", "x\"y\\z\n"), ("b", "")], 3.0);
        out.sample_at("pods", &[], 0.25, 1_700_000_000_123);
        let expect = "# HELP pods Pods.\n# TYPE pods gauge\npods{a=\"x\\\"y\\\\z\\n\",b=\"\"} 3\npods 0.25 1700000000123\n";
        assert_eq!(out.finish(), expect);
    }

    #[test]
    fn counters_of_open_metrics_get_their_full_name() {
        let open = "# HELP a Things.\n# TYPE a counter\na_total{x=\"1\"} 2\n# HELP b B.\n# TYPE b gauge\n# UNIT b s\nb 1\n# EOF\n";
        let expect = "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\"} 2\n# HELP b B.\n# TYPE b gauge\nb 1\n";
        assert_eq!(from_open_metrics(open), expect);
    }
}
