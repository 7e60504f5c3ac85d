//! What every pod worker needs: handles to the parts of the node, made once at start.

use std::{path::PathBuf, sync::Arc};

use crate::{
    config::AgentConfig,
    container_config::fields::Allocatable,
    events::EventRecorder,
    objects::Objects,
    runtime::{ImageService, RuntimeService, types::PodRef},
    service_index::ServiceIndex,
    status_manager::StatusManager,
    sync_loop::PodsView,
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
    pub(crate) services: Arc<ServiceIndex>,
    pub(crate) volumes: VolumeManager,
    pub(crate) allocatable: Allocatable,
    /// The desired pods; the sync loop writes them.
    pub(crate) pods: PodsView,
}

impl NodeContext {
    /// Where the containers of a pod log to.
    pub(crate) fn log_dir(&self, pod: &PodRef) -> PathBuf {
        self.config.agent_dir().join("logs").join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
    }
}
