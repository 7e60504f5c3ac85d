//! What a worker sees: what runs for its pod, what the probes have to ask, how long the pod may go
//! on.

use std::{sync::Arc, time::Duration};

use coracle_telemetry::ErrorChain;

use super::{PodWorker, remembered};
use crate::{
    pod::{PodExt, system_time},
    pod_status::{ID_SCHEME, ProbeState},
    prober::Seed,
    runtime::types::{ContainerState, ContainerStatus, SandboxState, SandboxStatus},
};

/// What ran before the agent did is probed anew once the API server has told what it knows of it,
/// or is silent this long.
const SILENCE: Duration = Duration::from_secs(30);

/// What runs for the pod, as last read.
#[derive(Default)]
pub(super) struct RuntimeState {
    pub(super) sandboxes: Vec<SandboxStatus>,
    pub(super) containers: Vec<ContainerStatus>,
}

impl RuntimeState {
    /// The newest sandbox that containers run in.
    pub(super) fn ready_sandbox(&self) -> Option<&SandboxStatus> {
        let ready = self
            .sandboxes
            .iter()
            .filter(|sandbox| sandbox.state == SandboxState::Ready);
        ready.max_by_key(|sandbox| sandbox.attempt)
    }

    pub(super) fn ips(&self) -> Vec<std::net::IpAddr> {
        self.sandboxes
            .iter()
            .max_by_key(|s| (s.attempt, s.created_at))
            .map(|s| s.ips.clone())
            .unwrap_or_default()
    }
}

impl PodWorker {
    pub(super) async fn observe(&self) -> Option<RuntimeState> {
        match self.ctx.runtime.pod_state(&self.uid).await {
            Ok((sandboxes, mut containers)) => {
                containers.extend(remembered::containers(&self.pod, &containers));
                Some(RuntimeState {
                    sandboxes,
                    containers,
                })
            }
            Err(error) => {
                tracing::warn!(pod = %self.pod.display(), error = %ErrorChain(&error), "cannot read the state of a pod");
                None
            }
        }
    }

    pub(super) fn sync_probes(&mut self, state: &RuntimeState) {
        let runs =
            |status: &&ContainerStatus| matches!(status.state, ContainerState::Running { .. });
        let running = || {
            state
                .containers
                .iter()
                .filter(runs)
                .map(|status| status.id.clone())
        };
        let inherited = self.inherited.get_or_insert_with(|| running().collect());
        let unsaid = !self.told && self.began.elapsed() < SILENCE;
        let pod = Arc::clone(&self.pod);
        // What ran before this agent did keeps its last known state until the probes say otherwise.
        let seed = |status: &ContainerStatus| {
            if !inherited.contains(&status.id) {
                return Seed::Fresh;
            }
            if unsaid {
                return Seed::Unsaid;
            }
            let id = format!("{ID_SCHEME}{}", status.id);
            let known = pod.status_or_default();
            let mut statuses = known
                .container_statuses
                .iter()
                .flatten()
                .chain(known.init_container_statuses.iter().flatten());
            match statuses.find(|known| known.container_id.as_deref() == Some(&id)) {
                Some(known) => Seed::Kept(ProbeState {
                    started: known.started == Some(true),
                    ready: known.ready,
                }),
                None => Seed::Fresh,
            }
        };
        // As upstream: not before its postStart hook is done.
        let mut probed = state.containers.clone();
        probed.retain(|status| !self.hooks.is_under_way(&status.id));
        self.probes
            .sync(&self.pod, &probed, &state.ips(), &self.wake, seed);
    }

    /// How long the pod may still run, if it has a deadline.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let limit = u64::try_from(self.pod.spec_or_default().active_deadline_seconds?).ok()?;
        let known = self
            .ctx
            .status
            .get(&self.uid)
            .and_then(|status| status.start_time);
        let start = known.or_else(|| self.pod.status_or_default().start_time.clone());
        let start = start.map_or(self.started_at, |start| system_time(&start));
        Some(Duration::from_secs(limit).saturating_sub(start.elapsed().unwrap_or_default()))
    }
}
