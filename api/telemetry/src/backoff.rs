//! How long to wait before the next try: twice as long each time, up to a bound.
//!
//! No clock and no sleep here: the caller waits, beside whatever else may wake it.

use std::time::Duration;

/// The pauses of one kind of try: `first`, then twice the one before, at most `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExponentialBackoff {
    first: Duration,
    most: Duration,
}

impl ExponentialBackoff {
    /// From `first` to `most`; `first` where that is longer.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most }
    }

    /// The pause after so many `failures`, the first counted as 0. For schedules that are promised
    /// to the second, and for whoever keeps the count himself.
    #[must_use]
    pub fn after(self, failures: u32) -> Duration {
        // Beyond 2^31 nothing doubles that is not at its bound.
        self.first
            .saturating_mul(1 << failures.min(31))
            .min(self.most.max(self.first))
    }

    /// Half to the whole of [`ExponentialBackoff::after`], by chance: what failed together does not
    /// come back together.
    #[must_use]
    pub fn jittered_after(self, failures: u32) -> Duration {
        self.after(failures)
            .mul_f64(1.0 - 0.5 * rand::random::<f64>())
    }
}

/// The pauses of one who tries again and again, jittered.
#[derive(Debug, Clone)]
pub struct Backoff {
    pauses: ExponentialBackoff,
    failures: u32,
}

impl Backoff {
    /// As [`ExponentialBackoff::new`]. Pauses are half to the whole of `first`, twice that...,
    /// `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self::of(ExponentialBackoff::new(first, most))
    }

    /// With pauses that are a constant elsewhere.
    pub const fn of(pauses: ExponentialBackoff) -> Self {
        Self {
            pauses,
            failures: 0,
        }
    }

    /// Counts a failure and says how long to wait after it.
    pub fn pause(&mut self) -> Duration {
        let pause = self.pauses.jittered_after(self.failures);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// It went well: the next failure is the first.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last that went well.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_up_to_their_bound() {
        let pauses = ExponentialBackoff::new(50 * MS, 300 * MS);
        let table = [
            (0, 50),
            (1, 100),
            (2, 200),
            (3, 300),
            (31, 300),
            (u32::MAX, 300),
        ];
        for (failures, expected) in table {
            assert_eq!(pauses.after(failures), expected * MS, "after {failures}");
        }
        assert_eq!(
            ExponentialBackoff::new(500 * MS, 300 * MS).after(7),
            500 * MS
        );
    }

    #[test]
    fn jitter_takes_at_most_half_and_adds_nothing() {
        let mut backoff = Backoff::new(100 * MS, 400 * MS);
        for round in 0..50 {
            for whole in [100, 200, 400, 400] {
                let pause = backoff.pause();
                assert!(
                    pause >= whole * MS / 2 && pause <= whole * MS,
                    "{pause:?} of {whole} ms in round {round}"
                );
            }
            backoff.reset();
        }
    }

    #[test]
    fn two_that_fail_together_come_back_apart() {
        let mut pauses: Vec<Duration> = (0..20)
            .map(|_| Backoff::new(1000 * MS, 1000 * MS).pause())
            .collect();
        pauses.sort();
        pauses.dedup();
        assert!(pauses.len() > 1);
    }
}
