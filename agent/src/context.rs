//! What every pod worker needs: handles to the parts of the node, made once at start.

use std::{path::PathBuf, sync::Arc};

use k8s_openapi::api::core::v1::Pod;

use crate::{
    admission::listening::Listeners,
    config::AgentConfig,
    events::EventRecorder,
    node::{NodeView, facts::Machine},
    objects::Objects,
    pod::{PodExt, is_final},
    pod_manager::PodsView,
    runtime::{ImageService, RuntimeService, types::PodRef},
    service_index::ServiceIndex,
    status_manager::StatusManager,
    volume::VolumeManager,
};

/// The parts of a node.
pub(crate) struct NodeContext {
    pub(crate) config: AgentConfig,
    pub(crate) runtime: Arc<dyn RuntimeService>,
    pub(crate) images: Arc<dyn ImageService>,
    pub(crate) events: EventRecorder,
    pub(crate) status: StatusManager,
    pub(crate) objects: Arc<Objects>,
    pub(crate) services: ServiceIndex,
    pub(crate) volumes: VolumeManager,
    pub(crate) machine: Arc<Machine>,
    /// Who listens on the node.
    pub(crate) listeners: Listeners,
    /// The own Node object as last seen.
    pub(crate) node: NodeView,
    /// The desired pods; the sync loop writes them.
    pub(crate) pods: PodsView,
    /// Told when they have changed.
    pub(crate) pods_changed: tokio::sync::Notify,
}

impl NodeContext {
    /// Whether nothing of the pod runs any more or ever will, as its worker has told last.
    pub(crate) fn has_finished(&self, pod: &Pod) -> bool {
        self.status
            .get(&pod.uid())
            .is_some_and(|status| is_final(&status))
            || pod.is_phase_final()
    }

    /// Where the containers of a pod log to.
    pub(crate) fn log_dir(&self, pod: &PodRef) -> PathBuf {
        self.config
            .logs_dir()
            .join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
    }
}
