//! Pressure stall information: which part of the time work stood still for want of CPU, memory or
//! I/O.
//!
//! Absent (`None`) on kernels without it, or where it is switched off at boot.
//!
//! Source: the kernel's `Documentation/accounting/psi.rst`.

use std::{fs, path::Path};

/// Something work can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Cpu,
    Memory,
    Io,
}

/// One line: per cent of the last 10, 60 and 300 seconds, and microseconds altogether.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Stall {
    pub(crate) avg10: f64,
    pub(crate) avg60: f64,
    pub(crate) avg300: f64,
    pub(crate) total_micros: u64,
}

/// The time in which some tasks, and in which all of them, stood still.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Psi {
    pub(crate) some: Stall,
    pub(crate) full: Stall,
}

/// Of the whole machine.
pub(crate) fn of_machine(resource: Resource) -> Option<Psi> {
    let name = match resource {
        Resource::Cpu => "cpu",
        Resource::Memory => "memory",
        Resource::Io => "io",
    };
    parse(&fs::read_to_string(Path::new("/proc/pressure").join(name)).ok()?)
}

fn parse(text: &str) -> Option<Psi> {
    let line = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(stall)
    };
    // Kernels before 5.13 have no `full` for CPU.
    Some(Psi {
        some: line("some ")?,
        full: line("full ").unwrap_or_default(),
    })
}

fn stall(line: &str) -> Option<Stall> {
    let word = |name: &str| {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let share = |name| word(name)?.parse::<f64>().ok();
    Some(Stall {
        avg10: share("avg10")?,
        avg60: share("avg60")?,
        avg300: share("avg300")?,
        total_micros: word("total")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_read_and_the_second_may_be_missing() {
        let some = "some avg10=93.44 avg60=78.31 avg300=43.87 total=6009141479\n";
        let full = "full avg10=0.50 avg60=0.25 avg300=0.10 total=7\n";
        let psi = parse(&format!("{some}{full}")).unwrap();
        assert_eq!(
            psi.some,
            Stall {
                avg10: 93.44,
                avg60: 78.31,
                avg300: 43.87,
                total_micros: 6_009_141_479
            }
        );
        assert_eq!((psi.full.avg10, psi.full.total_micros), (0.5, 7));
        assert_eq!(parse(some).unwrap().full, Stall::default());
        assert_eq!(parse("nonsense"), None);
    }
}
