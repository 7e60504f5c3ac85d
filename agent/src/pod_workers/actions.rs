//! Carries out what [`crate::pod_actions::plan`] decided.
//!
//! The sandbox is made while volumes are, and then images come: what a container cannot be made
//! without is looked for before anything is pulled. Then the containers are started one after the
//! other.

use std::{sync::Arc, time::Duration};

use coracle_telemetry::{ErrorChain, span};
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{PodWorker, Progress, RuntimeState, images, start::Start};
use crate::{
    container_config, events::EventType, pod::PodExt, pod_actions::PodActions,
    runtime::types::SandboxStatus, volume::MountedVolumes,
};

/// What containers are started with.
struct Prepared {
    sandbox: SandboxStatus,
    volumes: MountedVolumes,
    /// One for each container, in their order.
    images: Vec<Result<images::Available, images::Unavailable>>,
}

/// How the actions went, all together.
struct Outcome {
    failed: bool,
    /// The shortest of all that wait.
    pause: Option<Duration>,
}

impl Outcome {
    fn look_again_after(&mut self, left: Duration) {
        self.pause = Some(self.pause.map_or(left, |pause| pause.min(left)));
    }

    fn into_progress(self) -> Progress {
        if self.failed {
            Progress::Failed
        } else {
            Progress::Settled(self.pause)
        }
    }
}

/// The containers that the plan starts: of the pod in the plan's order, then ephemeral ones.
fn planned<'a>(
    pod: &'a Pod,
    ephemeral: &'a [Container],
    actions: &PodActions,
) -> Vec<&'a Container> {
    let named = actions
        .init_to_start
        .iter()
        .chain(&actions.to_start)
        .filter_map(|name| pod.container(name));
    let debuggers = ephemeral
        .iter()
        .filter(|one| actions.ephemeral_to_start.contains(&one.name));
    named.chain(debuggers).collect()
}

impl PodWorker {
    /// Whether the pod has been asked to go since this sync began: then nothing more of it is
    /// started.
    pub(super) fn must_stop(&self) -> bool {
        self.desired.borrow().must_stop()
    }

    pub(super) async fn act(&mut self, actions: &PodActions, state: &RuntimeState) -> Progress {
        if let Some(progress) = self.stop_what_goes(actions, state).await {
            return progress;
        }
        let mut outcome = Outcome {
            failed: actions.resizes() && !self.resize(actions, state).await,
            pause: None,
        };
        let pod = Arc::clone(&self.pod);
        let ephemeral = pod.ephemeral_containers();
        let mut containers = planned(&pod, &ephemeral, actions);
        // What was killed just now has ended since: its back-off counts from that end.
        let fresh = if actions.to_kill.is_empty() {
            None
        } else {
            self.observe().await
        };
        let state = fresh.as_ref().unwrap_or(state);
        // Who waits, for a hook or after a crash, needs no image yet.
        containers.retain(|container| !self.hooks.hold_back(&pod, &container.name));
        containers.retain(|container| match self.crash_backoff(container, state) {
            Some(left) => {
                outcome.look_again_after(left);
                false
            }
            None => true,
        });
        if containers.is_empty() && actions.create_sandbox.is_none() {
            return outcome.into_progress();
        }
        let Some(prepared) = self.prepare(actions, state, &containers).await else {
            return Progress::Failed;
        };
        self.start_in_order(containers, prepared, state, &mut outcome)
            .await;
        outcome.into_progress()
    }

    /// What has to stop before anything starts. `Some` if nothing shall start in this sync.
    async fn stop_what_goes(
        &mut self,
        actions: &PodActions,
        state: &RuntimeState,
    ) -> Option<Progress> {
        if actions.kill_pod {
            if !self.kill_pod(state).await {
                return Some(Progress::Failed);
            }
            if actions.create_sandbox.is_none() {
                return Some(Progress::Settled(None));
            }
            self.ctx.events.pod(
                &self.pod,
                None,
                EventType::Normal,
                "SandboxChanged",
                "Pod sandbox changed, it will be killed and re-created.",
            );
        }
        if !self.kill_containers(&actions.to_kill).await {
            return Some(Progress::Failed);
        }
        self.must_stop().then_some(Progress::Settled(None))
    }

