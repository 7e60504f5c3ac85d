//! One sync of a pod that shall run: reads, decides, acts, reports.

use coracle_telemetry::ErrorChain;
use tokio::time::Instant;

use super::{PodWorker, Progress, observe::RuntimeState, remembered};
use crate::{
    events::EventType,
    objects::FRESH,
    pod::PodExt,
    pod_actions::{self, Observed, PodActions},
    status_reason::StatusReason,
};

impl PodWorker {
    /// Reads, decides, acts, reports.
    pub(super) async fn sync(&mut self) -> Progress {
        let state = match self.observe().await {
            Some(state) => state,
            None => return Progress::Failed,
        };
        // A failed hook costs its container: what was observed no longer holds then.
        let state = if self.settle_hooks(&state).await {
            match self.observe().await {
                Some(state) => state,
                None => return Progress::Failed,
            }
        } else {
            state
        };
        if !self.told && remembered::must_be_told(&self.pod, &state.containers) {
            return Progress::Settled(None);
        }
        self.sync_probes(&state);
        if self.deadline().is_some_and(|left| left.is_zero()) {
            let message =
                "Pod was active on the node longer than the specified deadline".to_owned();
            self.ctx.events.pod(
                &self.pod,
                None,
                EventType::Normal,
                "DeadlineExceeded",
                message.clone(),
            );
            self.failed = Some(StatusReason::new("DeadlineExceeded", message));
            return Progress::Finished;
        }
        let (progress, state) = match self.converge(state).await {
            Some(result) => result,
            None => return Progress::Failed,
        };
        let phase = self.publish(&state, false, false).await;
        self.collect_dead(&state).await;
        if phase.is_final() {
            return Progress::Finished;
        }
        match (progress, self.deadline()) {
            (Progress::Settled(pause), Some(left)) => {
                Progress::Settled(Some(pause.unwrap_or(left).min(left)))
            }
            (progress, _) => progress,
        }
    }

    /// Acts until the plan stays the same or is empty, so that one step follows the other without
    /// an event in between.
    async fn converge(&mut self, mut state: RuntimeState) -> Option<(Progress, RuntimeState)> {
        let mut last = PodActions::default();
        loop {
            let verdicts = self.probes.verdicts();
            let observed = Observed {
                sandboxes: &state.sandboxes,
                containers: &state.containers,
                verdicts: &verdicts,
            };
            let actions = pod_actions::plan(&self.pod, &observed);
            if !actions.resizes() {
                self.resize_error = None;
            }
            if actions.is_empty() {
                self.refresh_volumes().await;
                return Some((Progress::Settled(None), state));
            }
            // Held back by the status manager unless it is news: a pod that starts fast is reported
            // once.
            self.publish(&state, false, false).await;
            let progress = self.act(&actions, &state).await;
            state = self.observe().await?;
            self.sync_probes(&state);
            let stuck = actions == last
                || !matches!(progress, Progress::Settled(None))
                || self.desired.borrow().must_stop();
            if stuck {
                // Who waits out a crash must not keep the other containers from what has changed in
                // their volumes.
                if self.volumes_checked.is_some() && !self.desired.borrow().must_stop() {
                    self.refresh_volumes().await;
                }
                return Some((progress, state));
            }
            last = actions;
        }
    }

    /// Brings ConfigMaps, Secrets and tokens up to date now and then.
    async fn refresh_volumes(&mut self) {
        let due = match self.volumes_checked {
            None => true,
            // A little before the next look, which may come a little early.
            Some(at) => at.elapsed() >= self.ctx.config.sync_interval * 59 / 60,
        };
        if due {
            self.volumes_checked = Some(Instant::now());
            if let Err(error) = self.ctx.volumes.ensure(&self.pod, FRESH).await {
                tracing::warn!(pod = %self.pod.display(), error = %ErrorChain(&error), "cannot refresh volumes");
            }
        }
    }
}
