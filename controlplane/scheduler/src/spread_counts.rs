//! How many pods a spread constraint selects in each place, kept from one pod of a template to the
//! next: looking at every node for each of them is most of what spreading costs.
//!
//! What is kept holds for pods that may go to any node, which nearly all of them may. A pod that
//! comes or goes changes a count; a node that comes, goes or changes makes all be forgotten.

use std::{collections::HashMap, sync::Arc};

use coracle_api::selector::LabelSelector;
use parking_lot::Mutex;

use crate::{
    node_info::NodeInfo,
    pod_info::{PodInfo, SpreadConstraint},
};

/// Constraints whose counts are kept: those of so many templates whose pods come by turns.
const MOST: usize = 16;

/// What is kept. Kept current by [`crate::cache::Cache`] alone.
#[derive(Debug, Default)]
pub(crate) struct SpreadCounts(Mutex<Vec<Kept>>);

#[derive(Debug)]
struct Kept {
    about: About,
    counts: PlaceCounts,
}

/// What is counted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct About {
    namespace: String,
    topology_key: String,
    selector: LabelSelector,
    /// A node counts that is in some place for each of these.
    all_keys: Vec<String>,
}

/// The pods in each place. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct PlaceCounts {
    places: Arc<Places>,
    /// By the number of the place.
    pods: Arc<Vec<i64>>,
}

#[derive(Debug, Default)]
struct Places {
    /// The number of each place, by the value of the label.
    numbers: HashMap<String, usize>,
    /// The number of the place in which each node is that counts, by the node's name.
    of_nodes: HashMap<String, usize>,
}

impl About {
    pub(crate) fn of(
        pod: &PodInfo,
        constraint: &SpreadConstraint,
        all: &[SpreadConstraint],
    ) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            topology_key: constraint.topology_key.clone(),
            selector: constraint.selector().clone(),
            all_keys: all.iter().map(|one| one.topology_key.clone()).collect(),
        }
    }

    fn selects(&self, pod: &PodInfo) -> bool {
        self.namespace == pod.namespace
            && !self.selector.is_everything()
            && self
                .selector
                .matches(|key| pod.labels.get(key).map(String::as_str))
    }
}

impl PlaceCounts {
    /// Of `nodes`, which are in some place each; `on` says how many pods are on one.
    pub(crate) fn of<'a>(
        topology_key: &str,
        nodes: impl Iterator<Item = &'a NodeInfo>,
        on: impl Fn(&str) -> i64,
    ) -> Self {
        let (mut places, mut pods) = (Places::default(), Vec::new());
        for node in nodes {
            let Some(value) = node.labels.get(topology_key) else {
                continue;
            };
            let number = match places.numbers.get(value) {
                Some(number) => *number,
                None => {
                    places.numbers.insert(value.clone(), pods.len());
                    pods.push(0);
                    pods.len() - 1
                }
            };
            places.of_nodes.insert(node.name.clone(), number);
            pods[number] += on(&node.name);
        }
        Self {
            places: Arc::new(places),
            pods: Arc::new(pods),
        }
    }

    /// How many pods are in the place of that label.
    pub(crate) fn in_place(&self, value: &str) -> i64 {
        let number = self.places.numbers.get(value);
        number.map_or(0, |number| self.pods[*number])
    }

    /// How many places there are.
    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    /// In the place with the fewest.
    pub(crate) fn fewest(&self) -> Option<i64> {
        self.pods.iter().copied().min()
    }

    fn add(&mut self, node: &str, change: i64) {
        if let Some(number) = self.places.of_nodes.get(node) {
            Arc::make_mut(&mut self.pods)[*number] += change;
        }
    }
}

impl SpreadCounts {
    /// What is known, or what `count` finds, which is known from then on.
    pub(crate) fn get(&self, about: About, count: impl FnOnce() -> PlaceCounts) -> PlaceCounts {
        let mut kept = self.0.lock();
        if let Some(known) = kept.iter().find(|known| known.about == about) {
            return known.counts.clone();
        }
        let counts = count();
        if kept.len() == MOST {
            kept.remove(0);
        }
        kept.push(Kept {
            about,
            counts: counts.clone(),
        });
        counts
    }

    /// A pod that lasts is on the node.
    pub(crate) fn count(&mut self, pod: &PodInfo, node: &str) {
        self.change(pod, node, 1);
    }

    /// It is there no more.
    pub(crate) fn uncount(&mut self, pod: &PodInfo, node: &str) {
        self.change(pod, node, -1);
    }

    fn change(&mut self, pod: &PodInfo, node: &str, change: i64) {
        for kept in self.0.get_mut() {
            if kept.about.selects(pod) {
                kept.counts.add(node, change);
            }
        }
    }

    /// Nodes are others now.
    pub(crate) fn forget(&mut self) {
        self.0.get_mut().clear();
    }
}
