//! InterPodAffinity: pods near pods, or apart from them; what the pod says about others, and others
//! about it.
//!
//! Source: `pkg/scheduler/framework/plugins/interpodaffinity` at v1.37.

mod kinds;
mod score;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use self::kinds::Kinds;
use crate::{
    config::InterPodAffinityArgs,
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, NodeNames, Plugin,
        PluginName, PreFilter, QueueingHint, Status,
    },
    label_counts::Counts,
    node_info::NodeInfo,
    pod_info::{AffinityTerm, PodInfo},
    snapshot::Snapshot,
};

const AFFINITY: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const EXISTING_ANTI_AFFINITY: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

#[derive(Clone)]
pub(super) struct InterPodAffinity {
    /// What it counts that a pod on a node requires to be near pods like the one to place.
    required_counts: i64,
    /// Whether nothing counts of what pods on nodes say, for a pod that wishes nothing itself.
    ignores_wishes: bool,
}

impl InterPodAffinity {
    pub(super) fn new(told: &InterPodAffinityArgs) -> Self {
        Self {
            required_counts: told.hard_pod_affinity_weight,
            ignores_wishes: told.ignore_preferred_terms_of_existing_pods,
        }
    }
}

#[cfg(test)]
impl Default for InterPodAffinity {
    fn default() -> Self {
        Self::new(&InterPodAffinityArgs::default())
    }
}

/// A number for each value of each label of nodes: how many pods there are meant, or how much they
/// weigh.
#[derive(Debug, Default, PartialEq, Eq)]
struct Places(HashMap<String, HashMap<String, i64>>);

