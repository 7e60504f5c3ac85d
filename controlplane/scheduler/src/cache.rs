//! The nodes with the pods on them: observed ones, and assumed ones whose binding is on its way.
//! Beside them what else an attempt looks at: the labels of namespaces, who has which image, what
//! selects pods, and where those of the same labels are.
//!
//! ```text
//! nominate --> Nominated --withdrawn, or gone----------------------> (forgotten)
//!                  v                                                  ^
//! assume ------> Assumed --observed on the node--> Observed --gone---/|
//!                  \-- binding refused: forget, or gone --------------/
//! ```
//! A nominated pod counts where others make room for it, so that nobody of its priority or a lower
//! one takes that. Who is above it does not see it: [`Cache::lift`].
//!
//! Pure state; owned by the scheduler's one task.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use coracle_api::selector::LabelSelector;
use coracle_client::cache::Key;
use k8s_openapi::api::{core::v1::Node, policy::v1::PodDisruptionBudget};

use crate::{
    node_info::NodeInfo,
    pod_info::{PodInfo, PodUid},
    selectors::SelectorOwner,
    snapshot::{Snapshot, Surroundings},
};

/// Nodes with their pods, observed and assumed, and what else an attempt looks at.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// In a stable order, so that the search for feasible nodes can go round.
    nodes: Vec<NodeInfo>,
    index: HashMap<String, usize>,
    /// Pods of nodes that are not there: seen before their node, or left by it.
    of_unknown_nodes: HashMap<String, HashMap<PodUid, Arc<PodInfo>>>,
    around: Surroundings,
    /// Where each known pod is, and whether that is only assumed.
    pods: HashMap<PodUid, Place>,
    /// Pods that room is made for, by priority.
    nominated: BTreeSet<(i32, PodUid)>,
    /// Pods that are being ended to make room, as long as the watch does not show it.
    ending: HashSet<PodUid>,
}

/// Pods that do not count for the moment, and where they did: [`Cache::put_back`].
#[derive(Debug, Default)]
#[must_use = "they count again only once they are put back"]
pub(crate) struct Lifted(Vec<(Arc<PodInfo>, Place)>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    node: String,
    standing: Standing,
}

/// How sure it is that a pod is where it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It has no node yet; others end to make room for it there.
    Nominated,
    /// Its binding is on its way, or the watch does not show it yet.
    Assumed,
    /// The watch shows it there.
    Observed,
}

