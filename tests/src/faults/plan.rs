//! Rounds of faults, drawn from a seed: the same seed gives the same rounds.

use std::time::Duration;

/// Seconds of a round that outlives a Lease (15 s, and up to 4.4 s until others look again).
const LONG: u64 = 22;
/// Every how many rounds one is long.
const LONG_EVERY: usize = 5;

/// Numbers that a seed decides: `SplitMix64`, good enough to draw faults and small enough to be
/// read.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.any() % end.max(1)
    }

    /// An index of something with so many parts.
    pub fn index(&mut self, count: usize) -> usize {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        usize::try_from(self.below(count)).unwrap_or_default()
    }
}

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The server of a machine.
    Server,
    /// Its member of etcd.
    Etcd,
    /// Both.
    Machine,
}

/// How it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL; started again at the end.
    Kill,
    /// SIGSTOP; SIGCONT at the end.
    Stop,
    /// Its packets are dropped.
    Cut(Way),
}

/// Which packets are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// All.
    Both,
    /// Those that come to it.
    In,
    /// Those that it sends.
    Out,
}

/// A round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Which of the machines.
    pub machine: usize,
    /// What of it.
    pub part: Part,
    /// How it fails.
    pub fault: Fault,
    /// For how long.
    pub lasts: Duration,
}

const PARTS: [Part; 3] = [Part::Server, Part::Etcd, Part::Machine];
const FAULTS: [Fault; 5] = [
    Fault::Kill,
    Fault::Stop,
    Fault::Cut(Way::Both),
    Fault::Cut(Way::In),
    Fault::Cut(Way::Out),
];

impl Round {
    /// Whether it outlives a Lease, and hinders who leads from renewing it: another leads then.
    pub fn ends_leading(&self) -> bool {
        self.lasts.as_secs() >= LONG && hinders_leading(self.part, self.fault)
    }
}

/// A server that only clients cannot reach goes on leading.
fn hinders_leading(part: Part, fault: Fault) -> bool {
    match part {
        Part::Server => !matches!(fault, Fault::Cut(_)),
        Part::Etcd => false,
        Part::Machine => true,
    }
}

/// So many rounds. Each fault of each part comes once before one comes again. Long are, as far as
/// there are any, those that hinder who leads; the first of them stops it, and lets it go on as
/// somebody who has led.
pub fn rounds(seed: u64, count: usize, machines: usize) -> Vec<Round> {
    let mut random = Random::new(seed);
    let mut deck: Vec<(Part, Fault)> = Vec::new();
    (0..count)
        .map(|number| {
            if deck.is_empty() {
                deck = PARTS
                    .iter()
                    .flat_map(|part| FAULTS.iter().map(|fault| (*part, *fault)))
                    .collect();
            }
            let is_long = number % LONG_EVERY == LONG_EVERY - 1;
            let mut drawn = random.index(deck.len());
            if is_long {
                let is_first = number < LONG_EVERY;
                let next = |wanted: fn(&Fault) -> bool| {
                    let mut indexes = (0..deck.len()).map(|next| (drawn + next) % deck.len());
                    indexes.find(|index| {
                        let (part, fault) = deck[*index];
                        hinders_leading(part, fault) && wanted(&fault)
                    })
                };
                let stops = next(|fault| *fault == Fault::Stop).filter(|_| is_first);
                drawn = stops.or_else(|| next(|_| true)).unwrap_or(drawn);
            }
            let (part, fault) = deck.swap_remove(drawn);
            Round {
                machine: random.index(machines),
                part,
                fault,
                lasts: match is_long {
                    true => Duration::from_secs(LONG),
                    false => Duration::from_millis(500 + random.below(4500)),
                },
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_rounds_again() {
        assert_eq!(rounds(7, 40, 3), rounds(7, 40, 3));
        assert_ne!(rounds(7, 40, 3), rounds(8, 40, 3));
    }

    #[test]
    fn every_fault_of_every_part_has_its_turn() {
        let rounds = rounds(1, 15, 3);
        for part in PARTS {
            for fault in FAULTS {
                let found = rounds
                    .iter()
                    .filter(|round| (round.part, round.fault) == (part, fault));
                assert_eq!(found.count(), 1, "{part:?} {fault:?}");
            }
        }
        assert!(rounds[4].ends_leading(), "{:?}", rounds[4]);
    }
}
