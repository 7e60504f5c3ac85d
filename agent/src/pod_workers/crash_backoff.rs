//! `CrashLoopBackOff`: the pause before a container that has ended starts again.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use tokio::time::Instant;

use super::{PodWorker, RuntimeState};
use crate::{
    events::EventType,
    pod::{PodExt, spec_hash},
    runtime::types::ContainerState,
    status_reason::StatusReason,
};

impl PodWorker {
    /// How long the container must still wait after its last end.
    pub(super) fn crash_backoff(
        &mut self,
        container: &Container,
        state: &RuntimeState,
    ) -> Option<Duration> {
        let latest = state
            .containers
            .iter()
            .filter(|c| c.name == container.name)
            .max_by_key(|c| (c.attempt, c.created_at))?;
        let ContainerState::Exited { .. } = latest.state else {
            return None;
        };
        // When its end was seen, not when it was: the machine's clock may have been set since.
        let now = Instant::now();
        self.ended
            .retain(|id, _| state.containers.iter().any(|known| known.id == *id));
        let ended = *self.ended.entry(latest.id.clone()).or_insert(now);
        let key = backoff_key(container);
        let Some((left, delay)) = self.restarts.remaining(&key, ended, now) else {
            self.restarts.next(&key, ended, now);
            return None;
        };
        let (name, pod) = (&container.name, self.pod.display());
        let why = StatusReason {
            reason: "CrashLoopBackOff".to_owned(),
            message: format!(
                "back-off {} restarting failed container={name} pod={pod}",
                go_duration(delay)
            ),
        };
        self.waiting.insert(name.clone(), why);
        let message = format!("Back-off restarting failed container {name} in pod {pod}");
        self.ctx.events.pod(
            &self.pod,
            Some(name),
            EventType::Warning,
            "BackOff",
            message,
        );
        Some(left)
    }
}

/// What a container's back-off belongs to: another image, or other resources, may well mend what
/// made it crash. Source: `GetBackoffKey` in `pkg/kubelet/container/helpers.go` at v1.37.
fn backoff_key(container: &Container) -> String {
    let resources = serde_json::to_string(&container.resources).unwrap_or_default();
    format!("{}_{}_{resources}", container.name, spec_hash(container))
}

/// `10s`, `1m20s`, `5m0s`.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{seconds}s")
    } else {
        format!("{}m{}s", seconds / 60, seconds % 60)
    }
}
