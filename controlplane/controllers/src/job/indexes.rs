//! Completion indexes of Indexed Jobs: their compressed form, and which pods and indexes are too
//! many or missing.
//!
//! Source: `pkg/controller/job/indexed_job_utils.go` at v1.37.

use std::{collections::BTreeSet, fmt, sync::Arc};

use crate::pod::Pod;

/// Annotation and label with a pod's index.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A set of indexes; its text is `1,3-5,7`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(BTreeSet<u32>);

impl Indexes {
    /// Reads the text; what is no index is left out.
    pub(super) fn parse(text: &str) -> Self {
        let mut set = BTreeSet::new();
        for piece in text.split(',').filter(|piece| !piece.is_empty()) {
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
                // 10^5 is the most that validation lets through.
                set.extend((first..=last).take(100_000));
            }
        }
        Self(set)
    }

    pub(super) fn insert(&mut self, index: u32) {
        self.0.insert(index);
    }

    /// Forgets indexes that the Job no longer has: `completions` may be lowered.
    pub(super) fn cut(&mut self, completions: i32) {
        drop(self.0.split_off(&u32::try_from(completions).unwrap_or(0)));
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for &index in &self.0 {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == index => *last = index,
                _ => runs.push((index, index)),
            }
        }
        for (position, (first, last)) in runs.into_iter().enumerate() {
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
    let text =
        |map: Option<&std::collections::BTreeMap<String, String>>| map?.get(INDEX)?.parse().ok();
    text(pod.metadata.annotations.as_ref()).or_else(|| text(pod.metadata.labels.as_ref()))
}

/// Pods that no index needs, or whose index another has or is done, and the rest, at most `wanted`.
pub(super) fn surplus(
    active: &[Arc<Pod>],
    completed: &Indexes,
    completions: i32,
    wanted: usize,
) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut taken = BTreeSet::new();
    let (mut gone, mut kept) = (Vec::new(), Vec::new());
    let bound = u32::try_from(completions).unwrap_or(0);
    for pod in active {
        let free = of_pod(pod).filter(|index| *index < bound && !completed.contains(*index));
        match free.filter(|index| kept.len() < wanted && taken.insert(*index)) {
            Some(_) => kept.push(pod.clone()),
            None => gone.push(pod.clone()),
        }
    }
    (gone, kept)
}

/// Indexes below `completions` that are neither done nor worked on, smallest first.
pub(super) fn missing<'a>(
    kept: &[Arc<Pod>],
    completed: &'a Indexes,
    completions: i32,
) -> impl Iterator<Item = u32> + use<'a> {
    let working: BTreeSet<u32> = kept.iter().filter_map(|pod| of_pod(pod)).collect();
    let bound = u32::try_from(completions).unwrap_or(0);
    (0..bound).filter(move |index| !working.contains(index) && !completed.contains(*index))
}
