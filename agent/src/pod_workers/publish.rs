//! Hands the pod's status to the status manager.

use std::time::SystemTime;

use k8s_openapi::api::core::v1::PodStatus;

use super::{PodWorker, RuntimeState};
use crate::{
    container_config::message_file,
    pod::PodExt,
    pod_actions::Observed,
    pod_status::{self, Phase, StatusInput},
    runtime::types::{ContainerState, ContainerStatus},
};

/// Upstream's bounds of a termination message, from its file and from the log.
const MAX_MESSAGE: usize = 4096;
const MAX_LOG_MESSAGE: usize = 2048;
const MAX_LOG_LINES: usize = 80;

impl PodWorker {
    /// Computes and hands over; returns the phase. Before the API server has told of the pod
    /// nothing is handed over: a status is made from the last one, and a copy on disk may have an
    /// older one. Nor when the API has let go of it: nobody is left to tell, and what is known of
    /// such a pod may not even have its name.
    pub(super) async fn publish(
        &mut self,
        state: &RuntimeState,
        terminating: bool,
        terminated: bool,
    ) -> Phase {
        self.read_termination_messages(state).await;
        let verdicts = self.probes.verdicts();
        let observed = Observed {
            sandboxes: &state.sandboxes,
            containers: &state.containers,
            verdicts: &verdicts,
        };
        let previous = self.previous_status();
        let hooked = self.hooks.under_way().cloned().collect();
        let input = StatusInput {
            pod: &self.pod,
            previous: &previous,
            observed: &observed,
            waiting: &self.waiting,
            probes: &self.probes.states(),
            termination_messages: &self.termination_messages,
            node_ip: self.ctx.config.node_ip,
            now: SystemTime::now(),
            terminating,
            terminated,
            failed: self.failed.as_ref(),
            hooked: &hooked,
            resize_pending: self.resize_pending.as_ref(),
            resize_error: self.resize_error.as_deref(),
        };
        let status = pod_status::generate(&input);
        let phase = match status.phase.as_deref() {
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            Some("Running") => Phase::Running,
            _ => Phase::Pending,
        };
        if self.told && !self.gone {
            self.ctx.status.set(&self.pod, status).await;
        }
        phase
    }

    /// What was handed over last, with what others write as the API has it.
    fn previous_status(&self) -> PodStatus {
        let in_api = self.pod.status_or_default();
        let Some(mut known) = self.ctx.status.get(&self.uid) else {
            return in_api.clone();
        };
        let mut conditions = known.conditions.take().unwrap_or_default();
        for condition in in_api.conditions.iter().flatten() {
            match conditions
                .iter_mut()
                .find(|known| known.type_ == condition.type_)
            {
                Some(known) if !pod_status::is_own_condition(&condition.type_) => {
                    known.clone_from(condition)
                }
                Some(_) => {}
                None => conditions.push(condition.clone()),
            }
        }
        let others = pod_status::of_others(in_api);
        PodStatus {
            conditions: Some(conditions),
            nominated_node_name: others.nominated_node_name,
            resource_claim_statuses: others.resource_claim_statuses,
            extended_resource_claim_status: others.extended_resource_claim_status,
            node_allocatable_resource_claim_statuses: others
                .node_allocatable_resource_claim_statuses,
            ..known
        }
    }

    async fn read_termination_messages(&mut self, state: &RuntimeState) {
        for status in &state.containers {
            let ContainerState::Exited { exit_code, .. } = status.state else {
                continue;
            };
            if self.termination_messages.contains_key(&status.id) {
                continue;
            }
            if let Some(message) = self.termination_message(status, exit_code).await {
                self.termination_messages.insert(status.id.clone(), message);
            }
        }
        self.termination_messages
            .retain(|id, _| state.containers.iter().any(|c| c.id == *id));
    }

    /// `None`: the runtime's own message stands.
    async fn termination_message(
        &self,
        status: &ContainerStatus,
        exit_code: i32,
    ) -> Option<String> {
        let container = self.pod.container(&status.name)?;
        let file = message_file(
            &self.ctx.volumes.pod_dir(&self.uid),
            &status.name,
            status.attempt,
        );
        let fall_back = container.termination_message_policy.as_deref()
            == Some("FallbackToLogsOnError")
            && exit_code != 0;
        let log = status.log_path.clone();
        let read = move || {
            let text = read_start(&file, MAX_MESSAGE).filter(|text| !text.is_empty());
            text.or_else(|| {
                fall_back
                    .then(|| crate::logs::last_words(&log, MAX_LOG_LINES, MAX_LOG_MESSAGE))
                    .flatten()
            })
        };
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }
}

fn read_start(path: &std::path::Path, limit: usize) -> Option<String> {
    use std::io::Read as _;
    let mut text = Vec::new();
    // The container may have put a symlink or a pipe there.
    let file = rustix::fs::open(
        path,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK,
        rustix::fs::Mode::empty(),
    )
    .ok()?;
    std::fs::File::from(file)
        .take(u64::try_from(limit).unwrap_or(u64::MAX))
        .read_to_end(&mut text)
        .ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}
