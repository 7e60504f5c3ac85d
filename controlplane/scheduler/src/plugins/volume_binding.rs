//! VolumeBinding: a pod goes where the volumes of its claims can be reached. A claim that waits for
//! its first pod gets a volume as the pod gets its node: one that is there, or one that is made.
//!
//! ```text
//! PreFilter: what the claims want > Filter, a node: find > Reserve: find once more for the one node, assume
//!                                                                > PreBind: write, and wait until the controller has bound
//! ```
//!
//! | module | what |
//! |---|---|
//! | here | the extension points up to Reserve, and the hints |
//! | `wanted` | what the claims want, looked up once for all nodes |
//! | `find` | pure: whether a node will do, and which volumes the claims get there |
//! | `reserve` | what is assumed, and how it is given back |
//! | `pre_bind` | what is written, and the wait |
//! | `check` | how far the binding is |
//!
//! Not here: volumes of in-tree plugins are not taken for those of the CSI drivers that have come
//! after them, and there are no scores: upstream's are off by default.
//!
//! Source: `pkg/scheduler/framework/plugins/volumebinding` at v1.37.

mod check;
mod find;
mod pre_bind;
mod reserve;
mod wanted;

use std::sync::Arc;

use coracle_api::scheduling::NodeView;
use coracle_telemetry::ErrorChain;

use self::wanted::{Wanted, limit};
pub(super) use self::{pre_bind::VolumePreBind, wanted::is_owned_by};
use crate::{
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, NodeNames, Plugin,
        PluginName, PreFilter, QueueingHint, Reserve, Status,
    },
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
    storage::{SharedStorage, StorageObject},
};

/// The part of the plugin that decides.
#[derive(Debug, Clone)]
pub(super) struct VolumeBinding {
    storage: Arc<SharedStorage>,
}

impl VolumeBinding {
    pub(super) fn new(storage: Arc<SharedStorage>) -> Self {
        Self { storage }
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> PluginName {
        PluginName::VolumeBinding
    }
}

impl PreFilter for VolumeBinding {
    fn pre_filter(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        _: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        if pod.claims().is_empty() {
            return (None, Status::SKIP);
        }
        let status = match Wanted::of(pod, &self.storage.lock()) {
            Ok(wanted) => {
                cycle.write(wanted);
                Status::SUCCESS
            }
            Err(status) => status,
        };
        (None, status)
    }
}

impl Filter for VolumeBinding {
    fn filter(&self, cycle: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        let Some(wanted) = cycle.read::<Wanted>() else {
            return Status::SUCCESS;
        };
        match find::find(wanted, view(node)) {
            Ok(Ok(_)) => Status::SUCCESS,
            Ok(Err(conflicts)) => {
                let reasons = conflicts.iter().map(|conflict| conflict.to_string().into());
                Status::unresolvable(reasons.collect())
            }
            Err(error) => Status::error(ErrorChain(&error).to_string()),
        }
    }
}

impl Reserve for VolumeBinding {
    /// Finds once more for the one node: since PreFilter nothing has changed, and so no plan is
    /// kept for each of the others.
    fn reserve(&self, cycle: &mut CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(wanted) = cycle.read::<Wanted>() else {
            return Status::SUCCESS;
        };
        let plan = match find::find(wanted, view(node)) {
            Ok(Ok(plan)) => plan,
            // Filter has said otherwise.
            Ok(Err(_)) => return Status::error("the volumes that were found are gone"),
            Err(error) => return Status::error(ErrorChain(&error).to_string()),
        };
        let reserved = self
            .storage
            .change(|storage| reserve::assume(storage, &plan, pod, node));
        match reserved {
            Ok(reserved) => {
                cycle.write(reserved);
                Status::SUCCESS
            }
            Err(error) => Status::failed(error),
        }
    }

    fn unreserve(&self, cycle: &mut CycleState, pod: &PodInfo, _: &str) {
        if let Some(reserved) = cycle.read::<reserve::Reserved>() {
            self.storage
                .change(|storage| reserve::give_back(storage, reserved, pod));
        }
    }
}

impl EnqueueExtensions for VolumeBinding {
    /// Not CSINodes, which upstream asks for to know which in-tree volumes are CSI's by now.
    fn events(&self) -> Actions {
        Actions::ADD_NODE
            | Actions::UPDATE_NODE_LABEL
            | Actions::ADD_CLAIM
            | Actions::UPDATE_CLAIM
            | Actions::ADD_VOLUME
            | Actions::UPDATE_VOLUME
            | Actions::ADD_STORAGE_CLASS
            | Actions::UPDATE_STORAGE_CLASS
            | Actions::UPDATE_CSI_DRIVER
            | Actions::ADD_STORAGE_CAPACITY
            | Actions::UPDATE_STORAGE_CAPACITY
            | Actions::DELETE_POD
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let helps = match event {
            // What was assumed for a pod that gets no node after all is free. Upstream tells
            // nobody.
            ClusterEvent::AssignedPodDeleted(gone) => {
                gone.node_name.is_none() && !gone.claims().is_empty()
            }
            ClusterEvent::StorageApplied { old, new } => may_help(pod, *old, new),
            _ => true,
        };
        helps.into()
    }
}

fn may_help(pod: &PodInfo, old: Option<&StorageObject>, new: &StorageObject) -> bool {
    match (old, new) {
        (_, StorageObject::Claim(claim)) => {
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            let metadata = &claim.metadata;
            pod.uses_claim(&part(&metadata.namespace), &part(&metadata.name))
        }
        (Some(StorageObject::Class(old)), StorageObject::Class(new)) => {
            old.allowed_topologies != new.allowed_topologies
        }
        (Some(StorageObject::CsiDriver(old)), StorageObject::CsiDriver(new)) => {
            old.spec.storage_capacity == Some(true) && new.spec.storage_capacity != Some(true)
        }
        (Some(StorageObject::Capacity(old)), StorageObject::Capacity(new)) => {
            limit(new) > limit(old)
        }
        _ => true,
    }
}

/// A node as volumes see it.
fn view(node: &NodeInfo) -> NodeView<'_> {
    NodeView {
        name: &node.name,
        labels: &node.labels,
    }
}

#[cfg(test)]
mod tests;
