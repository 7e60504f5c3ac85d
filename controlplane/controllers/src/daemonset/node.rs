//! On which nodes a DaemonSet runs. Pure.
//!
//! Source: `pkg/controller/daemon/daemon_controller.go` (NodeShouldRunDaemonPod, predicates),
//! `pkg/controller/daemon/util/daemonset_util.go` (AddOrUpdateDaemonPodTolerations) at v1.37.

use std::{borrow::Cow, collections::BTreeMap};

use coracle_api::scheduling::{NodeView, required_affinity_matches, tolerates_any};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, PodSpec, Toleration},
};

/// Taints of a node in trouble, and of one that takes no other pods.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// A pod in the node's own network needs no other.
const NO_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// What a DaemonSet's pods ask of a node, made once for all nodes.
pub(super) struct Demands<'a> {
    spec: Cow<'a, PodSpec>,
    tolerations: Vec<Toleration>,
}

/// What a node is to a DaemonSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A pod belongs there.
    Run,
    /// No pod is put there, and one that is there stays.
    Keep,
    /// No pod may be there.
    Leave,
}

impl<'a> Demands<'a> {
    pub(super) fn of(ds: &'a DaemonSet) -> Self {
        let spec = ds.spec.template.spec.as_ref();
        let spec = spec.map_or_else(Cow::default, Cow::Borrowed);
        let tolerations = tolerations(&spec);
        Self { spec, tolerations }
    }

    pub(super) fn place(&self, node: &Node) -> Place {
        let empty = BTreeMap::new();
        let view = NodeView {
            name: node.metadata.name.as_deref().unwrap_or_default(),
            labels: node.metadata.labels.as_ref().unwrap_or(&empty),
        };
        let named = self.spec.node_name.as_deref().unwrap_or_default();
        let (selector, affinity) = (
            self.spec.node_selector.as_ref(),
            self.spec.affinity.as_ref(),
        );
        if !named.is_empty() && named != view.name
            || !required_affinity_matches(selector, affinity, view)
        {
            return Place::Leave;
        }
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
        let repelled = |effect: &str| {
            let mut taints = taints.unwrap_or_default().iter();
            taints.any(|taint| taint.effect == effect && !tolerates_any(&self.tolerations, taint))
        };
        if repelled("NoExecute") {
            Place::Leave
        } else if repelled("NoSchedule") {
            Place::Keep
        } else {
            Place::Run
        }
    }
}

/// What a DaemonSet's pod tolerates: its own, and what every one does.
pub(super) fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let network = spec.host_network.unwrap_or(false).then_some(NO_NETWORK);
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let toleration = Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        let is_the_same = |other: &Toleration| {
            let value = other.value.as_deref().unwrap_or_default();
            (&other.key, &other.operator, &other.effect)
                == (&toleration.key, &toleration.operator, &toleration.effect)
                && value.is_empty()
        };
        // Also without the seconds after which the user's would end.
        all.retain(|other| !is_the_same(other));
        all.push(toleration);
    }
    all
}
