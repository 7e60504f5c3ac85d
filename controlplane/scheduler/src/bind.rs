//! The scheduler's writes: the Binding, the condition of a pod that does not fit, Events.
//!
//! Nothing is retried here: what fails goes back to the queue, which knows when.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_telemetry::Chain;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
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

/// Sets the condition `PodScheduled` of this version of the pod to False: another may be bound already, or be a namesake.
pub(crate) async fn tell_unschedulable(client: &Client, pod: &PodInfo, message: &str) -> Told {
    let mut condition =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
    if pod.unschedulable.is_none() {
        condition["lastTransitionTime"] = json!(Time(Timestamp::now()));
    }
    let metadata = json!({"uid": &*pod.uid.0, "resourceVersion": pod.resource_version});
    let patch = Patch::Strategic(json!({"metadata": metadata, "status": {"conditions": [condition]}}));
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let params = PatchParams::default();
    match tokio::time::timeout(DEADLINE, pods.patch_status(&pod.name, &params, &patch)).await {
        Ok(Ok(_)) => Told::Yes,
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Told::Changed,
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Told::Gone,
        Ok(Err(error)) => {
            tracing::warn!(pod = pod.key(), error = %Chain(&error), "could not set the condition PodScheduled");
            Told::Failed
        }
        Err(_) => {
            tracing::warn!(pod = pod.key(), "setting the condition PodScheduled took too long");
            Told::Failed
        }
    }
}

/// An Event about a pod that is written once and then counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repeated {
    /// Of the Event object.
    pub(crate) name: String,
    pub(crate) message: String,
    pub(crate) count: i32,
    pub(crate) first: Timestamp,
}

/// Writes or counts up the Event that says why a pod fits nowhere.
pub(crate) async fn record_unschedulable(client: &Client, source: &str, pod: &PodInfo, event: &Repeated) {
    let events: Api<Event> = Api::namespaced(client.clone(), &pod.namespace);
    if event.count > 1 {
        let patch = Patch::Merge(json!({"count": event.count, "lastTimestamp": Time(Timestamp::now())}));
        let params = PatchParams::default();
        match tokio::time::timeout(DEADLINE, events.patch(&event.name, &params, &patch)).await {
            // It has expired.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {}
            _ => return,
        }
    }
    record(client, source, pod, ("Warning", "FailedScheduling"), event).await;
}

/// Tells the pod's owner and its watchers that it was placed.
pub(crate) async fn report_scheduled(client: &Client, source: &str, pod: &PodInfo, node: &str) {
    let message = format!("Successfully assigned {} to {node}", pod.key());
    record(client, source, pod, ("Normal", "Scheduled"), &Repeated::new(pod, message)).await;
}

impl Repeated {
    /// The first of its kind.
    pub(crate) fn new(pod: &PodInfo, message: String) -> Self {
        let now = Timestamp::now();
        // Within the 253 bytes of a name.
        let about = pod.name.get(..pod.name.len().min(220)).unwrap_or(&pod.name);
        Self { name: format!("{about}.{:x}", now.as_nanosecond()), message, count: 1, first: now }
    }
}

async fn record(client: &Client, source: &str, pod: &PodInfo, (kind, reason): (&str, &str), content: &Repeated) {
    let event = Event {
        metadata: ObjectMeta {
            name: Some(content.name.clone()),
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
        message: Some(content.message.clone()),
        count: Some(content.count),
        first_timestamp: Some(Time(content.first)),
        last_timestamp: Some(Time(Timestamp::now())),
        source: Some(EventSource { component: Some(source.to_owned()), host: None }),
        reporting_component: Some(source.to_owned()),
        ..Event::default()
    };
    let events: Api<Event> = Api::namespaced(client.clone(), &pod.namespace);
    let params = PostParams::default();
    // An Event is a courtesy: losing one loses no state.
    if let Ok(Err(error)) = tokio::time::timeout(DEADLINE, events.create(&params, &event)).await {
        tracing::debug!(pod = pod.key(), reason, error = %Chain(&error), "could not record an event");
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
