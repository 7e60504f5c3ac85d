//! The scheduler's writes: the Binding, the condition of a pod that does not fit, Events.
//!
//! Nothing is retried here: what fails goes back to the queue, which knows when.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::pod_info::PodInfo;

/// For one write.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why a pod was not bound.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    /// The API server refused or could not be asked.
    #[error("bind the pod")]
    Api(#[source] kube::Error),
    /// No answer.
    #[error("the API server did not answer within {} s", DEADLINE.as_secs())]
    Timeout,
}

impl BindError {
    /// Whether the pod is gone or bound already: there is nothing left to do for it.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 404 || status.code == 409)
    }
}

/// Binds `pod` to `node`.
///
/// # Errors
/// [`BindError`]; see [`BindError::is_settled`].
pub(crate) async fn bind(client: &Client, pod: &PodInfo, node: &str) -> Result<(), BindError> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": &*pod.uid.0},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let params = PostParams::default();
    let request = pods.create_subresource::<_, serde_json::Value>("binding", &pod.name, &params, &binding);
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(result) => result.map(drop).map_err(BindError::Api),
        Err(_) => Err(BindError::Timeout),
    }
}

/// Tells the pod's owner and its watchers that it was placed.
pub(crate) async fn report_scheduled(client: &Client, source: &str, pod: &PodInfo, node: &str) {
    let message = format!("Successfully assigned {} to {node}", pod.key());
    record(client, source, pod, "Normal", "Scheduled", message).await;
}

/// Sets the condition `PodScheduled` to False and records why.
pub(crate) async fn report_unschedulable(client: &Client, source: &str, pod: &PodInfo, message: String) {
    let condition = json!({"status": {"conditions": [{
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": Time(k8s_openapi::jiff::Timestamp::now()),
    }]}});
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let params = PatchParams::default();
    let patch = Patch::Strategic(&condition);
    let request = pods.patch_status(&pod.name, &params, &patch);
    if let Ok(Err(error)) = tokio::time::timeout(DEADLINE, request).await {
        tracing::debug!(pod = pod.key(), %error, "could not set the condition PodScheduled");
    }
    record(client, source, pod, "Warning", "FailedScheduling", message).await;
}

async fn record(client: &Client, source: &str, pod: &PodInfo, kind: &str, reason: &str, message: String) {
    let now = k8s_openapi::jiff::Timestamp::now();
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}", pod.name, now.as_nanosecond())),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(pod.uid.0.to_string()),
            resource_version: Some(pod.resource_version.clone()),
            ..ObjectReference::default()
        },
        type_: Some(kind.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        source: Some(EventSource { component: Some(source.to_owned()), host: None }),
        reporting_component: Some(source.to_owned()),
        ..Event::default()
    };
    let events: Api<Event> = Api::namespaced(client.clone(), &pod.namespace);
    let params = PostParams::default();
    // An Event is a courtesy: losing one loses no state.
    if let Ok(Err(error)) = tokio::time::timeout(DEADLINE, events.create(&params, &event)).await {
        tracing::debug!(pod = pod.key(), reason, %error, "could not record an event");
    }
}

/// A pod with the node that was chosen for it.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub(crate) pod: Arc<PodInfo>,
    pub(crate) node: String,
    /// When it was begun.
    pub(crate) started: Instant,
}
