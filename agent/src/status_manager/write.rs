//! One write of a pod's status, and what became of it.

use coracle_telemetry::{ErrorChain, span};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use tracing::Instrument as _;

use super::version;
use crate::runtime::types::PodRef;

/// What became of it.
pub(super) enum Outcome {
    /// The API has this status, as of this resourceVersion.
    Written(Box<PodStatus>, u64),
    Deleted,
    /// There was no such pod any more.
    Gone,
    Failed,
}

/// One PATCH, and the final DELETE where it is due.
pub(super) struct Write {
    pub(super) api: Api<Pod>,
    pub(super) pod: PodRef,
    pub(super) body: Option<serde_json::Value>,
    pub(super) status: PodStatus,
    pub(super) delete: bool,
}

impl Write {
    pub(super) async fn run(self) -> Outcome {
        let mut written = 0;
        if let Some(body) = &self.body {
            let (parameters, body) = (PatchParams::default(), Patch::Strategic(body));
            let span = span!("PatchPodStatus", pod = %self.pod, uid = %self.pod.uid);
            match self
                .api
                .patch_status(&self.pod.name, &parameters, &body)
                .instrument(span)
                .await
            {
                Ok(pod) => written = version(&pod),
                Err(error) => match self.judge(&error) {
                    // A last status that the server does not take must not keep the pod.
                    Outcome::Failed if self.delete && is_invalid(&error) => {}
                    outcome => return outcome,
                },
            }
        }
        if !self.delete {
            return Outcome::Written(Box::new(self.status), written);
        }
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            // Another pod may have the name by now.
            preconditions: Some(Preconditions {
                uid: Some(self.pod.uid.0.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.api.delete(&self.pod.name, &params).await {
            Ok(_) => Outcome::Deleted,
            Err(error) => self.judge(&error),
        }
    }

    fn judge(&self, error: &kube::Error) -> Outcome {
        match error {
            // 409: another pod has the name by now.
            kube::Error::Api(status)
                if status.code == 404 || (status.code == 409 && status.message.contains("UID")) =>
            {
                Outcome::Gone
            }
            _ => {
                tracing::warn!(pod = %self.pod.name, namespace = %self.pod.namespace, error = %ErrorChain(&error), "write a pod's status");
                Outcome::Failed
            }
        }
    }
}

fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}
