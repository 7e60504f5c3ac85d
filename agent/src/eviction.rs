//! Eviction thresholds: how little of the machine may be left before the node is under pressure.
//!
//! Named and written as upstream's: `memory.available<100Mi,nodefs.available<10%`. Pure; what is left is read in
//! [`signals`], and what pressure means for the node is in `node::health`.
//!
//! Source: `pkg/kubelet/eviction/api/types.go`, `pkg/kubelet/apis/config/v1beta1/defaults_linux.go` at v1.37.

pub(crate) mod signals;

use std::{fmt, str::FromStr};

use coracle_api::quantity::Quantity;

/// What upstream's kubelet on Linux begins with.
pub const DEFAULT_HARD: &str =
    "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%";

/// Something that can run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Memory not in use, or used by files that nobody has touched lately.
    MemoryAvailable,
    /// Bytes free where pods write.
    NodefsAvailable,
    /// Inodes free there.
    NodefsInodesFree,
    /// Bytes free where images are.
    ImagefsAvailable,
    /// Inodes free there.
    ImagefsInodesFree,
    /// Process IDs free.
    PidAvailable,
}

impl Signal {
    const ALL: [(Self, &'static str); 6] = [
        (Self::MemoryAvailable, "memory.available"),
        (Self::NodefsAvailable, "nodefs.available"),
        (Self::NodefsInodesFree, "nodefs.inodesFree"),
        (Self::ImagefsAvailable, "imagefs.available"),
        (Self::ImagefsInodesFree, "imagefs.inodesFree"),
        (Self::PidAvailable, "pid.available"),
    ];

    /// The condition of the node that follows.
    pub(crate) fn pressure(self) -> Pressure {
        match self {
            Self::MemoryAvailable => Pressure::Memory,
            Self::PidAvailable => Pressure::Pid,
            _ => Pressure::Disk,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(signal, _)| signal == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// What a node can be short of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Pressure {
    Memory,
    Disk,
    Pid,
}

/// How little is too little.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    /// Bytes, inodes or processes.
    Absolute(u64),
    /// Per cent of all there are.
    Percent(f64),
}

/// One line of `--eviction-hard`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Threshold {
    signal: Signal,
    limit: Limit,
}

/// What must be left, in the form of `--eviction-hard`; empty means that nothing is pressure.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds(Vec<Threshold>);

impl Default for Thresholds {
    fn default() -> Self {
        DEFAULT_HARD.parse().expect("the default is well-formed")
    }
}

/// A text that is no list of thresholds.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{part:?}: expected SIGNAL<QUANTITY or SIGNAL<PERCENT%, such as memory.available<100Mi or nodefs.available<10%"
)]
pub struct ThresholdError {
    /// The part that cannot be read.
    pub part: String,
}

impl FromStr for Thresholds {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts
            .map(|part| parse(part).ok_or_else(|| ThresholdError { part: part.to_owned() }))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn parse(part: &str) -> Option<Threshold> {
    let (name, limit) = part.split_once('<')?;
    let (signal, _) = Signal::ALL.into_iter().find(|(_, known)| *known == name.trim())?;
    let limit = match limit.trim().strip_suffix('%') {
        Some(percent) => Limit::Percent(percent.parse().ok().filter(|percent: &f64| (0.0..=100.0).contains(percent))?),
        None => Limit::Absolute(u64::try_from(limit.trim().parse::<Quantity>().ok()?.value()).ok()?),
    };
    Some(Threshold { signal, limit })
}

/// What is left of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Supply {
    pub(crate) signal: Signal,
    pub(crate) available: u64,
    pub(crate) capacity: u64,
}

impl Thresholds {
    /// Of which things too little is left. What could not be observed is no pressure.
    pub(crate) fn met(&self, observed: &[Supply]) -> Vec<Supply> {
        let is_met = |supply: &&Supply| {
            supply.capacity > 0
                && self.0.iter().filter(|threshold| threshold.signal == supply.signal).any(|threshold| match threshold
                    .limit
                {
                    Limit::Absolute(limit) => supply.available < limit,
                    Limit::Percent(percent) => percent_left(supply) < percent,
                })
        };
        observed.iter().filter(is_met).copied().collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share of so much needs no last digit")]
fn percent_left(supply: &Supply) -> f64 {
    supply.available as f64 / supply.capacity as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supply(signal: Signal, available: u64, capacity: u64) -> Supply {
        Supply { signal, available, capacity }
    }

    #[test]
    fn thresholds_are_read_as_upstream_writes_them() {
        let read = |text: &str| text.parse::<Thresholds>();
        assert_eq!(read("").unwrap(), Thresholds(Vec::new()));
        let one = |signal, limit| Thresholds(vec![Threshold { signal, limit }]);
        let cases = [
            ("memory.available<100Mi", one(Signal::MemoryAvailable, Limit::Absolute(100 << 20))),
            (" nodefs.available < 10% ", one(Signal::NodefsAvailable, Limit::Percent(10.0))),
            ("pid.available<1k", one(Signal::PidAvailable, Limit::Absolute(1000))),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
        for text in ["memory.available", "memory.available>1Gi", "memory<1Gi", "nodefs.available<101%", "a.b<-1"] {
            assert_eq!(read(text).unwrap_err().part, text);
        }
        assert_eq!(Thresholds::default().0.len(), 5);
    }

    #[test]
    fn only_what_is_below_its_threshold_is_pressure() {
        let observed = [
            supply(Signal::MemoryAvailable, 99 << 20, 1 << 30),
            supply(Signal::NodefsAvailable, 10, 100),
            supply(Signal::NodefsInodesFree, 4, 100),
            supply(Signal::ImagefsAvailable, 0, 0),
            supply(Signal::PidAvailable, 0, 100),
        ];
        let met: Vec<Signal> = Thresholds::default().met(&observed).iter().map(|supply| supply.signal).collect();
        assert_eq!(met, [Signal::MemoryAvailable, Signal::NodefsInodesFree]);
    }
}
