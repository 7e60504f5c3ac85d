//! Which ranges are taken, and by whom. Pure.

use std::collections::{BTreeMap, HashMap};

use ipnet::Ipv4Net;

/// The ranges of a cluster's nodes.
#[derive(Debug)]
pub(super) struct Ranges {
    cluster: Ipv4Net,
    mask_bits: u8,
    by_node: HashMap<String, Ipv4Net>,
    /// By how many nodes each is taken: somebody may have given one to two of them by hand.
    taken: BTreeMap<Ipv4Net, usize>,
    /// How many of the cluster's ranges, from the first one on, are not worth a look: all are
    /// taken.
    full: usize,
}

impl Ranges {
    /// None is taken. Those given out have `mask_bits` bits.
    pub(super) fn new(cluster: Ipv4Net, mask_bits: u8) -> Self {
        Self {
            cluster,
            mask_bits,
            by_node: HashMap::new(),
            taken: BTreeMap::new(),
            full: 0,
        }
    }

    /// `node` has `range`, and what it had before is free.
    pub(super) fn take(&mut self, node: &str, range: Ipv4Net) {
        let range = range.trunc();
        if self.by_node.get(node) == Some(&range) {
            return;
        }
        self.release(node);
        self.by_node.insert(node.to_owned(), range);
        *self.taken.entry(range).or_default() += 1;
    }

    /// `node` has none any more.
    pub(super) fn release(&mut self, node: &str) {
        let Some(range) = self.by_node.remove(node) else {
            return;
        };
        if let Some(count) = self.taken.get_mut(&range) {
            *count -= 1;
            if *count == 0 {
                self.taken.remove(&range);
                self.full = self.full.min(self.index_of(range));
            }
        }
    }

    /// What `node` has, or else the first range that overlaps none of the others; `None` if there
    /// is none left.
    pub(super) fn give(&mut self, node: &str) -> Option<Ipv4Net> {
        if let Some(range) = self.by_node.get(node) {
            return Some(*range);
        }
        let all = self.cluster.subnets(self.mask_bits).ok()?.enumerate();
        let mut left = all.skip(self.full);
        let (index, range) = left.find(|(_, range)| !self.is_taken(*range))?;
        self.full = index + 1;
        self.take(node, range);
        Some(range)
    }

    /// How many of the cluster's ranges come before this one.
    fn index_of(&self, range: Ipv4Net) -> usize {
        let [start, first] = [range, self.cluster].map(|net| u32::from(net.network()));
        let index = start
            .saturating_sub(first)
            .checked_shr(32 - u32::from(self.mask_bits));
        usize::try_from(index.unwrap_or(0)).unwrap_or(0)
    }

    /// Of two ranges that overlap one contains the other.
    fn is_taken(&self, range: Ipv4Net) -> bool {
        let around = std::iter::successors(Some(range), Ipv4Net::supernet);
        let end = Ipv4Net::new_assert(range.broadcast(), 32);
        self.taken.range(range..=end).next().is_some()
            || around.skip(1).any(|wider| self.taken.contains_key(&wider))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn first_gap_is_given_out() {
        let table: [(&str, u8, &[&str], Option<&str>); 8] = [
            ("10.42.0.0/16", 24, &[], Some("10.42.0.0/24")),
            (
                "10.42.0.0/16",
                24,
                &["10.42.0.0/24", "10.42.2.0/24"],
                Some("10.42.1.0/24"),
            ),
            (
                "10.42.0.0/16",
                24,
                &["10.42.1.0/24", "10.42.0.0/24"],
                Some("10.42.2.0/24"),
            ),
            (
                "10.42.0.0/16",
                24,
                &["10.42.0.0/23", "192.168.0.0/24"],
                Some("10.42.2.0/24"),
            ),
            (
                "10.42.0.0/16",
                24,
                &["10.42.0.128/25"],
                Some("10.42.1.0/24"),
            ),
            (
                "10.42.0.0/16",
                24,
                &["10.42.0.255/32"],
                Some("10.42.1.0/24"),
            ),
            ("10.42.0.0/23", 24, &["10.42.0.0/24", "10.42.1.0/24"], None),
            ("10.42.0.0/24", 16, &[], None),
        ];
        for (cluster, bits, taken, expected) in table {
            let mut ranges = Ranges::new(net(cluster), bits);
            for (number, range) in taken.iter().enumerate() {
                ranges.take(&format!("n{number}"), net(range));
            }
            let given = ranges.give("new").map(|range| range.to_string());
            assert_eq!(given.as_deref(), expected, "{cluster} {taken:?}");
        }
    }

    #[test]
    fn every_range_is_given_once_and_again_when_it_is_free() {
        let mut ranges = Ranges::new(net("10.42.0.0/16"), 24);
        let mut given = std::collections::BTreeSet::new();
        while let Some(range) = ranges.give(&given.len().to_string()) {
            assert!(given.insert(range));
        }
        assert_eq!(given.len(), 256);
        let range = ranges.give("7");
        assert!(range.is_some(), "it keeps its own");
        ranges.release("7");
        assert_eq!(ranges.give("new"), range);
        assert_eq!(ranges.give("other"), None);
    }

    #[test]
    fn what_two_nodes_have_is_free_when_both_are_gone() {
        let mut ranges = Ranges::new(net("10.42.0.0/23"), 24);
        let first = net("10.42.0.0/24");
        for node in ["a", "b"] {
            ranges.take(node, first);
        }
        ranges.take("c", net("10.42.1.0/24"));
        ranges.release("a");
        assert_eq!(ranges.give("new"), None);
        ranges.release("b");
        assert_eq!(ranges.give("new"), Some(first));
        ranges.take("new", net("10.9.0.0/24"));
        assert_eq!(
            ranges.give("last"),
            Some(first),
            "another was chosen for it"
        );
    }
}