    /// One after the other, as their order is part of what the spec says; one that fails or waits
    /// does not keep those after it.
    async fn start_in_order(
        &mut self,
        containers: Vec<&Container>,
        prepared: Prepared,
        state: &RuntimeState,
        outcome: &mut Outcome,
    ) {
        let Prepared {
            sandbox,
            volumes,
            images,
        } = prepared;
        let pod = Arc::clone(&self.pod);
        for (container, image) in containers.into_iter().zip(images) {
            if self.must_stop() {
                break;
            }
            // Again for each: one that was started a moment ago may have a hook that this one
            // waits for.
            if self.hooks.hold_back(&pod, &container.name) {
                continue;
            }
            let start = match image {
                Ok(images::Available { image, present }) => {
                    if let Some(message) = present {
                        let (about, kind) = (Some(container.name.as_str()), EventType::Normal);
                        self.ctx.events.pod(&pod, about, kind, "Pulled", message);
                    }
                    self.start_container(container, &image, &sandbox, &volumes, state)
                        .await
                }
                Err(images::Unavailable { why, retry }) => {
                    self.waiting.insert(container.name.clone(), why);
                    retry.map_or(Start::Failed, Start::Later)
                }
            };
            match start {
                Start::Started => {}
                Start::Later(left) => outcome.look_again_after(left),
                Start::Failed => outcome.failed = true,
            }
        }
    }

    /// The sandbox, and meanwhile volumes and then images.
    async fn prepare(
        &mut self,
        actions: &PodActions,
        state: &RuntimeState,
        containers: &[&Container],
    ) -> Option<Prepared> {
        let ctx = Arc::clone(&self.ctx);
        let pod = Arc::clone(&self.pod);
        let sandbox = async {
            match (actions.create_sandbox, state.ready_sandbox()) {
                (None, Some(sandbox)) => Ok(Some(sandbox.clone())),
                (None, None) => Ok(None),
                (Some(attempt), _) => {
                    let config = container_config::sandbox(&ctx, &pod, attempt).await?;
                    ctx.runtime
                        .run_pod_sandbox(&config)
                        .instrument(span!("RunPodSandbox"))
                        .await
                        .map(Some)
                }
            }
        };
        let max_age = self.freshness();
        let volumes = ctx
            .volumes
            .ensure(&pod, max_age)
            .instrument(span!("volumes"));
        let images = self
            .ensure_images(containers)
            .instrument(span!("EnsureImageExists"));
        // While an image comes, a status is due that says so; the status manager holds it back if
        // all goes fast.
        let contents = async {
            match volumes.await {
                Ok(volumes) => Ok((volumes, images.await)),
                Err(error) => Err(error),
            }
        };
        let (sandbox, contents) = tokio::join!(sandbox, contents);
        self.volumes_checked = Some(Instant::now());
        let (volumes, images) = match contents {
            Ok(contents) => contents,
            Err(error) => {
                let message = ErrorChain(&error).to_string();
                self.ctx
                    .events
                    .pod(&self.pod, None, EventType::Warning, "FailedMount", message);
                return None;
            }
        };
        match sandbox {
            Ok(sandbox) => Some(Prepared {
                sandbox: sandbox?,
                volumes,
                images,
            }),
            Err(error) => {
                let message = format!("Failed to create pod sandbox: {}", ErrorChain(&error));
                self.ctx.events.pod(
                    &self.pod,
                    None,
                    EventType::Warning,
                    "FailedCreatePodSandBox",
                    message,
                );
                self.record_unavailable(containers, images);
                None
            }
        }
    }

    fn record_unavailable(
        &mut self,
        containers: &[&Container],
        images: Vec<Result<images::Available, images::Unavailable>>,
    ) {
        for (container, image) in containers.iter().zip(images) {
            if let Err(unavailable) = image {
                self.waiting.insert(container.name.clone(), unavailable.why);
            }
        }
    }
}
