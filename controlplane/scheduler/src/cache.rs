//! The nodes with the pods on them: observed ones, and assumed ones whose binding is on its way.
//!
//! ```text
//! assume --> Assumed --bound--> Bound --observed on the node--> Observed --gone--> (forgotten)
//!               \-- binding refused: forget --^     \-- not in a later list --^
//! ```
//! Pure state; owned by the scheduler's one task.

use std::{collections::HashMap, time::Instant};

use k8s_openapi::api::core::v1::Node;

use crate::{
    node_info::NodeInfo,
    pod_info::{PodInfo, PodUid},
};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// In a stable order, so that the search for feasible nodes can go round.
    nodes: Vec<NodeInfo>,
    index: HashMap<String, usize>,
    /// Where each known pod is, and whether that is only assumed.
    pods: HashMap<PodUid, Place>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    node: String,
    standing: Standing,
}

/// How sure it is that a pod is where it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Its binding is on its way.
    Assumed,
    /// The API server has said yes at this time.
    Bound(Instant),
    /// The watch shows it there.
    Observed,
}

impl Cache {
    /// The nodes that exist.
    pub(crate) fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeInfo> {
        self.nodes.iter()
    }

    /// Adds or changes a node. Says whether unschedulable pods may fit now.
    pub(crate) fn set_node(&mut self, node: &Node) -> bool {
        let Some(name) = node.metadata.name.as_deref() else { return false };
        let position = self.position(name);
        self.nodes[position].set_node(node)
    }

    /// Removes a node. Its pods stay counted until they are gone, in case the node comes back.
    pub(crate) fn remove_node(&mut self, name: &str) {
        let Some(&position) = self.index.get(name) else { return };
        if self.nodes[position].pods.is_empty() {
            self.remove_at(position);
        } else {
            self.nodes[position].known = false;
        }
    }

    /// The names of the nodes, for comparing with a fresh list.
    pub(crate) fn node_names(&self) -> Vec<String> {
        self.nodes.iter().filter(|node| node.known).map(|node| node.name.clone()).collect()
    }

    /// The pods that a list begun at `listed` has to show if they exist: those seen, and those bound before it.
    pub(crate) fn placed_before(&self, listed: Instant) -> Vec<PodUid> {
        let shows = |standing| match standing {
            Standing::Assumed => false,
            Standing::Bound(at) => at < listed,
            Standing::Observed => true,
        };
        self.pods.iter().filter(|(_, place)| shows(place.standing)).map(|(uid, _)| uid.clone()).collect()
    }

    /// How many pods are counted on nodes.
    pub(crate) fn placed_count(&self) -> usize {
        self.pods.len()
    }

    /// Counts a pod on `node` before its binding is known to have worked.
    pub(crate) fn assume(&mut self, pod: &PodInfo, node: &str) {
        self.place(pod, node, Standing::Assumed);
    }

    /// The binding of an assumed pod has worked.
    pub(crate) fn bound(&mut self, uid: &PodUid, now: Instant) {
        if let Some(place) = self.pods.get_mut(uid).filter(|place| place.standing == Standing::Assumed) {
            place.standing = Standing::Bound(now);
        }
    }

    /// Counts a pod that was seen on its node; confirms an assumption.
    pub(crate) fn observe(&mut self, pod: &PodInfo, node: &str) {
        self.place(pod, node, Standing::Observed);
    }

    /// Whether the pod is counted on some node already.
    pub(crate) fn is_placed(&self, uid: &PodUid) -> bool {
        self.pods.contains_key(uid)
    }

