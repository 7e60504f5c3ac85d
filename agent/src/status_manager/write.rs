//! One write of a pod's status, and what became of it.

use coracle_client::errors::{is_conflict, is_not_found};
use coracle_telemetry::{ErrorChain, span};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use tracing::Instrument as _;

use super::{patch::was_changed_by_others, version};
use crate::{pod::PodExt, runtime::types::PodRef};

/// What became of it.
pub(super) enum Outcome {
    /// The API has this status, as of this resourceVersion.
    Written(Box<PodStatus>, u64),
    /// It was written, but somebody else has changed other parts before: the watch tells which.
    Mixed(Box<PodStatus>),
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
        let (mut written, mut is_mixed) = (0, false);
        if let Some(body) = &self.body {
            let (parameters, body) = (PatchParams::default(), Patch::Strategic(body));
            let span = span!("PatchPodStatus", pod = %self.pod, uid = %self.pod.uid);
            match self
                .api
                .patch_status(&self.pod.name, &parameters, &body)
                .instrument(span)
                .await
            {
                Ok(pod) => {
                    written = version(&pod);
                    is_mixed = was_changed_by_others(pod.status_or_default(), &self.status);
                }
                Err(error) => match self.judge(&error).await {
                    // A last status that the server does not take must not keep the pod.
                    Outcome::Failed if self.delete && is_invalid(&error) => {}
                    outcome => return outcome,
                },
            }
        }
        if !self.delete {
            let status = Box::new(self.status);
            return if is_mixed {
                Outcome::Mixed(status)
            } else {
                Outcome::Written(status, written)
            };
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
            Err(error) => self.judge(&error).await,
        }
    }

    /// A conflict is another pod of that name, or a race with another writer: who has the name is
    /// asked, as the server's words for it are its own.
    async fn judge(&self, error: &kube::Error) -> Outcome {
        let gone = is_not_found(error) || (is_conflict(error) && !self.has_its_name().await);
        if gone {
            return Outcome::Gone;
        }
        tracing::warn!(pod = %self.pod, error = %ErrorChain(error), "cannot write a pod's status");
        Outcome::Failed
    }

    /// Whether the name is the pod's still; so it is if nobody can tell.
    async fn has_its_name(&self) -> bool {
        match self.api.get_metadata_opt(&self.pod.name).await {
            Ok(found) => {
                found.is_some_and(|pod| pod.metadata.uid.as_deref() == Some(&*self.pod.uid.0))
            }
            Err(_) => true,
        }
    }
}

fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}
