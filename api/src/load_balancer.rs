//! Which Services of type LoadBalancer this cluster serves itself: with the addresses of its nodes;
//! and which nodes load balancers leave.

use std::{fmt, str::FromStr};

use k8s_openapi::api::core::v1::Node;

/// The taint of a node that the cluster autoscaler is about to remove.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// The class of those that ask for this by name; whoever names none is served as well.
pub const CLASS: &str = "coracle.dev/node";

/// The annotation that names who may come in, where `spec.loadBalancerSourceRanges` names nobody:
/// ranges with commas between them.
pub const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Whether a Service of this `spec.loadBalancerClass` is served here; other classes are others'
/// business.
#[must_use]
pub fn is_served(class: Option<&str>) -> bool {
    class.is_none_or(|class| class == CLASS)
}

/// Which Services of type LoadBalancer get addresses of nodes.
///
/// As text, what answers those without a class: `nodes` or `none`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Served {
    /// Those of [`CLASS`] and those without a class.
    #[default]
    #[serde(rename = "nodes")]
    Unclassed,
    /// Those alone that ask for it by name: the others are another load balancer's.
    #[serde(rename = "none")]
    Named,
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unclassed => "nodes",
            Self::Named => "none",
        })
    }
}

impl FromStr for Served {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = [Self::Unclassed, Self::Named].into_iter();
        all.find(|one| one.to_string() == text)
            .ok_or("expected nodes or none")
    }
}

impl Served {
    /// Whether a Service of this `spec.loadBalancerClass` is among them.
    #[must_use]
    pub fn include(self, class: Option<&str>) -> bool {
        match class {
            Some(_) => is_served(class),
            None => self == Self::Unclassed,
        }
    }
}

/// Whether a node is about to go, so that load balancers send it nothing new.
///
/// Source: `nodeNotDeletedPredicate` and `nodeUnTaintedPredicate` in
/// `staging/src/k8s.io/cloud-provider/controllers/service/controller.go` at v1.37.
#[must_use]
pub fn is_leaving(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let mut taints = taints.into_iter().flatten();
    node.metadata.deletion_timestamp.is_some() || taints.any(|one| one.key == TO_BE_DELETED)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_node_that_is_deleted_or_to_be_removed_is_leaving() {
        let check = |node: Value, expect: bool| {
            let read: Node = serde_json::from_value(node.clone()).expect("a Node");
            assert_eq!(is_leaving(&read), expect, "{node}");
        };
        let tainted = |key: &str| {
            json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"},
            {"key": key, "effect": "NoSchedule"}]}})
        };
        check(json!({}), false);
        check(tainted("node.kubernetes.io/unschedulable"), false);
        check(tainted("ToBeDeletedByClusterAutoscaler"), true);
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        check(deleted, true);
    }
}
