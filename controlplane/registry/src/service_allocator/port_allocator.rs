//! Ports of nodes: of which range, which of it a Service gets.
//!
//! Source: `pkg/registry/core/service/portallocator/allocator.go` at v1.37.

use std::{collections::BTreeSet, ops::RangeInclusive};

use super::{
    allocation::Allocation,
    claims::Claims,
    range::{self, Range},
};

const STEP: u32 = 32;
const MOST: u32 = 128;

/// The range of a cluster.
#[derive(Debug, Clone)]
pub(super) struct PortAllocator {
    ports: RangeInclusive<u16>,
}

/// Why a Service does not get a port, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PortError {
    #[error("range is full")]
    Full,
    #[error("provided port is already allocated")]
    Allocated,
    #[error("provided port is not in the valid range. The range of valid ports is {range}")]
    NotInRange { range: String },
}

impl PortAllocator {
    pub(super) fn new(ports: RangeInclusive<u16>) -> Self {
        Self { ports }
    }

    /// Such as `30000-32767`.
    pub(super) fn text(&self) -> String {
        format!("{}-{}", self.ports.start(), self.ports.end())
    }

    pub(super) fn contains(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// Gives the port that was chosen, unless the Service has it itself.
    ///
    /// # Errors
    /// All but [`PortError::Full`].
    pub(super) fn allocate(&self, asked: i64, claims: &mut Claims<'_>) -> Result<(), PortError> {
        let port = u16::try_from(asked)
            .ok()
            .filter(|port| self.contains(*port));
        let port = port.ok_or_else(|| PortError::NotInRange { range: self.text() })?;
        if !claims.is_free(Allocation::Port(port)) {
            return Err(PortError::Allocated);
        }
        claims.take(Allocation::Port(port));
        Ok(())
    }

    /// Gives any port but those that somebody has `chosen`.
    ///
    /// # Errors
    /// [`PortError::Full`].
    pub(super) fn allocate_next(
        &self,
        chosen: &BTreeSet<i64>,
        claims: &mut Claims<'_>,
    ) -> Result<u16, PortError> {
        let is_free = |number: u32| {
            !chosen.contains(&i64::from(number))
                && u16::try_from(number).is_ok_and(|port| claims.is_free(Allocation::Port(port)))
        };
        let drawn = self.range().draw(is_free);
        let drawn = drawn.and_then(|number| u16::try_from(number).ok());
        let drawn = drawn.ok_or(PortError::Full)?;
        claims.take(Allocation::Port(drawn));
        Ok(drawn)
    }

    fn range(&self) -> Range {
        let (first, last) = (u32::from(*self.ports.start()), u32::from(*self.ports.end()));
        let size = (last + 1).saturating_sub(first);
        Range {
            first,
            last,
            lower: range::lower(size, STEP, MOST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_default_range_86_ports_are_for_those_who_choose() {
        let range = PortAllocator::new(30000..=32767).range();
        assert_eq!(range.first + range.lower, 30086);
    }
}
