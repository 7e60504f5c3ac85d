//! NodeResourcesFit: no more is promised of a node's resources than it has; the emptier node is the
//! better, unless the profile says otherwise (`node_resources_fit/score.rs`).
//!
//! Source: `pkg/scheduler/framework/plugins/noderesources/fit.go` at v1.37.

mod score;

use std::{borrow::Cow, sync::Arc};

use crate::{
    config::{FitArgs, ScoringStrategy},
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, NodeNames, Plugin,
        PluginName, PreFilter, QueueingHint, Reason, Status,
    },
    node_info::NodeInfo,
    pod_info::PodInfo,
    resources::Resources,
    snapshot::Snapshot,
};

#[derive(Clone, Default)]
pub(super) struct NodeResourcesFit(Arc<Told>);

#[derive(Default)]
struct Told {
    /// Extended resources that somebody else counts: their names, and groups of names.
    ignored: Vec<String>,
    ignored_groups: Vec<String>,
    strategy: ScoringStrategy,
}

/// What a node has too little of, beyond which no more is told.
const MOST_REASONS: usize = 16;

/// What the pod asks for by name, with what is said where there is too little of it: put together
/// once, not for each node.
struct Scalars(Vec<Scalar>);

struct Scalar {
    name: String,
    asked: i64,
    insufficient: Reason,
}

impl NodeResourcesFit {
    pub(super) fn new(told: &FitArgs) -> Self {
        Self(Arc::new(Told {
            ignored: told.ignored_resources.clone(),
            ignored_groups: told.ignored_resource_groups.clone(),
            strategy: told.scoring_strategy.clone(),
        }))
    }

    /// Of an extended resource, which somebody else may count.
    fn is_ignored(&self, name: &str) -> bool {
        let Some((group, _)) = name.split_once('/') else {
            return false;
        };
        self.0.ignored.iter().any(|one| one == name)
            || self.0.ignored_groups.iter().any(|one| one == group)
    }

    /// What the pod asks for of what is counted here.
    fn counted<'a>(&self, pod: &'a PodInfo) -> Cow<'a, Resources> {
        let asked = &pod.requests;
        if !asked.scalars.keys().any(|name| self.is_ignored(name)) {
            return Cow::Borrowed(asked);
        }
        let mut counted = asked.clone();
        counted.scalars.retain(|name, _| !self.is_ignored(name));
        Cow::Owned(counted)
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> PluginName {
        PluginName::NodeResourcesFit
    }
}

impl PreFilter for NodeResourcesFit {
    fn pre_filter(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        _: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        let asked = pod.requests.scalars.iter();
        let asked = asked.filter(|(name, asked)| **asked > 0 && !self.is_ignored(name));
        let scalars: Vec<Scalar> = asked
            .map(|(name, asked)| Scalar {
                name: name.clone(),
                asked: *asked,
                insufficient: format!("Insufficient {name}").into(),
            })
            .collect();
        if !scalars.is_empty() {
            cycle.write(Scalars(scalars));
        }
        (None, Status::SUCCESS)
    }
}

impl Filter for NodeResourcesFit {
    fn filter(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        // Without allocation until the first reason.
        let (mut reasons, mut is_resolvable) = (Vec::new(), true);
        let mut look = |asked: i64, has: i64, used: i64, reason: &dyn Fn() -> Reason| {
            if asked > 0 && asked > has.saturating_sub(used) {
                reasons.push(reason());
                // No end of a pod gives what the node does not have.
                is_resolvable &= asked <= has;
            }
            reasons.len() < MOST_REASONS
        };
        let (asked, has, used) = (&pod.requests, &node.allocatable, &node.requested);
        let pods = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
        look(1, node.pods_max, pods, &|| "Too many pods".into());
        look(asked.milli_cpu, has.milli_cpu, used.milli_cpu, &|| {
            "Insufficient cpu".into()
        });
        look(
            asked.memory_bytes,
            has.memory_bytes,
            used.memory_bytes,
            &|| "Insufficient memory".into(),
        );
        let storage = (
            asked.ephemeral_storage_bytes,
            has.ephemeral_storage_bytes,
            used.ephemeral_storage_bytes,
        );
        look(storage.0, storage.1, storage.2, &|| {
            "Insufficient ephemeral-storage".into()
        });
        if !asked.scalars.is_empty()
            && let Some(Scalars(scalars)) = cycle.read()
        {
            for Scalar {
                name,
                asked,
                insufficient,
            } in scalars
            {
                if !look(*asked, has.scalar(name), used.scalar(name), &|| {
                    insufficient.clone()
                }) {
                    break;
                }
            }
        }
        match (reasons.is_empty(), is_resolvable) {
            (true, _) => Status::SUCCESS,
            (false, true) => Status::unschedulable(reasons),
            (false, false) => Status::unresolvable(reasons),
        }
    }
}

