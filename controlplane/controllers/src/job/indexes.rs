//! Sets of completion indexes, as intervals and in their compressed text. Pure.
//!
//! A Job may have 100,000 indexes: a set takes as much as its text, and nothing here walks along
//! single indexes but of pods that there are.
//!
//! Source: `pkg/controller/job/indexed_job_utils.go` at v1.37.

use std::{collections::BTreeSet, fmt};

use crate::pod::Pod;

/// Annotation and label with a pod's index.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A set of indexes; its text is `1,3-5,7`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Indexes(
    /// First and last, both in it; in order, and with room between them.
    Vec<(u32, u32)>,
);

impl Indexes {
    /// Reads the text as far as it is below `completions`: a Job may be given fewer of them. What
    /// is no index is left out.
    pub(super) fn parse(text: &str, completions: u32) -> Self {
        let mut intervals: Vec<(u32, u32)> = Vec::new();
        for piece in text.split(',').filter(|piece| !piece.is_empty()) {
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
                continue;
            };
            if first < completions && first <= last {
                intervals.push((first, last.min(completions - 1)));
            }
        }
        Self::joined(intervals)
    }

    /// Sorts, and makes one of those that touch.
    fn joined(mut intervals: Vec<(u32, u32)>) -> Self {
        intervals.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// This and the others.
    pub(super) fn with(&self, others: impl IntoIterator<Item = u32>) -> Self {
        let others = others.into_iter().map(|index| (index, index));
        Self::joined(self.0.iter().copied().chain(others).collect())
    }

    /// What is in either.
    pub(super) fn merged(&self, other: &Self) -> Self {
        Self::joined(self.0.iter().chain(&other.0).copied().collect())
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(length).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many are in both.
    pub(super) fn common(&self, other: &Self) -> usize {
        let (mut mine, mut theirs, mut common) = (0, 0, 0);
        while let (Some(a), Some(b)) = (self.0.get(mine), other.0.get(theirs)) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                common += length(&(first, last));
            }
            mine += usize::from(a.1 <= b.1);
            theirs += usize::from(b.1 <= a.1);
        }
        common
    }

    /// Those below `completions` that are not in it, smallest first.
    pub(super) fn missing(&self, completions: u32) -> impl Iterator<Item = u32> {
        let starts =
            std::iter::once(0).chain(self.0.iter().map(|(_, last)| last.saturating_add(1)));
        let firsts = self.0.iter().map(|(first, _)| *first);
        let ends = firsts.chain([u32::MAX]);
        let gaps = starts.zip(ends);
        gaps.flat_map(move |(start, end)| start..end.min(completions))
    }
}

fn length((first, last): &(u32, u32)) -> usize {
    usize::try_from(last - first).map_or(usize::MAX, |steps| steps.saturating_add(1))
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// The index a pod works on.
pub(super) fn of_pod(pod: &Pod) -> Option<u32> {
    pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok()
}

/// The indexes that pods work on.
pub(super) fn of_pods<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> BTreeSet<u32> {
    pods.into_iter().filter_map(of_pod).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> Indexes {
        Indexes::parse(text, u32::MAX)
    }

    #[test]
    fn indexes_are_written_as_they_are_read() {
        for text in ["", "0", "0,1", "0-2", "1,3-5,7", "3,4,9-12"] {
            assert_eq!(set(text).to_string(), text);
        }
        assert_eq!(set("0-1,2,4-3,a,5-b,-1,6").to_string(), "0-2,6");
    }

    /// Upstream's `TestParseIndexesFromString`.
    #[test]
    fn indexes_that_a_job_no_longer_has_are_cut() {
        let table = [
            ("1-5,7", 6, "1-5"),
            ("0-10", 3, "0-2"),
            ("0-10", 0, ""),
            ("3,5-7", 6, "3,5"),
            ("0-99999", 100_000, "0-99999"),
        ];
        for (text, completions, expect) in table {
            let cut = Indexes::parse(text, completions);
            assert_eq!(cut.to_string(), expect, "{text} of {completions}");
        }
    }

    proptest! {
        #[test]
        fn intervals_are_the_set_they_stand_for(
            one in prop::collection::btree_set(0_u32..60, 0..30),
            other in prop::collection::btree_set(0_u32..60, 0..30),
            completions in 0_u32..70,
        ) {
            let of = |set: &BTreeSet<u32>| Indexes::default().with(set.iter().copied());
            let (a, b) = (of(&one), of(&other));
            prop_assert_eq!(a.len(), one.len());
            prop_assert_eq!(a.is_empty(), one.is_empty());
            prop_assert!((0..60).all(|index| a.contains(index) == one.contains(&index)));
            prop_assert_eq!(a.common(&b), one.intersection(&other).count());
            prop_assert_eq!(a.merged(&b), of(&(&one | &other)));
            let missing: Vec<u32> = (0..completions).filter(|index| !one.contains(index)).collect();
            prop_assert_eq!(a.missing(completions).collect::<Vec<_>>(), missing);
            prop_assert_eq!(&set(&a.to_string()), &a);
        }
    }
}
