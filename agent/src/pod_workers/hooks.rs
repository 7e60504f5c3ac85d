//! postStart hooks under way: each a task of its own, so that a slow one holds up neither the pod's
//! status nor its other containers' probes and restarts.
//!
//! As upstream has it, a container does not count as running before its hook is done, and
//! containers that come after it in the spec are not started before (some rely on that: a proxy
//! whose hook waits until it serves). The end of the pod ends its hooks.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{PodWorker, RuntimeState};
use crate::{
    context::NodeContext,
    events::EventType,
    lifecycle,
    pod::PodExt,
    runtime::types::{ContainerId, ContainerState},
    status_reason::StatusReason,
};

/// A hook may take long, but not forever.
const LIMIT: Duration = Duration::from_secs(600);

type Outcome = Result<(), String>;

struct Hook {
    container: String,
    outcome: Arc<Mutex<Option<Outcome>>>,
    _stop: DropGuard,
}

/// Those of one pod. Dropping them ends them.
#[derive(Default)]
pub(super) struct Hooks(HashMap<ContainerId, Hook>);

impl Hooks {
    /// Runs `work`, and wakes the worker when it is done.
    fn start(
        &mut self,
        id: ContainerId,
        container: String,
        wake: Arc<Notify>,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let (outcome, stop) = (Arc::new(Mutex::new(None)), CancellationToken::new());
        let (place, stopped) = (Arc::clone(&outcome), stop.clone());
        // Ended by its token, which the owner's guard cancels.
        drop(coracle_telemetry::spawn("hook", async move {
            if let Some(done) = stopped.run_until_cancelled(work).await {
                *place.lock() = Some(done);
                wake.notify_one();
            }
        }));
        self.0.insert(
            id,
            Hook {
                container,
                outcome,
                _stop: stop.drop_guard(),
            },
        );
    }

    /// Whether the container's hook is not done.
    pub(super) fn is_under_way(&self, id: &ContainerId) -> bool {
        self.0.contains_key(id)
    }

    /// Whose hooks are not done.
    pub(super) fn under_way(&self) -> impl Iterator<Item = &ContainerId> {
        self.0.keys()
    }

    /// Whether a container that comes before this one in the spec is not done with its hook.
    pub(super) fn hold_back(&self, pod: &Pod, name: &str) -> bool {
        let position = |name: &str| {
            pod.all_containers()
                .position(|container| container.name == name)
        };
        let Some(own) = position(name) else {
            return false;
        };
        self.0
            .values()
            .any(|hook| position(&hook.container).is_some_and(|other| other < own))
    }

    /// Those that are done, with their containers' names; and forgets those of containers that run
    /// no more.
    fn settle(
        &mut self,
        runs: impl Fn(&ContainerId) -> bool,
    ) -> Vec<(ContainerId, String, Outcome)> {
        let mut done = Vec::new();
        self.0.retain(|id, hook| {
            if !runs(id) {
                return false;
            }
            let outcome = hook.outcome.lock().take();
            let goes_on = outcome.is_none();
            done.extend(outcome.map(|outcome| (id.clone(), hook.container.clone(), outcome)));
            goes_on
        });
        done
    }

    /// Ends all.
    pub(super) fn stop(&mut self) {
        self.0.clear();
    }
}

impl PodWorker {
    /// Starts the postStart hook of a container that has just been started, if it has one.
    pub(super) fn start_hook(
        &mut self,
        container: &Container,
        id: &ContainerId,
        pod_ip: Option<std::net::IpAddr>,
    ) {
        let Some(hook) = container
            .lifecycle
            .as_ref()
            .and_then(|lifecycle| lifecycle.post_start.clone())
        else {
            return;
        };
        let (ctx, wake): (Arc<NodeContext>, _) = (Arc::clone(&self.ctx), Arc::clone(&self.wake));
        let (own, own_id) = (container.clone(), id.clone());
        self.hooks
            .start(id.clone(), container.name.clone(), wake, async move {
                lifecycle::run(ctx.runtime.as_ref(), &own_id, &own, &hook, pod_ip, LIMIT).await
            });
    }

    /// Takes note of hooks that are done; a container whose hook failed is killed. Whether one was.
    pub(super) async fn settle_hooks(&mut self, state: &RuntimeState) -> bool {
        let running = |id: &ContainerId| {
            state
                .containers
                .iter()
                .any(|c| c.id == *id && matches!(c.state, ContainerState::Running { .. }))
        };
        let mut killed = false;
        for (id, name, outcome) in self.hooks.settle(running) {
            let Err(message) = outcome else { continue };
            let pod = Arc::clone(&self.pod);
            let Some(container) = pod.container(&name) else {
                continue;
            };
            let text = format!("PostStartHook failed: {message}");
            self.ctx.events.pod(
                &pod,
                Some(&name),
                EventType::Warning,
                "FailedPostStartHook",
                text,
            );
            let why = StatusReason::new("PostStartHookError", message);
            self.waiting.insert(name.clone(), why);
            self.kill_container(container, &id, "FailedPostStartHook", None)
                .await;
            killed = true;
        }
        killed
    }
}
