//! The plugins under upstream's names, a file each, and the default profile: which are asked where,
//! in which order.
//!
//! Source: `getDefaultPlugins` in `pkg/scheduler/apis/config/v1/default_plugins.go` at v1.37.

mod default_binder;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod node_unschedulable;
mod not_yet;
mod pod_topology_spread;
mod scheduling_gates;
mod taint_toleration;

use kube::Client;

pub(crate) use self::default_binder::BindError;
use self::{
    default_binder::DefaultBinder, image_locality::ImageLocality,
    inter_pod_affinity::InterPodAffinity, node_affinity::NodeAffinity, node_name::NodeName,
    node_ports::NodePorts, node_resources_balanced_allocation::NodeResourcesBalancedAllocation,
    node_resources_fit::NodeResourcesFit, node_unschedulable::NodeUnschedulable, not_yet::NotYet,
    pod_topology_spread::PodTopologySpread, scheduling_gates::SchedulingGates,
    taint_toleration::TaintToleration,
};
use crate::framework::Framework;

/// The default profile. It binds with `client`.
pub(crate) fn default_profile(client: Client) -> Framework {
    Framework {
        bind: vec![Box::new(DefaultBinder::new(client))],
        ..without_binding()
    }
}

/// The default profile, up to the binding.
pub(crate) fn without_binding() -> Framework {
    Framework {
        pre_enqueue: vec![Box::new(SchedulingGates)],
        pre_filter: vec![
            Box::new(NodeAffinity),
            Box::new(NodePorts),
            Box::new(NodeResourcesFit),
            Box::new(NotYet::VOLUME_BINDING),
            Box::new(PodTopologySpread),
            Box::new(InterPodAffinity),
            Box::new(NotYet::DYNAMIC_RESOURCES),
        ],
        // The cheap and decisive ones first.
        filter: vec![
            Box::new(NodeUnschedulable),
            Box::new(NodeName),
            Box::new(TaintToleration),
            Box::new(NodeAffinity),
            Box::new(NodePorts),
            Box::new(NodeResourcesFit),
            Box::new(PodTopologySpread),
            Box::new(InterPodAffinity),
        ],
        pre_score: vec![
            Box::new(TaintToleration),
            Box::new(NodeAffinity),
            Box::new(PodTopologySpread),
            Box::new(InterPodAffinity),
            Box::new(ImageLocality),
        ],
        score: vec![
            Box::new(TaintToleration),
            Box::new(NodeAffinity),
            Box::new(NodeResourcesFit),
            Box::new(PodTopologySpread),
            Box::new(InterPodAffinity),
            Box::new(NodeResourcesBalancedAllocation),
            Box::new(ImageLocality),
        ],
        enqueue_extensions: vec![
            Box::new(SchedulingGates),
            Box::new(NodeUnschedulable),
            Box::new(NodeName),
            Box::new(TaintToleration),
            Box::new(NodeAffinity),
            Box::new(NodePorts),
            Box::new(NodeResourcesFit),
            Box::new(PodTopologySpread),
            Box::new(InterPodAffinity),
        ],
        ..Framework::default()
    }
}
