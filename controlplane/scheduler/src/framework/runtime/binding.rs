//! From the permission to the binding: what runs beside the attempts of other pods.

use super::Framework;
use crate::{
    framework::{Code, CycleState, Permission, Status},
    pod_info::PodInfo,
};

impl Framework {
    /// Whether the pod's binding may take long: a plugin has something to do before it, or it is
    /// an extender's.
    pub(crate) fn binds_slowly(&self, cycle: &CycleState, pod: &PodInfo) -> bool {
        self.pre_bind.iter().any(|plugin| plugin.has_work(cycle)) || self.extenders.have_binder(pod)
    }

    /// Everything from the permission to the binding.
    pub(crate) async fn run_bind(
        &self,
        cycle: &CycleState,
        pod: &PodInfo,
        node: &str,
        permission: Option<Permission>,
    ) -> Status {
        if let Some(permission) = permission {
            let status = self.waiting.wait(&pod.uid, permission).await;
            if !status.is_success() {
                return status;
            }
        }
        for plugin in &self.pre_bind {
            let status = plugin.pre_bind(cycle, pod, node).await;
            if !matches!(status.code(), Code::Success | Code::Skip) {
                return status.by(plugin.name());
            }
        }
        let status = match self.extenders.bind(pod, node).await {
            Some(status) => status,
            None => self.run_bind_plugins(cycle, pod, node).await,
        };
        if status.is_success() {
            self.post_bind
                .iter()
                .for_each(|plugin| plugin.post_bind(cycle, pod, node));
        }
        status
    }

    async fn run_bind_plugins(&self, cycle: &CycleState, pod: &PodInfo, node: &str) -> Status {
        for plugin in &self.bind {
            let status = plugin.bind(cycle, pod, node).await;
            match status.code() {
                Code::Skip => {}
                Code::Success => return status,
                _ => return status.by(plugin.name()),
            }
        }
        Status::error("no plugin binds this pod")
    }
}
