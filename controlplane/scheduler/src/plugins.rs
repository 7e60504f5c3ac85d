//! The plugins under upstream's names, a file each, and the default profile: which are asked where,
//! in which order.
//!
//! Source: `getDefaultPlugins` in `pkg/scheduler/apis/config/v1/default_plugins.go` at v1.37.

mod default_binder;
mod default_preemption;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod node_unschedulable;
mod node_volume_limits;
mod not_yet;
mod pod_topology_spread;
mod scheduling_gates;
mod taint_toleration;
mod volume_binding;
mod volume_restrictions;
mod volume_zone;

use std::sync::Arc;

use kube::Client;

pub(crate) use self::default_binder::BindError;
use self::{
    default_binder::DefaultBinder, default_preemption::DefaultPreemption,
    image_locality::ImageLocality, inter_pod_affinity::InterPodAffinity,
    node_affinity::NodeAffinity, node_name::NodeName, node_ports::NodePorts,
    node_resources_balanced_allocation::NodeResourcesBalancedAllocation,
    node_resources_fit::NodeResourcesFit, node_unschedulable::NodeUnschedulable,
    node_volume_limits::NodeVolumeLimits, not_yet::DynamicResources,
    pod_topology_spread::PodTopologySpread, scheduling_gates::SchedulingGates,
    taint_toleration::TaintToleration, volume_binding::VolumeBinding,
    volume_binding::VolumePreBind, volume_restrictions::VolumeRestrictions,
    volume_zone::VolumeZone,
};
use crate::{framework::Framework, storage::SharedStorage};

/// The default profile. It binds with `client`.
pub(crate) fn default_profile(client: Client, storage: &Arc<SharedStorage>) -> Framework {
    Framework {
        pre_bind: vec![Box::new(VolumePreBind::new(
            storage.clone(),
            client.clone(),
        ))],
        bind: vec![Box::new(DefaultBinder::new(client))],
        ..without_binding(storage)
    }
}

/// The default profile, up to the binding.
pub(crate) fn without_binding(storage: &Arc<SharedStorage>) -> Framework {
    let volume_binding = VolumeBinding::new(storage.clone());
    Framework {
        pre_enqueue: vec![Box::new(SchedulingGates)],
        pre_filter: vec![
            Box::new(NodeAffinity),
            Box::new(NodePorts),
            Box::new(NodeResourcesFit),
            Box::new(VolumeRestrictions::new(storage.clone())),
            Box::new(NodeVolumeLimits::new(storage.clone())),
            Box::new(volume_binding.clone()),
            Box::new(VolumeZone::new(storage.clone())),
            Box::new(PodTopologySpread),
            Box::new(InterPodAffinity),
            Box::new(DynamicResources),
        ],
        // The cheap and decisive ones first.
        filter: vec![
            Box::new(NodeUnschedulable),
            Box::new(NodeName),
            Box::new(TaintToleration),
            Box::new(NodeAffinity),
            Box::new(NodePorts),
            Box::new(NodeResourcesFit),
            Box::new(VolumeRestrictions::new(storage.clone())),
            Box::new(NodeVolumeLimits::new(storage.clone())),
            Box::new(volume_binding.clone()),
            Box::new(VolumeZone::new(storage.clone())),
            Box::new(PodTopologySpread),
            Box::new(InterPodAffinity),
        ],
        post_filter: vec![Box::new(DefaultPreemption::default())],
        reserve: vec![Box::new(volume_binding.clone())],
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
            Box::new(VolumeRestrictions::new(storage.clone())),
            Box::new(NodeVolumeLimits::new(storage.clone())),
            Box::new(volume_binding),
            Box::new(VolumeZone::new(storage.clone())),
            Box::new(PodTopologySpread),
            Box::new(InterPodAffinity),
        ],
        ..Framework::default()
    }
}
