//! Asks once whether this node takes the pod at all, before anything of it is made.

use super::PodWorker;
use crate::{
    admission::{self, NodeView, sysctl::AllowList},
    container_config::apparmor,
    events::Severity,
    pod::PodExt,
    pod_status::WaitingReason,
};

impl PodWorker {
    /// Fails the pod if the node refuses it. What runs already was taken: a restart of the agent does not end it.
    pub(super) async fn admit(&mut self) {
        if self.admitted || self.pod.is_deleting() || self.pod.is_phase_final() {
            return;
        }
        // Asked again after the pause that a failed sync makes.
        let Some(state) = self.observe().await else { return };
        self.admitted = true;
        if !state.sandboxes.is_empty() || !state.containers.is_empty() {
            return;
        }
        // Checked when the agent started.
        let unsafe_sysctls = AllowList::new(&self.ctx.config.allowed_unsafe_sysctls).unwrap_or_default();
        let node = NodeView { unsafe_sysctls: &unsafe_sysctls, apparmor: apparmor::kernel };
        if let Err(rejection) = admission::admit(&self.pod, &node) {
            self.ctx.events.pod(&self.pod, None, Severity::Warning, rejection.reason, rejection.message.clone());
            let message = format!("Pod was rejected: {}", rejection.message);
            self.failed = Some(WaitingReason { reason: rejection.reason.to_owned(), message });
        }
    }
}