impl Places {
    /// Adds `amount` where the node is, by its label `key`. A node without the label is nowhere.
    fn add(&mut self, node: &NodeInfo, key: &str, amount: i64) {
        let Some(value) = node.labels.get(key) else {
            return;
        };
        if !self.0.contains_key(key) {
            self.0.insert(key.to_owned(), HashMap::new());
        }
        let Some(values) = self.0.get_mut(key) else {
            return;
        };
        match values.get_mut(value) {
            Some(sum) => *sum += amount,
            None => drop(values.insert(value.clone(), amount)),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn at(&self, key: &str, value: &str) -> i64 {
        self.0
            .get(key)
            .and_then(|values| values.get(value))
            .copied()
            .unwrap_or(0)
    }

    /// The numbers of all places where the node is.
    fn of_node<'a>(
        &'a self,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = i64> + 'a {
        self.0
            .iter()
            .filter_map(|(key, values)| values.get(labels.get(key)?).copied())
    }
}

/// What Filter compares each node with.
struct Counted {
    /// Pods there that all of the pod's required terms mean.
    affinity: Places,
    /// By which labels these look for places.
    affinity_keys: Vec<String>,
    /// Pods there that one of its terms of anti-affinity means.
    anti_affinity: Places,
    /// Terms of anti-affinity of pods there that mean the pod.
    existing_anti_affinity: Places,
    /// Whether the pod's own terms mean it.
    means_itself: bool,
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> PluginName {
        PluginName::InterPodAffinity
    }
}

impl PreFilter for InterPodAffinity {
    fn pre_filter(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        let existing_anti_affinity = existing_anti_affinity(pod, snapshot);
        let terms = &pod.terms;
        if existing_anti_affinity.is_empty()
            && terms.required.is_empty()
            && terms.required_anti.is_empty()
        {
            return (None, Status::SKIP);
        }
        let kinds = Kinds::of(
            pod,
            terms.required.iter().chain(&terms.required_anti),
            snapshot,
        );
        let affinity_keys = terms
            .required
            .chunk_by(is_same_place)
            .map(|same| same[0].topology_key.clone())
            .collect();
        cycle.write(Counted {
            affinity: affinity(&kinds, &terms.required),
            affinity_keys,
            anti_affinity: anti_affinity(&kinds, &terms.required_anti),
            existing_anti_affinity,
            means_itself: all_mean(&terms.required, pod, snapshot),
        });
        (None, Status::SUCCESS)
    }
}

/// Where pods are that all terms mean.
fn affinity(kinds: &Kinds<'_>, terms: &[AffinityTerm]) -> Places {
    let mut places = Places::default();
    let Some((first, others)) = terms.split_first() else {
        return places;
    };
    let mut meant = kinds.meant(first);
    for term in others {
        if meant.is_empty() {
            return places;
        }
        meant.intersect(&kinds.meant(term));
    }
    for same in terms.chunk_by(is_same_place) {
        kinds.add(
            &mut places,
            &same[0].topology_key,
            meant.iter().map(|kind| (kind, 1)),
        );
    }
    places
}

/// Where pods are that any term means.
fn anti_affinity(kinds: &Kinds<'_>, terms: &[AffinityTerm]) -> Places {
    let mut places = Places::default();
    for same in terms
        .chunk_by(is_same_place)
        .filter(|same| kinds.has_places(&same[0].topology_key))
    {
        let mut meant = kinds.none();
        same.iter().for_each(|term| meant.unite(&kinds.meant(term)));
        kinds.add(
            &mut places,
            &same[0].topology_key,
            meant.iter().map(|kind| (kind, 1)),
        );
    }
    places
}

fn is_same_place(one: &AffinityTerm, other: &AffinityTerm) -> bool {
    one.topology_key == other.topology_key
}

impl Filter for InterPodAffinity {
    fn filter(&self, cycle: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        let Some(counted) = cycle.read::<Counted>() else {
            return Status::error("PreFilter was not asked");
        };
        if !counted.satisfies_affinity(node) {
            // Pods that end bring no pod that would have to be there.
            return Status::unresolvable(vec![AFFINITY.into()]);
        }
        if counted
            .anti_affinity
            .of_node(&node.labels)
            .any(|count| count > 0)
        {
            return Status::unschedulable(vec![ANTI_AFFINITY.into()]);
        }
        if counted
            .existing_anti_affinity
            .of_node(&node.labels)
            .any(|count| count > 0)
        {
            return Status::unschedulable(vec![EXISTING_ANTI_AFFINITY.into()]);
        }
        Status::SUCCESS
    }

    fn depends_on_pods(&self) -> bool {
        true
    }
}

impl Counted {
    fn satisfies_affinity(&self, node: &NodeInfo) -> bool {
        let mut pods_are_there = true;
        for key in &self.affinity_keys {
            let Some(value) = node.labels.get(key) else {
                return false;
            };
            pods_are_there &= self.affinity.at(key, value) > 0;
        }
        // The first of a series whose pods want to be together would wait for ever.
        pods_are_there || self.affinity.is_empty() && self.means_itself
    }
}

impl EnqueueExtensions for InterPodAffinity {
    fn events(&self) -> Actions {
        Actions::ADD_POD
            | Actions::UPDATE_POD_LABEL
            | Actions::DELETE_POD
            | Actions::ADD_NODE
            | Actions::UPDATE_NODE_LABEL
            | Actions::UPDATE_NAMESPACE_LABEL
    }

    /// What the labels of namespaces decide is not looked at here: an attempt costs little beside a
    /// pod that waits for nothing.
    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let terms = &pod.terms;
        let near = |other: &PodInfo| {
            !terms.required.is_empty()
                && terms
                    .required
                    .iter()
                    .all(|term| term.may_match(&other.namespace, &other.labels))
        };
        let apart = |other: &PodInfo| {
            // Not worth a look at each of them.
            if other.asks_much {
                return true;
            }
            let by_own = terms
                .required_anti
                .iter()
                .any(|term| term.may_match(&other.namespace, &other.labels));
            by_own
                || other
                    .terms
                    .required_anti
                    .iter()
                    .any(|term| term.may_match(&pod.namespace, &pod.labels))
        };
        // The first of a series may go anywhere once there is none before it.
        let was_before = |other: &PodInfo| near(other) && near(pod);
        let helps = match event {
            // An own label may be what others keep away from.
            ClusterEvent::Updated { .. } => true,
            ClusterEvent::AssignedPodAdded(added) => near(added),
            ClusterEvent::AssignedPodUpdated { old, new } => {
                let no_longer_apart = apart(old) && (new.asks_much || !apart(new));
                near(new) && !near(old) || was_before(old) && !near(new) || no_longer_apart
            }
            ClusterEvent::AssignedPodDeleted(gone) => apart(gone) || was_before(gone),
            ClusterEvent::NodeAdded(node) => terms
                .required
                .iter()
                .all(|term| node.labels.contains_key(&term.topology_key)),
            // It may be of another place now for the pod's terms or for those of the pods on it.
            ClusterEvent::NodeUpdated { old, new } => old.labels != new.labels,
            ClusterEvent::NamespaceLabelled => true,
            ClusterEvent::NodeDeleted(_)
            | ClusterEvent::StorageApplied { .. }
            | ClusterEvent::StorageGone(_) => false,
        };
        helps.into()
    }
}

/// Where pods are whose required anti-affinity means `pod`.
fn existing_anti_affinity(pod: &PodInfo, snapshot: &Snapshot<'_>) -> Places {
    let mut places = Places::default();
    for (terms, on) in snapshot.affinity_index().about(&pod.namespace) {
        for same in terms.required_anti.chunk_by(is_same_place) {
            if same.iter().any(|term| means(term, pod, snapshot)) {
                add_where(&mut places, snapshot, &same[0].topology_key, 1, on);
            }
        }
    }
    places
}

/// Adds `amount` for each of these pods, where it is.
fn add_where(places: &mut Places, snapshot: &Snapshot<'_>, key: &str, amount: i64, pods: &Counts) {
    for (node, count) in pods {
        if let Some(node) = snapshot.node(node) {
            places.add(node, key, amount * count);
        }
    }
}

fn means(term: &AffinityTerm, pod: &PodInfo, snapshot: &Snapshot<'_>) -> bool {
    term.matches(&pod.namespace, &pod.labels, snapshot.namespaces())
}

/// Whether there are terms, and all of them mean the pod.
fn all_mean(terms: &[AffinityTerm], pod: &PodInfo, snapshot: &Snapshot<'_>) -> bool {
    !terms.is_empty() && terms.iter().all(|term| means(term, pod, snapshot))
}
