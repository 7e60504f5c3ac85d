//! Events: what people see in `kubectl describe`.
//!
//! Here is only what they are about; [`coracle_client::event_recorder`] bounds, counts and writes
//! them.

use std::{borrow::Cow, time::Duration};

pub(crate) use coracle_client::event_recorder::EventType;
use coracle_client::event_recorder::{self, EventWriter, reference_to};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};

use crate::pod::PodExt;

/// Events wait for what is more urgent: a pod's status goes first.
const DELAY: Duration = Duration::from_millis(150);
const COMPONENT: &str = "kubelet";

/// Accepts events. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EventRecorder {
    recorder: event_recorder::EventRecorder,
    node_name: String,
}

impl EventRecorder {
    /// A recorder and the writer that must be run for it; one a node.
    pub(crate) fn new(client: kube::Client, node_name: &str) -> (Self, EventWriter) {
        let (recorder, writer) = event_recorder::channel(client, Some(node_name.to_owned()), DELAY);
        (
            Self {
                recorder,
                node_name: node_name.to_owned(),
            },
            writer,
        )
    }

    /// About a pod, or one of its containers.
    pub(crate) fn pod(
        &self,
        pod: &Pod,
        container: Option<&str>,
        kind: EventType,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let field_path = container.map(|name| {
            let spec = pod.spec_or_default();
            let list = if pod.init_containers().iter().any(|one| one.name == name) {
                "initContainers"
            } else if spec
                .ephemeral_containers
                .iter()
                .flatten()
                .any(|one| one.name == name)
            {
                "ephemeralContainers"
            } else {
                "containers"
            };
            format!("spec.{list}{{{name}}}")
        });
        let about = ObjectReference {
            field_path,
            ..reference_to(pod)
        };
        self.recorder
            .record_about(COMPONENT, about, kind, reason, message.into());
    }

    /// About the node.
    pub(crate) fn node(&self, kind: EventType, reason: &'static str, message: impl Into<String>) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(self.node_name.clone()),
            // As upstream: events of nodes are found by the node's name.
            uid: Some(self.node_name.clone()),
            ..ObjectReference::default()
        };
        self.recorder
            .record_about(COMPONENT, about, kind, reason, message.into());
    }

    /// About a Service.
    pub(crate) fn service(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<String>,
        kind: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid,
            ..ObjectReference::default()
        };
        self.recorder
            .record_about(COMPONENT, about, kind, reason, message.into());
    }
}
