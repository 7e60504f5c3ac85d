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
#[derive(Debug, Default)]
struct Domains {
    pods: HashMap<String, i64>,
    /// Of the place with the fewest, as the constraint sees it.
    fewest: i64,
    /// Whether the constraint selects the pod itself.
    selects_itself: bool,
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
        let mut domains: Vec<Domains> = constraints.iter().map(|_| Domains::default()).collect();
        let nodes: Vec<&NodeInfo> = snapshot
            .nodes()
            .iter()
            .filter(|node| has_all_labels(node, constraints))
            .collect();
        // Else there are no more of them than a node has labels.
        if !nodes.is_empty() {
            for (constraint, domains) in constraints.iter().zip(&mut domains) {
                let selected = constraint.selected(&pod.namespace, snapshot.label_counts());
                for node in nodes
                    .iter()
                    .filter(|node| counts(constraint, cycle, pod, node))
                {
                    if let Some(value) = node.labels.get(&constraint.topology_key) {
                        add(
                            &mut domains.pods,
                            value,
                            selected.get(node.name.as_str()).copied().unwrap_or(0),
                        );
                    }
                }
            }
        }
        for (constraint, domains) in constraints.iter().zip(&mut domains) {
            // Places that are not there yet are empty.
            let has_enough = domains.pods.len() >= constraint.min_domains;
            domains.fewest = domains
                .pods
                .values()
                .copied()
                .min()
                .filter(|_| has_enough)
                .unwrap_or(0);
            domains.selects_itself = constraint.selects(&pod.labels);
        }
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
            let pods =
                domains.pods.get(value).copied().unwrap_or(0) + i64::from(domains.selects_itself);
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
