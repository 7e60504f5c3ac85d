//! How many pods on nodes have which priority: who is not above the lowest need not look for
//! somebody to preempt.

use std::collections::BTreeMap;

/// Priorities of pods, each with its number of pods.
#[derive(Debug, Default)]
pub(crate) struct Priorities(BTreeMap<i32, usize>);

impl Priorities {
    pub(crate) fn add(&mut self, priority: i32) {
        *self.0.entry(priority).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, priority: i32) {
        if let Some(count) = self.0.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&priority);
            }
        }
    }

    /// Whether some pod has a lower one.
    pub(crate) fn has_below(&self, priority: i32) -> bool {
        self.0
            .keys()
            .next()
            .is_some_and(|lowest| *lowest < priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_is_known_as_long_as_somebody_has_it() {
        let mut priorities = Priorities::default();
        assert!(!priorities.has_below(i32::MAX));
        for priority in [5, -1, -1] {
            priorities.add(priority);
        }
        assert!(priorities.has_below(0) && !priorities.has_below(-1));
        priorities.remove(-1);
        assert!(priorities.has_below(0));
        priorities.remove(-1);
        assert!(!priorities.has_below(5) && priorities.has_below(6));
    }
}
