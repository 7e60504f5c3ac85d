//! What a process uses, under the names that every client library has.

use std::fs;

use super::{Exposition, Kind};

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
    /// Of this process. What cannot be read is 0.
    #[must_use]
    pub fn own() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let fds = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let [stat, status, limits, system] = [
            "/proc/self/stat",
            "/proc/self/status",
            "/proc/self/limits",
            "/proc/stat",
        ]
        .map(read);
        Self::parse(
            [&stat, &status, &limits, &system],
            u32::try_from(fds).unwrap_or(u32::MAX),
        )
    }

    /// From the texts of `stat`, `status` and `limits` below `/proc/self`, and `/proc/stat`. The
    /// kernel counts in hundredths of a second there.
    fn parse([stat, status, limits, system]: [&str; 4], open_fds: u32) -> Self {
        const TICKS: f64 = 100.0;
        // The name before it may contain anything.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .collect();
        // Numbered as in proc(5), where the state is the third.
        let field = |number: usize| {
            fields
                .get(number - 3)
                .and_then(|text| text.parse::<f64>().ok())
                .unwrap_or_default()
        };
        let start = |line: &str, name: &str| {
            let rest = line.strip_prefix(name)?;
            rest.split_whitespace().next()?.parse::<f64>().ok()
        };
        let booted = system
            .lines()
            .find_map(|line| start(line, "btime "))
            .unwrap_or_default();
        let kib = |name| {
            status
                .lines()
                .find_map(|line| start(line, name))
                .unwrap_or_default()
        };
        let max_fds = limits
            .lines()
            .find_map(|line| start(line, "Max open files"))
            .unwrap_or_default();
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
        out.single(
            "process_cpu_seconds_total",
            Kind::Counter,
            cpu,
            self.cpu_seconds,
        );
        out.single(
            "process_max_fds",
            gauge,
            "Maximum number of open file descriptors.",
            self.max_fds,
        );
        out.single(
            "process_open_fds",
            gauge,
            "Number of open file descriptors.",
            self.open_fds,
        );
        out.single(
            "process_resident_memory_bytes",
            gauge,
            "Resident memory size in bytes.",
            self.resident_bytes,
        );
        let start = "Start time of the process since unix epoch in seconds.";
        out.single(
            "process_start_time_seconds",
            gauge,
            start,
            self.start_unix_seconds,
        );
        out.single("process_threads", gauge, "Number of threads.", self.threads);
        out.single(
            "process_virtual_memory_bytes",
            gauge,
            "Virtual memory size in bytes.",
            self.virtual_bytes,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
