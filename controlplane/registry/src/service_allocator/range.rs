//! A range of numbers of which the lower part is for those who choose theirs: others are drawn from
//! the upper part as long as there is one free. Pure.
//!
//! Source: `calculateRangeOffset` in `pkg/registry/core/service/{ipallocator,portallocator}` at
//! v1.37 (KEP-3070, KEP-3668).

/// Random draws before the range is searched.
const DRAWS: usize = 32;
/// The smallest lower part there is. A range of no more numbers has none.
const LEAST: u32 = 16;

/// Numbers that can be given out, both ends among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u32,
    pub(super) last: u32,
    /// So many from `first` on are drawn when all others are taken.
    pub(super) lower: u32,
}

/// How large the lower part of a range of `size` is: one of `step` numbers, [`LEAST`] and `most` at
/// the outside.
pub(super) fn lower(size: u32, step: u32, most: u32) -> u32 {
    match size {
        0..=LEAST => 0,
        _ => (size / step).clamp(LEAST, most),
    }
}

impl Range {
    /// One that is free, from the upper part first.
    pub(super) fn draw(self, is_free: impl Fn(u32) -> bool) -> Option<u32> {
        let size = self.last.checked_sub(self.first)? + 1;
        draw(self.first + self.lower, size - self.lower, &is_free)
            .or_else(|| draw(self.first, self.lower, &is_free))
    }
}

/// One of `size` numbers from `first` on that is free: by chance, or found from a place on that is
/// by chance, so that many who draw the last ones at the same time do not all draw the same.
fn draw(first: u32, size: u32, is_free: impl Fn(u32) -> bool) -> Option<u32> {
    let offset = || rand::random::<u32>().checked_rem(size);
    let start = offset()?;
    let by_chance = (0..DRAWS).filter_map(|_| Some(first + offset()?));
    let in_order = (0..size).map(|step| first + (start + step) % size);
    by_chance.chain(in_order).find(|number| is_free(*number))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_lower_part_is_upstreams() {
        for (size, step, most, expected) in [
            (16, 16, 256, 0),
            (17, 16, 256, 16),
            (256, 16, 256, 16),
            (1024, 16, 256, 64),
            (1 << 20, 16, 256, 256),
            (16, 32, 128, 0),
            (20, 32, 128, 16),
            (2768, 32, 128, 86),
            (64_512, 32, 128, 128),
        ] {
            assert_eq!(lower(size, step, most), expected, "{size} by {step}");
        }
    }

    #[test]
    fn the_lower_part_is_drawn_from_last() {
        let range = Range {
            first: 100,
            last: 119,
            lower: 16,
        };
        let mut drawn = BTreeSet::new();
        while let Some(number) = range.draw(|number| !drawn.contains(&number)) {
            assert!(
                number >= 116 || drawn.len() >= 4,
                "{number} after {drawn:?}"
            );
            drawn.insert(number);
        }
        assert!(drawn.into_iter().eq(100..=119));
    }

    #[test]
    fn nothing_is_drawn_from_nothing() {
        for last in [99, 50] {
            let range = Range {
                first: 100,
                last,
                lower: 0,
            };
            assert_eq!(range.draw(|_| true), None);
        }
    }
}