    /// Takes an assumption back. A pod that has been observed meanwhile stays.
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        if self.pods.get(uid).is_some_and(|place| place.standing == Standing::Assumed) {
            self.remove_pod(uid);
        }
    }

    /// A pod is gone or finished. Says whether it had taken anything.
    pub(crate) fn remove_pod(&mut self, uid: &PodUid) -> bool {
        let Some(place) = self.pods.remove(uid) else { return false };
        let Some(&position) = self.index.get(&place.node) else { return false };
        let removed = self.nodes[position].remove_pod(uid);
        if !self.nodes[position].known && self.nodes[position].pods.is_empty() {
            self.remove_at(position);
        }
        removed
    }

    fn place(&mut self, pod: &PodInfo, node: &str, standing: Standing) {
        if self.pods.get(&pod.uid).is_some_and(|place| place.node != node) {
            self.remove_pod(&pod.uid);
        }
        let position = self.position(node);
        self.nodes[position].add_pod(pod);
        self.pods.insert(pod.uid.clone(), Place { node: node.to_owned(), standing });
    }

    fn position(&mut self, name: &str) -> usize {
        if let Some(&position) = self.index.get(name) {
            return position;
        }
        self.nodes.push(NodeInfo { name: name.to_owned(), ..NodeInfo::default() });
        self.index.insert(name.to_owned(), self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    fn remove_at(&mut self, position: usize) {
        let removed = self.nodes.swap_remove(position);
        self.index.remove(&removed.name);
        if let Some(moved) = self.nodes.get(position) {
            self.index.insert(moved.name.clone(), position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::testing::{node, pod};

    fn requested(cache: &Cache, name: &str) -> i64 {
        cache.nodes().find(|node| node.name == name).map_or(-1, |node| node.requested.milli_cpu)
    }

    #[test]
    fn an_assumed_pod_counts_until_it_is_forgotten() {
        let mut cache = Cache::default();
        cache.set_node(&node("n", "4"));
        let pod = pod("p", "1");
        cache.assume(&pod, "n");
        assert_eq!(requested(&cache, "n"), 1000);
        cache.forget(&pod.uid);
        assert_eq!(requested(&cache, "n"), 0);
    }

    #[test]
    fn an_observed_pod_is_counted_once_and_not_forgotten() {
        let mut cache = Cache::default();
        cache.set_node(&node("n", "4"));
        let pod = pod("p", "1");
        cache.assume(&pod, "n");
        cache.observe(&pod, "n");
        cache.forget(&pod.uid);
        assert_eq!(requested(&cache, "n"), 1000);
        assert!(cache.remove_pod(&pod.uid) && !cache.remove_pod(&pod.uid));
        assert_eq!(requested(&cache, "n"), 0);
    }

    #[test]
    fn a_bound_pod_that_a_later_list_lacks_is_gone() {
        let mut cache = Cache::default();
        cache.set_node(&node("n", "4"));
        let start = Instant::now();
        let later = |seconds| start + std::time::Duration::from_secs(seconds);
        for name in ["assumed", "bound", "observed"] {
            cache.assume(&pod(name, "1"), "n");
        }
        cache.bound(&PodUid("bound".into()), later(5));
        cache.observe(&pod("observed", "1"), "n");
        cache.bound(&PodUid("observed".into()), later(5));
        let due = |seconds| {
            let mut names: Vec<String> =
                cache.placed_before(later(seconds)).iter().map(|uid| uid.0.to_string()).collect();
            names.sort();
            names
        };
        assert_eq!(due(5), ["observed"], "a list begun before the binding cannot show the pod");
        assert_eq!(due(6), ["bound", "observed"]);
    }

    #[test]
    fn pods_seen_before_their_node_count_when_it_comes() {
        let mut cache = Cache::default();
        cache.observe(&pod("p", "1"), "n");
        cache.set_node(&node("n", "4"));
        assert_eq!(requested(&cache, "n"), 1000);
    }

    #[test]
    fn removing_a_node_keeps_the_others_reachable() {
        let mut cache = Cache::default();
        for name in ["a", "b", "c"] {
            cache.set_node(&node(name, "4"));
        }
        cache.remove_node("a");
        cache.assume(&pod("p", "1"), "c");
        assert_eq!(requested(&cache, "c"), 1000);
        assert_eq!(cache.nodes().len(), 2);
    }
}
