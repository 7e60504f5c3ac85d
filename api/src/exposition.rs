//! Prometheus' text form (version 0.0.4), for figures that are gathered when somebody asks.
//!
//! [`Registry`] keeps the few figures of a small part; the API server's many are a client library's, and
//! [`from_open_metrics`] brings what such a library writes into the same form.
//!
//! Source: "Exposition formats" of Prometheus' documentation.

mod registry;

use std::fmt::Write as _;

pub use registry::{Family, Registry, Times};

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
        let _ = write!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

/// OpenMetrics' text as Prometheus' own: counters are declared under the name of their samples, and there is no end mark.
#[must_use]
pub fn from_open_metrics(text: &str) -> String {
    let mut converted = String::with_capacity(text.len() + 256);
    let mut help: Option<(&str, &str)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let kind = if kind == "unknown" { "untyped" } else { kind };
            if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
                let _ = writeln!(converted, "# HELP {name}{suffix} {text}");
            }
            let _ = writeln!(converted, "# TYPE {name}{suffix} {kind}");
        } else if line != "# EOF" && !line.starts_with("# UNIT ") {
            converted.push_str(line);
            converted.push('\n');
        }
    }
    converted
}

/// What a process uses.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessFigures {
    /// User and system time.
    pub cpu_seconds: f64,
    /// Memory in RAM.
    pub resident_bytes: f64,
    /// Address space.
    pub virtual_bytes: f64,
    /// Start, in seconds since 1970.
    pub start_unix_seconds: f64,
    /// Threads.
    pub threads: f64,
    /// File descriptors, as counted by the caller.
    pub open_fds: f64,
    /// As many as it may have.
    pub max_fds: f64,
}

impl ProcessFigures {
    /// From the texts of `stat`, `status` and `limits` below `/proc/self`, and `/proc/stat`. The kernel counts in
    /// hundredths of a second there.
    #[must_use]
    pub fn parse([stat, status, limits, system]: [&str; 4], open_fds: u32) -> Self {
        const TICKS: f64 = 100.0;
        // The name before it may contain anything.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        // Numbered as in proc(5), where the state is the third.
        let field =
            |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
        let start = |line: &str, name: &str| {
            let rest = line.strip_prefix(name)?;
            rest.split_whitespace().next()?.parse::<f64>().ok()
        };
        let booted = system.lines().find_map(|line| start(line, "btime ")).unwrap_or_default();
        let kib = |name| status.lines().find_map(|line| start(line, name)).unwrap_or_default();
        let max_fds = limits.lines().find_map(|line| start(line, "Max open files")).unwrap_or_default();
        Self {
            cpu_seconds: (field(14) + field(15)) / TICKS,
            resident_bytes: kib("VmRSS:") * 1024.0,
            virtual_bytes: kib("VmSize:") * 1024.0,
            start_unix_seconds: booted + field(22) / TICKS,
            threads: field(20),
            open_fds: f64::from(open_fds),
            max_fds,
        }
    }

    /// Under the names that every client library has.
    pub fn write(&self, out: &mut Exposition) {
        let gauge = Kind::Gauge;
        let cpu = "Total user and system CPU time spent in seconds.";
        out.single("process_cpu_seconds_total", Kind::Counter, cpu, self.cpu_seconds);
        out.single("process_max_fds", gauge, "Maximum number of open file descriptors.", self.max_fds);
        out.single("process_open_fds", gauge, "Number of open file descriptors.", self.open_fds);
        out.single("process_resident_memory_bytes", gauge, "Resident memory size in bytes.", self.resident_bytes);
        let start = "Start time of the process since unix epoch in seconds.";
        out.single("process_start_time_seconds", gauge, start, self.start_unix_seconds);
        out.single("process_threads", gauge, "Number of threads.", self.threads);
        out.single("process_virtual_memory_bytes", gauge, "Virtual memory size in bytes.", self.virtual_bytes);
    }
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
        let expect =
            "# HELP pods Pods.\n# TYPE pods gauge\npods{a=\"x\\\"y\\\\z\\n\",b=\"\"} 3\npods 0.25 1700000000123\n";
        assert_eq!(out.finish(), expect);
    }

    #[test]
    fn counters_of_open_metrics_get_their_full_name() {
        let open = "# HELP a Things.\n# TYPE a counter\na_total{x=\"1\"} 2\n# HELP b B.\n# TYPE b gauge\n# UNIT b s\nb 1\n# EOF\n";
        let expect =
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\"} 2\n# HELP b B.\n# TYPE b gauge\nb 1\n";
        assert_eq!(from_open_metrics(open), expect);
    }

    #[test]
    fn process_figures_come_from_the_kernels_texts() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 4 0 1000 8192000 25 18446744073709551615";
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 524288               files\n";
        let status = "Name:\ta b) c\nVmSize:\t    8000 kB\nVmRSS:\t     100 kB\n";
        let found = ProcessFigures::parse([stat, status, limits, "cpu 1 2\nbtime 1700000000\n"], 9);
        let expect = ProcessFigures {
            cpu_seconds: 2.0,
            resident_bytes: 102_400.0,
            virtual_bytes: 8_192_000.0,
            start_unix_seconds: 1_700_000_010.0,
            threads: 4.0,
            open_fds: 9.0,
            max_fds: 1024.0,
        };
        assert_eq!(found, expect);
    }
}