impl Cache {
    /// The nodes that exist, as they are now.
    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(&self.nodes, &self.index, &self.around)
    }

    /// Adds or changes a node. Returns what it was before, without pods.
    pub(crate) fn set_node(&mut self, node: &Node) -> Option<NodeInfo> {
        let name = node.metadata.name.as_deref()?;
        if let Some(&position) = self.index.get(name) {
            let old = self.nodes[position].replace(node);
            let new = &self.nodes[position];
            // Nodes tell of themselves all the time, and seldom of new images.
            if old.images != new.images {
                self.around.images.remove(&old);
                self.around.images.add(new);
            }
            if old.labels != new.labels {
                self.around.spread_counts.forget();
            }
            return Some(old);
        }
        let mut info = NodeInfo::new(node);
        self.around.images.add(&info);
        self.around.spread_counts.forget();
        for pod in self
            .of_unknown_nodes
            .remove(name)
            .into_iter()
            .flat_map(HashMap::into_values)
        {
            info.add_pod(pod);
        }
        self.index.insert(name.to_owned(), self.nodes.len());
        self.nodes.push(info);
        None
    }

    /// Takes over what extenders are told of a node that is there.
    pub(crate) fn keep_object(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if let Some(&position) = self.index.get(name) {
            self.nodes[position].object = Some(node);
        }
    }

    /// Removes a node. Its pods stay counted until they are gone, in case the node comes back.
    pub(crate) fn remove_node(&mut self, name: &str) -> Option<NodeInfo> {
        let position = self.index.remove(name)?;
        let mut removed = self.nodes.swap_remove(position);
        self.around.images.remove(&removed);
        self.around.spread_counts.forget();
        if let Some(moved) = self.nodes.get(position) {
            self.index.insert(moved.name.clone(), position);
        }
        let pods = std::mem::take(&mut removed.pods);
        if !pods.is_empty() {
            self.of_unknown_nodes.insert(name.to_owned(), pods);
        }
        Some(removed)
    }

    /// Takes over the labels of a namespace. Says whether they are others than before.
    pub(crate) fn set_namespace(&mut self, name: &str, labels: BTreeMap<String, String>) -> bool {
        self.around.namespaces.set(name, labels)
    }

    pub(crate) fn remove_namespace(&mut self, name: &str) {
        self.around.namespaces.remove(name);
    }

    /// Takes over what a Service or controller selects by.
    pub(crate) fn set_selector(
        &mut self,
        owner: SelectorOwner,
        selector: Option<Arc<LabelSelector>>,
    ) {
        self.around.selectors.set(owner, selector);
    }

    /// Takes over a PodDisruptionBudget, or that it is gone.
    pub(crate) fn set_budget(&mut self, key: &Key, to: Option<&PodDisruptionBudget>) {
        self.around.budgets.set(&key.namespace, &key.name, to);
    }

    /// How many pods are counted on nodes, without those that room is made for.
    pub(crate) fn placed_count(&self) -> usize {
        self.pods.len() - self.nominated.len()
    }

    /// Counts a pod where others make room for it, and nowhere else. One that has its node already
    /// stays there.
    pub(crate) fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) {
        if !self.is_placed(&pod.uid) {
            self.place(pod, node, Standing::Nominated);
        }
    }

    /// No room is made for the pod any more. Returns what had been counted.
    pub(crate) fn withdraw(&mut self, uid: &PodUid) -> Option<Arc<PodInfo>> {
        self.nomination(uid)?;
        self.remove_pod(uid)
    }

    /// Whether room is made for any pod.
    pub(crate) fn has_nominated(&self) -> bool {
        !self.nominated.is_empty()
    }

    /// Where room is made for the pod.
    pub(crate) fn nomination(&self, uid: &PodUid) -> Option<&str> {
        let place = self.pods.get(uid)?;
        (place.standing == Standing::Nominated).then_some(&place.node)
    }

    /// The pod as it was when room was made for it.
    pub(crate) fn nominee(&self, uid: &PodUid) -> Option<&Arc<PodInfo>> {
        let node = self.nomination(uid)?;
        match self.index.get(node) {
            Some(&position) => self.nodes[position].pods.get(uid),
            None => self.of_unknown_nodes.get(node)?.get(uid),
        }
    }

    /// Those of a lower priority for whom room is made on this node.
    pub(crate) fn nominated_below(&self, priority: i32, node: &str) -> Vec<PodUid> {
        let below = self.nominated.iter().take_while(|(of, _)| *of < priority);
        let there = below.filter(|(_, uid)| self.nomination(uid) == Some(node));
        there.map(|(_, uid)| uid.clone()).collect()
    }

    /// Lets `pod` not see itself, if room is made for it, nor any other such pod of a lower
    /// priority.
    pub(crate) fn lift(&mut self, pod: &PodInfo) -> Lifted {
        let below = self.nominated.iter();
        let below = below.take_while(|(priority, _)| *priority < pod.priority);
        let mut uids: Vec<PodUid> = below.map(|(_, uid)| uid.clone()).collect();
        if self.nomination(&pod.uid).is_some() {
            uids.push(pod.uid.clone());
        }
        self.lift_these(&uids)
    }

    /// Lets nobody see any pod that room is made for.
    pub(crate) fn lift_all(&mut self) -> Lifted {
        let uids: Vec<PodUid> = self.nominated.iter().map(|(_, uid)| uid.clone()).collect();
        self.lift_these(&uids)
    }

    /// Lets nobody see these pods.
    pub(crate) fn lift_these<'a>(&mut self, uids: impl IntoIterator<Item = &'a PodUid>) -> Lifted {
        let lift = |uid: &PodUid| {
            let place = self.pods.get(uid)?.clone();
            Some((self.remove_pod(uid)?, place))
        };
        Lifted(uids.into_iter().filter_map(lift).collect())
    }

    /// Counts pods again as they were, but for those that are counted already.
    pub(crate) fn put_back(&mut self, lifted: Lifted) {
        for (pod, Place { node, standing }) in lifted.0 {
            if !self.pods.contains_key(&pod.uid) {
                self.place(pod, &node, standing);
            }
        }
    }

    /// Takes a pod off the node at this position, for what is looked at of the node alone: what is
    /// known beside the nodes goes on counting it. Until [`Cache::put_on`].
    pub(crate) fn take_off(&mut self, position: usize, pod: &PodInfo) {
        self.nodes[position].remove_pod(&pod.uid);
    }

    /// The reverse of [`Cache::take_off`].
    pub(crate) fn put_on(&mut self, position: usize, pod: Arc<PodInfo>) {
        self.nodes[position].add_pod(pod);
    }

    /// The pod is being ended to make room, or stays after all.
    pub(crate) fn set_ending(&mut self, uid: &PodUid, ends: bool) {
        if ends {
            self.ending.insert(uid.clone());
        } else {
            self.ending.remove(uid);
        }
    }

    /// Whether the pod ends to make room, as far as anybody knows.
    pub(crate) fn is_ending(&self, pod: &PodInfo) -> bool {
        pod.preempted || self.ending.contains(&pod.uid)
    }

    /// Counts a pod on `node` before its binding is known to have worked.
    pub(crate) fn assume(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.place(pod, node, Standing::Assumed);
    }

    /// Counts a pod that was seen on its node; confirms an assumption. Returns how it was seen
    /// before.
    pub(crate) fn observe(&mut self, pod: Arc<PodInfo>, node: &str) -> Option<Arc<PodInfo>> {
        let is_known = self
            .pods
            .get(&pod.uid)
            .is_some_and(|place| place.standing == Standing::Observed);
        self.place(pod, node, Standing::Observed)
            .filter(|_| is_known)
    }

    /// Whether the pod has a node already.
    pub(crate) fn is_placed(&self, uid: &PodUid) -> bool {
        let place = self.pods.get(uid);
        place.is_some_and(|place| place.standing != Standing::Nominated)
    }

    /// Takes an assumption back, and returns what had been counted. A pod that has been observed
    /// meanwhile stays.
    pub(crate) fn forget(&mut self, uid: &PodUid) -> Option<Arc<PodInfo>> {
        self.pods
            .get(uid)
            .filter(|place| place.standing == Standing::Assumed)?;
        self.remove_pod(uid)
    }

    /// A pod is gone or finished. Returns what had been counted.
    pub(crate) fn remove_pod(&mut self, uid: &PodUid) -> Option<Arc<PodInfo>> {
        let place = self.pods.remove(uid)?;
        let nominated = place.standing == Standing::Nominated;
        let pod = match self.index.get(&place.node) {
            Some(&position) => self.nodes[position].remove_pod(uid),
            None => self.remove_of_unknown_node(uid, &place.node),
        }?;
        if nominated {
            self.nominated.remove(&(pod.priority, uid.clone()));
        }
        self.around.uncount(&pod, &place.node);
        Some(pod)
    }

    fn remove_of_unknown_node(&mut self, uid: &PodUid, node: &str) -> Option<Arc<PodInfo>> {
        let pods = self.of_unknown_nodes.get_mut(node)?;
        let pod = pods.remove(uid);
        if pods.is_empty() {
            self.of_unknown_nodes.remove(node);
        }
        pod
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: &str, standing: Standing) -> Option<Arc<PodInfo>> {
        if let Some(place) = self.pods.get(&pod.uid)
            && (place.node != node || place.standing == Standing::Nominated)
        {
            self.remove_pod(&pod.uid);
        }
        if standing == Standing::Nominated {
            self.nominated.insert((pod.priority, pod.uid.clone()));
        }
        self.pods.insert(
            pod.uid.clone(),
            Place {
                node: node.to_owned(),
                standing,
            },
        );
        self.around.count(&pod, node);
        let old = match self.index.get(node) {
            Some(&position) => self.nodes[position].add_pod(pod),
            None => self
                .of_unknown_nodes
                .entry(node.to_owned())
                .or_default()
                .insert(pod.uid.clone(), pod),
        };
        if let Some(old) = &old {
            self.around.uncount(old, node);
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};

    fn requested(cache: &Cache, name: &str) -> i64 {
        cache
            .snapshot()
            .node(name)
            .map_or(-1, |node| node.requested.milli_cpu)
    }

    #[test]
    fn an_assumed_pod_counts_until_it_is_forgotten() {
        let mut cache = Cache::default();
        cache.set_node(&node("n", "4"));
        let pod = Arc::new(pod("p", "1"));
        cache.assume(pod.clone(), "n");
        assert_eq!(requested(&cache, "n"), 1000);
        cache.forget(&pod.uid);
        assert_eq!(requested(&cache, "n"), 0);
    }

    #[test]
    fn an_observed_pod_is_counted_once_and_not_forgotten() {
        let mut cache = Cache::default();
        cache.set_node(&node("n", "4"));
        let pod = Arc::new(pod("p", "1"));
        cache.assume(pod.clone(), "n");
        cache.observe(pod.clone(), "n");
        cache.forget(&pod.uid);
        assert_eq!(requested(&cache, "n"), 1000);
        assert!(cache.remove_pod(&pod.uid).is_some() && cache.remove_pod(&pod.uid).is_none());
        assert_eq!(requested(&cache, "n"), 0);
    }

    #[test]
    fn pods_seen_before_their_node_count_when_it_comes() {
        let mut cache = Cache::default();
        cache.observe(Arc::new(pod("p", "1")), "n");
        cache.set_node(&node("n", "4"));
        assert_eq!(requested(&cache, "n"), 1000);
    }

    #[test]
    fn pods_of_a_node_that_comes_back_are_counted_again() {
        let mut cache = Cache::default();
        cache.set_node(&node("n", "4"));
        cache.observe(Arc::new(pod("p", "1")), "n");
        cache.observe(Arc::new(pod("q", "1")), "n");
        cache.remove_node("n");
        assert!(
            cache.snapshot().nodes().is_empty() && cache.remove_pod(&PodUid("q".into())).is_some()
        );
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
        cache.assume(Arc::new(pod("p", "1")), "c");
        assert_eq!(requested(&cache, "c"), 1000);
        assert_eq!(cache.snapshot().nodes().len(), 2);
    }
}
