//! What an evaluation may cost, and what it has.

use crate::{patterns::Patterns, value::EvalError};

/// How much an evaluation may do that upstream's costs do not count: elements that are copied and
/// compared. It is what keeps values that are in themselves many times from being walked for ever.
const MAX_WORK: u64 = 10_000_000;

/// How many steps of loops go by between two looks at whether to go on.
const INTERRUPT_EVERY: u32 = 100;

const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

/// Counts what an evaluation costs, in upstream's units, and ends it at a limit.
pub struct Meter<'a> {
    cost: u64,
    limit: u64,
    work: u64,
    most_work: u64,
    steps: u32,
    interrupted: Option<&'a dyn Fn() -> bool>,
    pub(crate) patterns: Patterns,
}

impl<'a> Meter<'a> {
    /// That ends an evaluation when it costs more than `limit`.
    pub fn new(limit: u64) -> Self {
        Self {
            cost: 0,
            limit,
            work: 0,
            most_work: MAX_WORK,
            steps: 0,
            interrupted: None,
            patterns: Patterns::default(),
        }
    }

    /// Asks, every hundred steps of loops, whether to end the evaluation.
    #[must_use]
    pub fn interrupt(mut self, interrupted: &'a dyn Fn() -> bool) -> Self {
        self.interrupted = Some(interrupted);
        self
    }

    /// Ends an evaluation also when it does more than `most` of what costs do not see.
    #[must_use]
    pub fn work_at_most(mut self, most: u64) -> Self {
        self.most_work = self.most_work.min(most);
        self
    }

    /// What was done of what costs do not see.
    pub fn worked(&self) -> u64 {
        self.work
    }

    /// What was counted.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    #[inline]
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            return Err(EvalError::cancelled(EXCEEDED));
        }
        Ok(())
    }

    /// Whether something that will cost so much may begin.
    pub(crate) fn affordable(&mut self, cost: u64) -> Result<(), EvalError> {
        if self.cost.saturating_add(cost) > self.limit {
            return Err(EvalError::cancelled(EXCEEDED));
        }
        self.work(usize::try_from(cost).unwrap_or(usize::MAX))
    }

    #[inline]
    pub(crate) fn work(&mut self, work: usize) -> Result<(), EvalError> {
        self.work = self.work.saturating_add(work as u64);
        if self.work > self.most_work {
            return Err(EvalError::cancelled(EXCEEDED));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn step(&mut self) -> Result<(), EvalError> {
        self.steps += 1;
        if self.steps < INTERRUPT_EVERY {
            return self.work(1);
        }
        self.steps = 0;
        if self.interrupted.is_some_and(|interrupted| interrupted()) {
            return Err(EvalError::cancelled("operation interrupted"));
        }
        self.work(1)
    }
}