impl EnqueueExtensions for NodeResourcesFit {
    fn events(&self) -> Actions {
        Actions::ADD_NODE
            | Actions::UPDATE_NODE_ALLOCATABLE
            | Actions::DELETE_POD
            | Actions::UPDATE_POD_SCALE_DOWN
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let asked = self.counted(pod);
        let covers = |node: &NodeInfo| node.pods_max > 0 && node.allocatable.covers(&asked);
        let helps = match event {
            ClusterEvent::NodeAdded(node) => covers(node),
            ClusterEvent::NodeUpdated { old, new } => {
                let has_more = new.allocatable.any_more_of(&asked, &old.allocatable);
                covers(new) && (has_more || new.pods_max > old.pods_max)
            }
            ClusterEvent::AssignedPodUpdated { old, new } => {
                old.requests.any_more_of(&asked, &new.requests)
            }
            ClusterEvent::AssignedPodDeleted(_) | ClusterEvent::Updated { .. } => true,
            _ => false,
        };
        helps.into()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        framework::{Code, MAX_NODE_SCORE, Score},
        testing::{filtered, info, node, node_with, pod, pod_with, reasons},
    };

    fn refused(pod: &PodInfo, node: &NodeInfo) -> Vec<String> {
        reasons(&filtered(&NodeResourcesFit::default(), pod, node))
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    fn asking(name: &str, requests: &Value) -> PodInfo {
        pod_with(
            name,
            json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}),
        )
    }

    #[test]
    fn a_pod_fits_until_the_node_is_full() {
        let mut node = info(&node("n", "2"));
        for name in ["a", "b"] {
            let pod = pod(name, "1");
            assert!(refused(&pod, &node).is_empty());
            node.add_pod(Arc::new(pod));
        }
        assert_eq!(refused(&pod("c", "1"), &node), ["Insufficient cpu"]);
        assert!(
            refused(&pod("d", "0"), &node).is_empty(),
            "who asks for nothing fits"
        );
        node.pods_max = 2;
        assert_eq!(refused(&pod("d", "0"), &node), ["Too many pods"]);
        assert_eq!(
            refused(&pod("d", "1"), &node),
            ["Too many pods", "Insufficient cpu"],
            "all reasons"
        );
    }

    #[test]
    fn no_more_of_an_extended_resource_is_given_than_the_node_has() {
        let allocatable =
            json!({"cpu": "8", "pods": "10", "nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"});
        let mut node = info(&node_with(
            "n",
            json!({}),
            json!({"allocatable": allocatable}),
        ));
        let one = Arc::new(asking(
            "a",
            &json!({"nvidia.com/gpu": "1", "hugepages-2Mi": "4Mi"}),
        ));
        assert!(refused(&one, &node).is_empty());
        node.add_pod(one.clone());
        for (requests, expected) in [
            (json!({"nvidia.com/gpu": "1"}), None),
            (
                json!({"nvidia.com/gpu": "2"}),
                Some(("Insufficient nvidia.com/gpu", Code::Unschedulable)),
            ),
            (
                json!({"hugepages-2Mi": "2Mi"}),
                Some(("Insufficient hugepages-2Mi", Code::Unschedulable)),
            ),
            (
                json!({"nvidia.com/gpu": "3"}),
                Some((
                    "Insufficient nvidia.com/gpu",
                    Code::UnschedulableAndUnresolvable,
                )),
            ),
            (
                json!({"example.org/none": "1"}),
                Some((
                    "Insufficient example.org/none",
                    Code::UnschedulableAndUnresolvable,
                )),
            ),
        ] {
            let status = filtered(&NodeResourcesFit::default(), &asking("b", &requests), &node);
            let found = (!status.is_success()).then(|| (reasons(&status)[0], status.code()));
            assert_eq!(found, expected, "{requests}");
        }
        node.remove_pod(&one.uid);
        assert!(refused(&one, &node).is_empty());
    }

    #[test]
    fn only_more_of_what_a_pod_asks_for_helps_it() {
        let with = |resources: Value| {
            info(&node_with(
                "n",
                json!({}),
                json!({"allocatable": resources}),
            ))
        };
        let pod = asking("p", &json!({"cpu": "2", "nvidia.com/gpu": "1"}));
        let bare = with(json!({"cpu": "4", "memory": "1Gi", "pods": "9"}));
        let more_memory = with(json!({"cpu": "4", "memory": "2Gi", "pods": "9"}));
        let with_gpu =
            with(json!({"cpu": "4", "memory": "1Gi", "pods": "9", "nvidia.com/gpu": "1"}));
        let (large, small) = (
            asking("x", &json!({"memory": "2Gi"})),
            asking("x", &json!({"memory": "1Gi"})),
        );
        let (many, few) = (
            asking("x", &json!({"nvidia.com/gpu": "2"})),
            asking("x", &json!({"nvidia.com/gpu": "1"})),
        );
        for (event, expected) in [
            (ClusterEvent::NodeAdded(&bare), QueueingHint::Skip),
            (ClusterEvent::NodeAdded(&with_gpu), QueueingHint::Queue),
            (
                ClusterEvent::NodeUpdated {
                    old: &bare,
                    new: &more_memory,
                },
                QueueingHint::Skip,
            ),
            (
                ClusterEvent::NodeUpdated {
                    old: &bare,
                    new: &with_gpu,
                },
                QueueingHint::Queue,
            ),
            (
                ClusterEvent::AssignedPodUpdated {
                    old: &large,
                    new: &small,
                },
                QueueingHint::Skip,
            ),
            (
                ClusterEvent::AssignedPodUpdated {
                    old: &many,
                    new: &few,
                },
                QueueingHint::Queue,
            ),
            (
                ClusterEvent::AssignedPodDeleted(&small),
                QueueingHint::Queue,
            ),
        ] {
            assert_eq!(
                NodeResourcesFit::default().hint(&pod, &event),
                expected,
                "{event:?}"
            );
        }
    }

    #[test]
    fn what_somebody_else_counts_is_not_what_a_pod_waits_for() {
        let told = json!({"ignoredResources": ["example.com/gpu"]});
        let plugin = NodeResourcesFit::new(&serde_json::from_value(told).unwrap());
        let (pod, node) = (
            asking("a", &json!({"cpu": "1", "example.com/gpu": "1"})),
            info(&node("n", "4")),
        );
        let event = ClusterEvent::NodeAdded(&node);
        assert_eq!(plugin.hint(&pod, &event), QueueingHint::Queue);
        let all = NodeResourcesFit::default();
        assert_eq!(all.hint(&pod, &event), QueueingHint::Skip);
    }

    #[test]
    fn the_largest_amounts_are_compared_not_overflowed() {
        let most = i64::MAX.to_string();
        let allocatable = json!({"cpu": "1", "memory": most, "pods": "10"});
        let mut node = info(&node_with(
            "n",
            json!({}),
            json!({"allocatable": allocatable}),
        ));
        let large = Arc::new(asking("a", &json!({"memory": most})));
        for _ in 0..2 {
            node.add_pod(large.clone());
        }
        let refusal = ["Insufficient memory"];
        assert_eq!(
            refused(&asking("b", &json!({"memory": "1"})), &node),
            refusal
        );
        let score = NodeResourcesFit::default().score(&CycleState::default(), &large, &node);
        assert!(score <= MAX_NODE_SCORE / 2, "no memory is free: {score}");
    }

    #[test]
    fn who_asks_for_less_than_nothing_gives_nothing_to_others() {
        let mut node = info(&node("n", "1"));
        node.add_pod(Arc::new(asking("a", &json!({"cpu": "-5"}))));
        assert_eq!(refused(&pod("b", "2"), &node), ["Insufficient cpu"]);
    }

    #[test]
    fn the_emptier_node_scores_higher() {
        let empty = info(&node("a", "4"));
        let mut busy = info(&node("b", "4"));
        busy.add_pod(Arc::new(pod("x", "3")));
        let (pod, cycle) = (pod("p", "1"), CycleState::default());
        assert!(
            NodeResourcesFit::default().score(&cycle, &pod, &empty)
                > NodeResourcesFit::default().score(&cycle, &pod, &busy)
        );
    }
}
