//! The condition `PodScheduled` of pods that have no node, and where room is made for them.
//!
//! Nothing is retried here: whoever reports decides when it is worth another write.

use std::time::Duration;

use coracle_telemetry::ErrorChain;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{pod_info::PodInfo, unscheduled::Unscheduled};

/// For one write.
const DEADLINE: Duration = Duration::from_secs(10);

/// What came of writing the condition `PodScheduled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is written.
    Yes,
    /// The pod has changed; it may have been bound.
    Changed,
    /// The pod is gone.
    Gone,
    /// The API server could not be asked.
    Failed,
}

/// Sets the condition `PodScheduled` of this version of the pod to False, and the node where room
/// is made for it: another version may be bound already, or be a namesake.
pub(crate) async fn tell(
    client: &Client,
    pod: &PodInfo,
    why: &Unscheduled,
    nominated: Option<&str>,
) -> Told {
    let mut condition = json!({
        "type": "PodScheduled", "status": "False",
        "reason": why.reason.as_str(), "message": why.message,
    });
    if pod.unscheduled.is_none() {
        condition["lastTransitionTime"] = json!(Time(Timestamp::now()));
    }
    let metadata = json!({"uid": &*pod.uid.0, "resourceVersion": pod.resource_version});
    let mut status = json!({"conditions": [condition]});
    if pod.nominated_node.as_deref() != nominated {
        status["nominatedNodeName"] = json!(nominated);
    }
    let patch = Patch::Strategic(json!({"metadata": metadata, "status": status}));
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let params = PatchParams::default();
    match tokio::time::timeout(DEADLINE, pods.patch_status(&pod.name, &params, &patch)).await {
        Ok(Ok(_)) => Told::Yes,
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Told::Changed,
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Told::Gone,
        Ok(Err(error)) => {
            tracing::warn!(pod = pod.key(), error = %ErrorChain(&error), "could not set the condition PodScheduled");
            Told::Failed
        }
        Err(_) => {
            tracing::warn!(
                pod = pod.key(),
                "setting the condition PodScheduled took too long"
            );
            Told::Failed
        }
    }
}
