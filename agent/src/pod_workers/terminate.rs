//! The end of a pod: stops what runs, reports it, and removes every trace once the API lets go of
//! it.

use std::{sync::Arc, time::Duration};

use coracle_telemetry::{Backoff, ErrorChain, span};
use tracing::Instrument as _;

use super::PodWorker;
use crate::{
    pod::PodExt,
    runtime::{
        RuntimeError,
        types::{ContainerState, SandboxState},
    },
};

const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);

impl PodWorker {
    /// `true` once nothing of the pod is left, `false` when the agent stops first.
    pub(super) async fn run_terminating(mut self) -> bool {
        self.probes.stop_all_but_readiness();
        self.hooks.stop();
        let span = span!("syncTerminatingPod", pod = %self.pod.reference(), uid = %self.uid);
        if !self.stop_everything().instrument(span).await {
            return false;
        }
        // Its object may stay for days, and its address be another pod's by then.
        self.probes.end();
        if !self
            .retry("tear down volumes", |worker| {
                let (ctx, uid) = (Arc::clone(&worker.ctx), worker.uid.clone());
                async move { ctx.volumes.teardown(&uid).await }
            })
            .await
        {
            return false;
        }
        let state = self.observe().await.unwrap_or_default();
        self.publish(&state, true, true).await;
        if !self.wait_for_deletion().await {
            return false;
        }
        self.remove_everything().await
    }

    /// Stops containers and sandbox; starts over when the grace period gets shorter.
    async fn stop_everything(&mut self) -> bool {
        let mut retry = Backoff::new(RETRY_MIN, RETRY_MAX);
        loop {
            self.take_desired();
            let Some(state) = self.observe().await else {
                if !self.pause(&mut retry).await {
                    return false;
                }
                continue;
            };
            self.probes.keep_running(&state.containers);
            let alive = state
                .containers
                .iter()
                .any(|c| !matches!(c.state, ContainerState::Exited { .. }));
            let ready = state
                .sandboxes
                .iter()
                .any(|s| s.state == SandboxState::Ready);
            if !alive && !ready {
                return true;
            }
            if self.pod.is_deleting() {
                self.publish(&state, true, false).await;
            }
            let grace = self.grace();
            let mut desired = self.desired.clone();
            let shutdown = self.shutdown.clone();
            // Another deletion with less grace counts at once: then all of this begins again with
            // that.
            let fine = tokio::select! {
                fine = self.kill_pod(&state) => fine,
                () = shutdown.cancelled() => return false,
                _ = desired.wait_for(|now| Duration::from_secs(u64::try_from(now.pod.grace_period_secs()).unwrap_or(0)) < grace
                    && now.pod.is_deleting() && grace > Duration::from_secs(1)) => true,
            };
            if !fine && !self.pause(&mut retry).await {
                return false;
            }
        }
    }

    async fn pause(&self, retry: &mut Backoff) -> bool {
        tokio::select! {
            () = self.shutdown.cancelled() => false,
            () = tokio::time::sleep(retry.pause()) => true,
        }
    }

    async fn retry<E, F>(&mut self, what: &'static str, step: impl Fn(&Self) -> F) -> bool
    where
        E: std::error::Error,
        F: Future<Output = Result<(), E>>,
    {
        let mut retry = Backoff::new(RETRY_MIN, RETRY_MAX);
        loop {
            match step(self).await {
                Ok(()) => return true,
                Err(error) => {
                    tracing::warn!(pod = %self.pod.display(), error = %ErrorChain(&error), "cannot {what}")
                }
            }
            if !self.pause(&mut retry).await {
                return false;
            }
        }
    }

    /// A pod that has finished by itself stays for people to look at until somebody deletes it.
    async fn wait_for_deletion(&mut self) -> bool {
        loop {
            let was_told = self.told;
            self.take_desired();
            if self.gone || self.pod.is_deleting() {
                return true;
            }
            if self.told && !was_told {
                let state = self.observe().await.unwrap_or_default();
                self.publish(&state, true, true).await;
            }
            tokio::select! {
                () = self.shutdown.cancelled() => return false,
                changed = self.desired.changed() => if changed.is_err() { return false },
            }
        }
    }

    async fn remove_everything(&mut self) -> bool {
        // The last status goes out while the remains are removed.
        let state = self.observe().await.unwrap_or_default();
        self.publish(&state, true, true).await;
        let removed = self
            .retry("remove what is left of a pod", |worker| {
                let (ctx, uid) = (Arc::clone(&worker.ctx), worker.uid.clone());
                async move {
                    let (sandboxes, containers) = ctx.runtime.pod_state(&uid).await?;
                    for container in containers {
                        ignore_missing(ctx.runtime.remove_container(&container.id).await)?;
                    }
                    for sandbox in sandboxes {
                        ignore_missing(ctx.runtime.stop_pod_sandbox(&sandbox.id).await)?;
                        ignore_missing(ctx.runtime.remove_pod_sandbox(&sandbox.id).await)?;
                    }
                    Ok::<(), RuntimeError>(())
                }
            })
            .await;
        if !removed {
            return false;
        }
        let (logs, dir) = (
            self.ctx.log_dir(&self.pod.reference()),
            self.ctx.volumes.pod_dir(&self.uid),
        );
        crate::gc::remove_dirs([logs, dir]).await;
        if self.gone {
            self.ctx.status.forget(&self.uid).await;
            return true;
        }
        let shutdown = self.shutdown.clone();
        let mut desired = self.desired.clone();
        tokio::select! {
            () = self.ctx.status.finish(&self.pod) => {}
            // Somebody else may have removed it by force.
            _ = desired.wait_for(|now| now.gone) => {}
            () = shutdown.cancelled() => return false,
        }
        self.ctx.status.forget(&self.uid).await;
        true
    }
}

fn ignore_missing(result: Result<(), RuntimeError>) -> Result<(), RuntimeError> {
    match result {
        Err(RuntimeError::NotFound { .. }) => Ok(()),
        other => other,
    }
}
