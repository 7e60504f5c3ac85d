//! From the least to the most: of a size or of a cost.

/// From `min` to `max`. Sums and products stop at the largest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

impl Range {
    /// Anything.
    pub const UNKNOWN: Self = Self {
        min: 0,
        max: u64::MAX,
    };

    /// Just that.
    pub const fn fixed(number: u64) -> Self {
        Self {
            min: number,
            max: number,
        }
    }

    /// What any other is joined to; nothing at all if there will be none.
    pub(crate) fn none(empty: bool) -> Self {
        Self {
            min: if empty { 0 } else { u64::MAX },
            max: 0,
        }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn multiply(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(crate) fn factor(self, by: f64) -> Self {
        Self {
            min: factor(self.min, by),
            max: factor(self.max, by),
        }
    }

    /// A tenth: what walking along a text costs.
    pub(crate) fn walked(self) -> Self {
        self.factor(0.1)
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// A tenth for each character, rounded up: upstream's cost of walking along a text.
pub(crate) fn traversal(size: u64) -> u64 {
    factor(size, 0.1)
}

/// A part of a number, rounded up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "upstream computes in doubles; the cast saturates"
)]
pub(crate) fn factor(size: u64, factor: f64) -> u64 {
    let exact = size as f64 * factor;
    // Not `ceil`: it is a call, and this is asked for every text that is compared.
    let whole = exact as u64;
    whole.saturating_add(u64::from(exact > whole as f64))
}
