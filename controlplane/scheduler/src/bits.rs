//! Some of many things, by number.

use std::ops::Range;

/// A set of numbers below a bound, one bit each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// None of so many.
    pub(crate) fn none(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// All of so many.
    pub(crate) fn all(len: usize) -> Self {
        let mut all = Self::none(len);
        all.insert_range(0..len);
        all
    }

    pub(crate) fn insert(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub(crate) fn insert_range(&mut self, numbers: Range<usize>) {
        let mut next = numbers.start;
        while next < numbers.end {
            let (bit, word) = (next % 64, next / 64);
            let count = (64 - bit).min(numbers.end - next);
            self.0[word] |= (u64::MAX >> (64 - count)) << bit;
            next += count;
        }
    }

    pub(crate) fn remove(&mut self, number: usize) {
        self.0[number / 64] &= !(1 << (number % 64));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Adds what `other` has.
    pub(crate) fn unite(&mut self, other: &Self) {
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(own, other)| *own |= other);
    }

    /// Keeps what `other` has, too.
    pub(crate) fn intersect(&mut self, other: &Self) {
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(own, other)| *own &= other);
    }

    /// Drops what `other` has.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(own, other)| *own &= !other);
    }

    pub(crate) fn contains(&self, number: usize) -> bool {
        self.0[number / 64] & (1 << (number % 64)) != 0
    }

    /// The numbers, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn bits(numbers: &BTreeSet<usize>) -> Bits {
        let mut bits = Bits::none(200);
        numbers.iter().for_each(|number| bits.insert(*number));
        bits
    }

    proptest! {
        #[test]
        fn they_are_a_set(
            one in proptest::collection::btree_set(0..200_usize, 0..20),
            other in proptest::collection::btree_set(0..200_usize, 0..20),
            range in (0..200_usize, 0..200_usize),
        ) {
            let changed = |change: fn(&mut Bits, &Bits)| {
                let mut changed = bits(&one);
                change(&mut changed, &bits(&other));
                changed.iter().collect::<BTreeSet<_>>()
            };
            prop_assert_eq!(changed(Bits::unite), &one | &other);
            prop_assert_eq!(changed(Bits::intersect), &one & &other);
            prop_assert_eq!(changed(Bits::subtract), &one - &other);
            prop_assert_eq!(bits(&one).is_empty(), one.is_empty());
            let mut with_range = bits(&one);
            with_range.insert_range(range.0..range.1.max(range.0));
            prop_assert_eq!(with_range.iter().collect::<BTreeSet<_>>(), &one | &(range.0..range.1.max(range.0)).collect());
        }
    }
}
