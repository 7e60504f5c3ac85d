//! Eviction: how little of the machine may be left before the node is under pressure, and who goes
//! then.
//!
//! Here are the thresholds (pure), named and written as upstream's:
//! `memory.available<100Mi,nodefs.available<10%`. What is left is read in `signals`; what pressure
//! means for the node is in `node::health`, and for its pods in `manager`.
//!
//! Source: `pkg/kubelet/eviction/api/types.go`, `pkg/kubelet/apis/config/v1beta1/defaults_linux.go`
//! at v1.37.

pub(crate) mod local_storage;
pub(crate) mod manager;
pub(crate) mod ranking;
pub(crate) mod signals;
mod usage;

use std::{fmt, str::FromStr};

use coracle_api::quantity::Quantity;

/// What upstream's kubelet on Linux begins with.
pub const DEFAULT_HARD: &str = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%";

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
        let name = Self::ALL
            .iter()
            .find(|(signal, _)| signal == self)
            .map_or("", |(_, name)| name);
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

impl Limit {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of so much needs no last digit, and is never negative"
    )]
    fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Absolute(limit) => limit,
            Self::Percent(percent) => (capacity as f64 * percent / 100.0) as u64,
        }
    }
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
        let parts = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty());
        parts
            .map(|part| {
                parse(part).ok_or_else(|| ThresholdError {
                    part: part.to_owned(),
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn parse(part: &str) -> Option<Threshold> {
    let (name, limit) = part.split_once('<')?;
    let (signal, _) = Signal::ALL
        .into_iter()
        .find(|(_, known)| *known == name.trim())?;
    let limit = match limit.trim().strip_suffix('%') {
        Some(percent) => Limit::Percent(
            percent
                .parse()
                .ok()
                .filter(|percent: &f64| (0.0..=100.0).contains(percent))?,
        ),
        None => {
            Limit::Absolute(u64::try_from(limit.trim().parse::<Quantity>().ok()?.value()).ok()?)
        }
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

/// Too little of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) supply: Supply,
    /// As much should be left, in the unit of the supply.
    pub(crate) threshold: u64,
}

impl Thresholds {
    /// How much of `capacity` is to stay free.
    pub(crate) fn kept_free(&self, signal: Signal, capacity: u64) -> u64 {
        let own = self.0.iter().filter(|threshold| threshold.signal == signal);
        own.map(|threshold| threshold.limit.of(capacity))
            .max()
            .unwrap_or(0)
    }

    /// Of which things too little is left. What could not be observed is no pressure.
    pub(crate) fn met(&self, observed: &[Supply]) -> Vec<Shortage> {
        let shortage = |supply: &Supply| {
            let own = self
                .0
                .iter()
                .filter(|threshold| threshold.signal == supply.signal);
            let threshold = own
                .map(|threshold| threshold.limit.of(supply.capacity))
                .max()?;
            (supply.capacity > 0 && supply.available < threshold).then_some(Shortage {
                supply: *supply,
                threshold,
            })
        };
        observed.iter().filter_map(shortage).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supply(signal: Signal, available: u64, capacity: u64) -> Supply {
        Supply {
            signal,
            available,
            capacity,
        }
    }

    #[test]
    fn thresholds_are_read_as_upstream_writes_them() {
        let read = |text: &str| text.parse::<Thresholds>();
        assert_eq!(read("").unwrap(), Thresholds(Vec::new()));
        let one = |signal, limit| Thresholds(vec![Threshold { signal, limit }]);
        let cases = [
            (
                "memory.available<100Mi",
                one(Signal::MemoryAvailable, Limit::Absolute(100 << 20)),
            ),
            (
                " nodefs.available < 10% ",
                one(Signal::NodefsAvailable, Limit::Percent(10.0)),
            ),
            (
                "pid.available<1k",
                one(Signal::PidAvailable, Limit::Absolute(1000)),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
        for text in [
            "memory.available",
            "memory.available>1Gi",
            "memory<1Gi",
            "nodefs.available<101%",
            "a.b<-1",
        ] {
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
        let met = Thresholds::default().met(&observed);
        let expected = [
            Shortage {
                supply: observed[0],
                threshold: 100 << 20,
            },
            Shortage {
                supply: observed[2],
                threshold: 5,
            },
        ];
        assert_eq!(met, expected);
    }
}
