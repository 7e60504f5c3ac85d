//! PodTopologySpread: as many pods of a kind in one place as in another, or nearly.
//!
//! Source: `pkg/scheduler/framework/plugins/podtopologyspread` at v1.37.

mod score;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::node_affinity;
use crate::{
    config::SpreadArgs,
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, NodeNames, Plugin,
        PluginName, PreFilter, QueueingHint, Status,
    },
    node_info::NodeInfo,
    pod_info::{PodInfo, SpreadConstraint},
    snapshot::Snapshot,
    spread_counts::{About, PlaceCounts},
};

const NOT_MATCHED: &str = "node(s) didn't match pod topology spread constraints";
const LABEL_MISSING: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";

#[derive(Clone, Default)]
pub(super) struct PodTopologySpread {
    /// For pods that say nothing, in place of the system's wishes.
    defaults: Option<Arc<[TopologySpreadConstraint]>>,
}

/// What Filter compares each node with: a count a constraint that is required.
struct Counted {
    /// In place of the pod's own, if it says nothing.
    defaults: Option<Vec<SpreadConstraint>>,
    domains: Vec<Domains>,
}

/// The pods that a constraint selects, by place.
#[derive(Debug)]
struct Domains {
    pods: Pods,
    /// Of the place with the fewest, as the constraint sees it.
    fewest: i64,
    /// Whether the constraint selects the pod itself.
    selects_itself: bool,
}

#[derive(Debug)]
enum Pods {
    /// Of the nodes that this pod may go to, by the value of the label.
    Own(HashMap<String, i64>),
    /// Of all nodes.
    Shared(PlaceCounts),
}

impl Pods {
    fn in_place(&self, value: &str) -> i64 {
        match self {
            Self::Own(pods) => pods.get(value).copied().unwrap_or(0),
            Self::Shared(counts) => counts.in_place(value),
        }
    }

    fn places(&self) -> usize {
        match self {
            Self::Own(pods) => pods.len(),
            Self::Shared(counts) => counts.len(),
        }
    }

    fn fewest(&self) -> Option<i64> {
        match self {
            Self::Own(pods) => pods.values().copied().min(),
            Self::Shared(counts) => counts.fewest(),
        }
    }
}

impl PodTopologySpread {
    pub(super) fn new(told: &SpreadArgs) -> Self {
        Self {
            defaults: told.constraints().map(Into::into),
        }
    }

    /// What the profile requires of a pod that says nothing, or wishes for it, with those that the
    /// same Services and controllers select.
    fn of_profile(
        &self,
        required: bool,
        pod: &PodInfo,
        snapshot: &Snapshot<'_>,
    ) -> Option<Vec<SpreadConstraint>> {
        let says_nothing = pod.soft_spread.is_empty() && pod.hard_spread.is_empty();
        let defaults = self.defaults.as_ref().filter(|_| says_nothing)?;
        let alike = snapshot.selectors();
        let selector = alike.of_similar(&pod.namespace, &pod.labels, pod.controller.as_ref())?;
        Some(SpreadConstraint::defaults(defaults, required, &selector))
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> PluginName {
        PluginName::PodTopologySpread
    }
}

impl PreFilter for PodTopologySpread {
    fn pre_filter(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        let defaults = self.of_profile(true, pod, snapshot);
        let constraints = defaults.as_ref().unwrap_or(&pod.hard_spread);
        if constraints.is_empty() {
            return (None, Status::SKIP);
        }
        let domains = constraints.iter().map(|constraint| {
            let pods = match counts_all_nodes(constraint, pod) {
                true => shared(constraint, constraints, pod, snapshot),
                false => own(constraint, constraints, cycle, pod, snapshot),
            };
            // Places that are not there yet are empty.
            let has_enough = pods.places() >= constraint.min_domains;
            Domains {
                fewest: pods.fewest().filter(|_| has_enough).unwrap_or(0),
                selects_itself: constraint.selects(&pod.labels),
                pods,
            }
        });
        let domains = domains.collect();
        cycle.write(Counted { defaults, domains });
        (None, Status::SUCCESS)
    }
}

impl Filter for PodTopologySpread {
    fn filter(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(Counted { defaults, domains }) = cycle.read() else {
            return Status::error("PreFilter was not asked");
        };
        let constraints = defaults.as_ref().unwrap_or(&pod.hard_spread);
        for (constraint, domains) in constraints.iter().zip(domains) {
            let Some(value) = node.labels.get(&constraint.topology_key) else {
                return Status::unresolvable(vec![LABEL_MISSING.into()]);
            };
            let pods = domains.pods.in_place(value) + i64::from(domains.selects_itself);
            if pods - domains.fewest > constraint.max_skew {
                return Status::unschedulable(vec![NOT_MATCHED.into()]);
            }
        }
        Status::SUCCESS
    }

