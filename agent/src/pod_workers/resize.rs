//! Gives a running pod the requests and limits that it wants now, without a restart where its
//! containers bear that.

use std::{sync::Arc, time::Duration};

use coracle_telemetry::ErrorChain;

use super::{PodWorker, RuntimeState};
use crate::{
    allocation,
    container_config::resources::{self, Amounts},
    events::EventType,
    pod::PodExt,
    pod_actions::PodActions,
    runtime::RuntimeError,
};

/// How often room is looked for, for want of which a resize waits.
pub(super) const ROOM_PAUSE: Duration = Duration::from_secs(5);

impl PodWorker {
    /// Turns the wanted pod into the one that is to run.
    pub(super) fn allocate(&mut self) {
        let known = self.ctx.status.get(&self.uid);
        let known = known
            .as_ref()
            .unwrap_or_else(|| self.pod.status_or_default());
        let found = if self.told {
            allocation::allocate(&self.pod, known, self.ctx.machine.allocatable(), || {
                self.others()
            })
        } else {
            // What was refused is not known yet.
            let held = allocation::held(&self.pod, known).map(Arc::new);
            allocation::Allocation {
                pod: held.unwrap_or_else(|| Arc::clone(&self.pod)),
                pending: None,
            }
        };
        (self.pod, self.resize_pending) = (found.pod, found.pending);
    }

    /// What all other pods of the node ask for.
    fn others(&self) -> Amounts {
        let pods = self.ctx.pods.read();
        let others = pods
            .iter()
            .filter(|pod| pod.uid() != self.uid && !pod.is_phase_final());
        others.fold(Amounts::default(), |sum, pod| {
            let held = allocation::held(pod, pod.status_or_default());
            sum.plus(resources::pod_amounts(held.as_ref().unwrap_or(pod)))
        })
    }

    /// Writes the cgroups of the pod and of the containers that the plan names; whether all went
    /// well.
    pub(super) async fn resize(&mut self, actions: &PodActions, state: &RuntimeState) -> bool {
        let outcome = self.write_limits(actions, state).await;
        self.resize_error = outcome.err().map(|error| ErrorChain(&error).to_string());
        if let Some(message) = &self.resize_error {
            self.ctx.events.pod(
                &self.pod,
                None,
                EventType::Warning,
                "ResizeError",
                message.clone(),
            );
        }
        self.resize_error.is_none()
    }

    /// The pod's cgroup is never smaller than what is in it: it grows first and shrinks last.
    async fn write_limits(
        &self,
        actions: &PodActions,
        state: &RuntimeState,
    ) -> Result<(), RuntimeError> {
        let runtime = &self.ctx.runtime;
        let sandbox = state.ready_sandbox().filter(|_| actions.resize_pod);
        let wanted = resources::for_pod(&self.pod);
        let widest = sandbox.map(|sandbox| resources::wider(&wanted, &sandbox.resources));
        if let Some((sandbox, widest)) = sandbox.zip(widest.as_ref())
            && *widest != sandbox.resources
        {
            runtime
                .update_pod_sandbox_resources(&sandbox.id, widest)
                .await?;
        }
        for resized in &actions.to_resize {
            let Some(container) = self.pod.container(&resized.name) else {
                continue;
            };
            runtime
                .update_container_resources(
                    &resized.id,
                    &resources::limits_of(&self.pod, container),
                )
                .await?;
        }
        match sandbox.filter(|_| widest.is_some_and(|widest| widest != wanted)) {
            Some(sandbox) => {
                runtime
                    .update_pod_sandbox_resources(&sandbox.id, &wanted)
                    .await
            }
            None => Ok(()),
        }
    }
}
