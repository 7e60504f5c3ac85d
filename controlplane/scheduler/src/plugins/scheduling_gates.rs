//! SchedulingGates: a pod is not tried before the last of its gates is taken away.
//!
//! Source: `pkg/scheduler/framework/plugins/schedulinggates` at v1.37. There the reason names the
//! gates; nobody reads it: what the API tells of a gated pod is written as the pod is created.

use crate::{
    framework::{
        Actions, ClusterEvent, EnqueueExtensions, Plugin, PluginName, PreEnqueue, QueueingHint,
        Status,
    },
    pod_info::PodInfo,
};

pub(super) struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> PluginName {
        PluginName::SchedulingGates
    }
}

impl PreEnqueue for SchedulingGates {
    fn pre_enqueue(&self, pod: &PodInfo) -> Status {
        if pod.is_gated {
            return Status::unresolvable(vec!["waiting for scheduling gates".into()]);
        }
        Status::SUCCESS
    }
}

impl EnqueueExtensions for SchedulingGates {
    fn events(&self) -> Actions {
        Actions::UPDATE_POD_GATES_ELIMINATED
    }

    fn hint(&self, _pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        matches!(event, ClusterEvent::Updated { .. }).into()
    }
}