    fn depends_on_pods(&self) -> bool {
        true
    }
}

impl EnqueueExtensions for PodTopologySpread {
    fn events(&self) -> Actions {
        Actions::ADD_POD
            | Actions::UPDATE_POD_LABEL
            | Actions::UPDATE_POD_TOLERATION
            | Actions::DELETE_POD
            | Actions::ADD_NODE
            | Actions::DELETE_NODE
            | Actions::UPDATE_NODE_LABEL
            | Actions::UPDATE_NODE_TAINT
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let constraints = &pod.hard_spread;
        // What the profile requires of it depends on who selects it.
        if constraints.is_empty() {
            return QueueingHint::Queue;
        }
        let is_counted = |other: &PodInfo| {
            other.namespace == pod.namespace
                && constraints.iter().any(|one| one.selects(&other.labels))
        };
        let counts_otherwise = |old: &PodInfo, new: &PodInfo| {
            constraints
                .iter()
                .any(|one| one.selects(&old.labels) != one.selects(&new.labels))
        };
        let helps = match event {
            ClusterEvent::Updated { old, new } => {
                let tolerates_otherwise = old.tolerations != new.tolerations;
                counts_otherwise(old, new)
                    || tolerates_otherwise && constraints.iter().any(|one| one.honours_taints)
            }
            ClusterEvent::AssignedPodAdded(other) | ClusterEvent::AssignedPodDeleted(other) => {
                is_counted(other)
            }
            ClusterEvent::AssignedPodUpdated { old, new } => {
                new.namespace == pod.namespace && counts_otherwise(old, new)
            }
            ClusterEvent::NodeAdded(node) | ClusterEvent::NodeDeleted(node) => {
                has_all_labels(node, constraints)
            }
            ClusterEvent::NodeUpdated { old, new } => {
                let fresh = CycleState::default();
                let place = |node: &NodeInfo, key: &str| node.labels.get(key).cloned();
                let moved = constraints.iter().any(|one| {
                    place(old, &one.topology_key) != place(new, &one.topology_key)
                        || counts(one, &fresh, pod, old) != counts(one, &fresh, pod, new)
                });
                moved && (has_all_labels(old, constraints) || has_all_labels(new, constraints))
            }
            ClusterEvent::NamespaceLabelled
            | ClusterEvent::StorageApplied { .. }
            | ClusterEvent::StorageGone(_) => false,
        };
        helps.into()
    }
}

/// Whether the constraint looks at every node, whatever the pod says about them.
fn counts_all_nodes(constraint: &SpreadConstraint, pod: &PodInfo) -> bool {
    let may_go_anywhere = pod.node_selector.is_empty() && pod.required_nodes().is_none();
    !constraint.honours_taints && (!constraint.honours_affinity || may_go_anywhere)
}

/// The counts that the pods of a template have in common.
fn shared(
    constraint: &SpreadConstraint,
    all: &[SpreadConstraint],
    pod: &PodInfo,
    snapshot: &Snapshot<'_>,
) -> Pods {
    let about = About::of(pod, constraint, all);
    Pods::Shared(snapshot.spread_counts().get(about, || {
        let selected = constraint.selected(&pod.namespace, snapshot.label_counts());
        let nodes = snapshot.nodes().iter();
        PlaceCounts::of(
            &constraint.topology_key,
            nodes.filter(|node| has_all_labels(node, all)),
            |node| selected.get(node).copied().unwrap_or(0),
        )
    }))
}

/// Those of a pod that may not go to every node.
fn own(
    constraint: &SpreadConstraint,
    all: &[SpreadConstraint],
    cycle: &CycleState,
    pod: &PodInfo,
    snapshot: &Snapshot<'_>,
) -> Pods {
    let mut pods = HashMap::new();
    let nodes = snapshot.nodes().iter();
    let mut nodes = nodes
        .filter(|node| has_all_labels(node, all))
        .filter(|node| counts(constraint, cycle, pod, node))
        .peekable();
    if nodes.peek().is_some() {
        let selected = constraint.selected(&pod.namespace, snapshot.label_counts());
        for node in nodes {
            if let Some(value) = node.labels.get(&constraint.topology_key) {
                let on_it = selected.get(node.name.as_str()).copied().unwrap_or(0);
                add(&mut pods, value, on_it);
            }
        }
    }
    Pods::Own(pods)
}

/// Whether the node is in some place for every constraint.
fn has_all_labels(node: &NodeInfo, constraints: &[SpreadConstraint]) -> bool {
    constraints
        .iter()
        .all(|constraint| node.labels.contains_key(&constraint.topology_key))
}

/// Whether the constraint looks at this node, by its policies.
fn counts(
    constraint: &SpreadConstraint,
    cycle: &CycleState,
    pod: &PodInfo,
    node: &NodeInfo,
) -> bool {
    let tolerates = || {
        let mut hard = node
            .taints
            .iter()
            .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
        hard.all(|taint| pod.tolerations.tolerate(taint))
    };
    (!constraint.honours_affinity || node_affinity::matches(cycle, pod, node))
        && (!constraint.honours_taints || tolerates())
}

fn add(pods: &mut HashMap<String, i64>, value: &str, amount: i64) {
    match pods.get_mut(value) {
        Some(sum) => *sum += amount,
        None => drop(pods.insert(value.to_owned(), amount)),
    }
}
