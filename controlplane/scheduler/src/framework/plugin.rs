//! The extension points, a trait each.
//!
//! Plugins are pure and quick, up to Permit: they run on the scheduler's one task, between two
//! events. From PreBind on they may ask the API server; each pod has a task of its own for that.
//! Extenders are neither pure nor quick, and waited for (`extenders`).
//!
//! Source: `k8s.io/kube-scheduler/framework/interface.go` at v1.37.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;

use super::{
    cluster_event::{Actions, ClusterEvent, QueueingHint},
    cycle_state::CycleState,
    diagnosis::Diagnosis,
    extenders::Extenders,
    plugin_name::PluginName,
    status::Status,
};
use crate::{cache::Cache, node_info::NodeInfo, pod_info::PodInfo, snapshot::Snapshot};

/// The best score of a plugin; the worst is 0.
pub(crate) const MAX_NODE_SCORE: i64 = 100;

/// The only nodes that a pod can be on.
pub(crate) type NodeNames = BTreeSet<String>;

/// What every plugin has.
pub(crate) trait Plugin: Send + Sync {
    fn name(&self) -> PluginName;
}

/// Says whether a pod may be tried at all.
pub(crate) trait PreEnqueue: Plugin {
    fn pre_enqueue(&self, pod: &PodInfo) -> Status;
}

/// Looks at the pod and all nodes, before Filter looks at each.
pub(crate) trait PreFilter: Plugin {
    /// The nodes that alone come into question, if there are such. [`Status::SKIP`] if the plugin's
    /// Filter has nothing to do.
    fn pre_filter(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status);
}

/// Says whether a node can take a pod at all.
pub(crate) trait Filter: Plugin {
    fn filter(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status;

    /// Whether that depends on what PreFilter has seen of pods: it has to look again if some of
    /// them were not there.
    fn depends_on_pods(&self) -> bool {
        false
    }
}

/// Asks the Filter plugins of a profile about one node.
pub(crate) trait Filters {
    /// The first plugin that says no, with all its reasons.
    fn run_filter(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status;

    /// The same from PreFilter on.
    fn run_filter_anew(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot<'_>) -> Status;

    /// Whether what they say in this attempt depends on what PreFilter has seen of pods.
    fn depend_on_pods(&self, cycle: &CycleState) -> bool;
}

/// An attempt that has found no node.
pub(crate) struct Failed<'a> {
    pub(crate) filters: &'a dyn Filters,
    /// Who else has a say in which pods end.
    pub(crate) extenders: &'a Extenders,
    pub(crate) cycle: &'a CycleState,
    pub(crate) pod: &'a PodInfo,
    pub(crate) diagnosis: &'a Diagnosis,
    /// Where room is made for the pod already.
    pub(crate) nominated: Option<&'a str>,
    /// To try things out in; it is left as it was.
    pub(crate) cache: &'a mut Cache,
}

/// What is to become of a pod that has found no node.
#[derive(Debug, Default)]
pub(crate) enum Nomination {
    /// It waits where it waits.
    #[default]
    Unchanged,
    /// No room is made for it, anywhere.
    Withdrawn,
    /// These end to make room for it on this node.
    Node {
        name: String,
        victims: Vec<Arc<PodInfo>>,
    },
}

/// Makes room for a pod that fits nowhere.
pub(crate) trait PostFilter: Plugin {
    /// What is to be done, and why nothing is, for people to read. A success ends the attempt all
    /// the same: the room is not there yet.
    fn post_filter(&self, failed: &mut Failed<'_>) -> (Nomination, Status);
}

/// Looks at the pod and the nodes that it fits on, before Score looks at each.
pub(crate) trait PreScore: Plugin {
    /// [`Status::SKIP`] if the plugin's Score has nothing to do.
    fn pre_score(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        feasible: &[&NodeInfo],
        snapshot: &Snapshot<'_>,
    ) -> Status;
}

/// Says how well a node suits a pod.
pub(crate) trait Score: Plugin {
    /// Higher is better; any scale if [`Score::normalize`] brings it to 0..=[`MAX_NODE_SCORE`].
    fn score(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64;

    /// NormalizeScore: brings the scores of all feasible nodes to 0..=[`MAX_NODE_SCORE`]. Both
    /// slices are of one order.
    fn normalize(&self, _pod: &PodInfo, _nodes: &[&NodeInfo], _scores: &mut [i64]) {}
}

/// Keeps account of what a pod takes beside what the cache counts.
pub(crate) trait Reserve: Plugin {
    fn reserve(&self, cycle: &mut CycleState, pod: &PodInfo, node: &NodeInfo) -> Status;

    /// Gives it back, also after a failed [`Reserve::reserve`]. Idempotent.
    fn unreserve(&self, cycle: &mut CycleState, pod: &PodInfo, node: &str);
}

/// Says whether a pod may be bound now, later ([`super::Code::Wait`]) or not.
pub(crate) trait Permit: Plugin {
    fn permit(&self, cycle: &CycleState, pod: &PodInfo, node: &str) -> Status;
}

/// Does what has to be done before the pod is bound.
pub(crate) trait PreBind: Plugin {
    /// PreBindPreFlight: whether there is something to do, which may take long. If not,
    /// [`PreBind::pre_bind`] has nothing to say.
    fn has_work(&self, cycle: &CycleState) -> bool;

    fn pre_bind<'a>(
        &'a self,
        cycle: &'a CycleState,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> BoxFuture<'a, Status>;
}

/// Binds the pod.
pub(crate) trait Bind: Plugin {
    /// [`Status::SKIP`] leaves it to the next.
    fn bind<'a>(
        &'a self,
        cycle: &'a CycleState,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> BoxFuture<'a, Status>;
}

/// Hears of pods that are bound.
pub(crate) trait PostBind: Plugin {
    fn post_bind(&self, cycle: &CycleState, pod: &PodInfo, node: &str);
}

/// What may let a pod fit that this plugin has refused.
pub(crate) trait EnqueueExtensions: Plugin {
    /// The sorts of events; of others nothing is asked.
    fn events(&self) -> Actions;

    /// Whether this event may help `pod`. To be wrong with [`QueueingHint::Queue`] costs an
    /// attempt; with [`QueueingHint::Skip`] the pod waits five minutes for nothing.
    fn hint(&self, _pod: &PodInfo, _event: &ClusterEvent<'_>) -> QueueingHint {
        QueueingHint::Queue
    }
}

/// Scales so that the largest becomes 100; with `reverse`, so that the largest becomes 0.
///
/// Source: `pkg/scheduler/framework/plugins/helper/normalize_score.go` at v1.37.
pub(crate) fn normalize_by_max(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let scaled = if max == 0 {
            0
        } else {
            *score * MAX_NODE_SCORE / max
        };
        *score = if reverse {
            MAX_NODE_SCORE - scaled
        } else {
            scaled
        };
    }
}
