//! NodeDeclaredFeatures: what a pod needs of the node's software is there. A pod on a node that
//! does not know what it asks for would run as if it had not asked.
//!
//! Source: `pkg/scheduler/framework/plugins/nodedeclaredfeatures` at v1.37.

use crate::{
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, Plugin, PluginName,
        QueueingHint, Status,
    },
    node_info::NodeInfo,
    pod_info::PodInfo,
};

#[derive(Clone, Copy)]
pub(super) struct NodeDeclaredFeatures;

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> PluginName {
        PluginName::NodeDeclaredFeatures
    }
}

impl Filter for NodeDeclaredFeatures {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if has_all(pod, node) {
            return Status::SUCCESS;
        }
        Status::unresolvable(vec!["node(s) didn't match Pod's required features".into()])
    }
}

impl EnqueueExtensions for NodeDeclaredFeatures {
    fn events(&self) -> Actions {
        Actions::ADD_NODE | Actions::UPDATE_NODE_FEATURES
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let helps = match event {
            ClusterEvent::NodeAdded(new) | ClusterEvent::NodeUpdated { new, .. } => {
                has_all(pod, new)
            }
            _ => false,
        };
        helps.into()
    }
}

fn has_all(pod: &PodInfo, node: &NodeInfo) -> bool {
    let mut needed = pod.node_features.iter();
    needed.all(|feature| node.declared_features.iter().any(|one| one == feature))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{info, node, pod_with};

    fn with_features(features: &[&str]) -> Node {
        let mut node = node("n", "4");
        let status = node.status.get_or_insert_default();
        status.declared_features = Some(features.iter().map(|one| (*one).to_owned()).collect());
        node
    }

    fn container(rules: Value) -> Value {
        json!({"name": "c", "restartPolicyRules": rules})
    }

    #[test]
    fn a_pod_goes_where_its_node_knows_what_it_asks_for() {
        const RESTARTS: &str = "RestartAllContainersOnContainerExits";
        let rules = |action: &str| json!([{"action": action, "exitCodes": {"operator": "In", "values": [1]}}]);
        let all = json!({"containers": [container(rules("RestartAllContainers"))]});
        let first = json!({"containers": [container(json!([]))], "initContainers": [container(rules("RestartAllContainers"))]});
        let own = json!({"containers": [container(rules("Restart"))]});
        let users = json!({"hostNetwork": true, "hostUsers": false, "containers": []});
        let host = json!({"hostNetwork": true, "containers": []});
        let (plain, knowing) = (
            info(&node("n", "4")),
            info(&with_features(&["X", RESTARTS])),
        );
        for (spec, on_plain, on_knowing) in [
            (all, false, true),
            (first, false, true),
            (own, true, true),
            (users, false, false),
            (host, true, true),
        ] {
            let pod = pod_with("p", spec.clone());
            let fits = |node: &NodeInfo| {
                NodeDeclaredFeatures
                    .filter(&CycleState::default(), &pod, node)
                    .is_success()
            };
            assert_eq!(
                (fits(&plain), fits(&knowing)),
                (on_plain, on_knowing),
                "{spec}"
            );
        }
    }

    #[test]
    fn only_a_node_that_knows_it_helps() {
        let spec = json!({"hostNetwork": true, "hostUsers": false, "containers": []});
        let pod = Arc::new(pod_with("p", spec));
        let (old, new) = (
            info(&with_features(&["X"])),
            info(&with_features(&["UserNamespacesHostNetworkSupport"])),
        );
        for (event, expected) in [
            (ClusterEvent::NodeAdded(&new), QueueingHint::Queue),
            (ClusterEvent::NodeAdded(&old), QueueingHint::Skip),
            (
                ClusterEvent::NodeUpdated {
                    old: &old,
                    new: &new,
                },
                QueueingHint::Queue,
            ),
            (ClusterEvent::NodeDeleted(&old), QueueingHint::Skip),
        ] {
            assert_eq!(
                NodeDeclaredFeatures.hint(&pod, &event),
                expected,
                "{event:?}"
            );
        }
        let changed = Actions::of(&ClusterEvent::NodeUpdated {
            old: &old,
            new: &new,
        });
        assert!(changed.intersects(NodeDeclaredFeatures.events()));
    }
}
