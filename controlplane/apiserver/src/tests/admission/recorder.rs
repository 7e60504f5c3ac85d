//! A plugin that remembers what it is shown, and a server that has it.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_admission::{Attributes, Operation, Plugin};
use coracle_api::status::Status;
use coracle_auth::user::{GROUP_MASTERS, UserInfo};
use coracle_registry::api_resource::ApiResource;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::super::raw::{PODS, Raw, pod};
use crate::{ApiServer, testing};

pub(super) const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

/// What one look of a plugin has seen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Look {
    pub(super) operation: Operation,
    /// `pods/binding`.
    pub(super) resource: String,
    /// `default/web`.
    pub(super) object: String,
    pub(super) user: String,
    pub(super) is_dry: bool,
    pub(super) content: Value,
}

impl Look {
    pub(super) fn kind(&self) -> &str {
        self.content["kind"].as_str().unwrap_or_default()
    }
}

/// Remembers every look at what `alice` does, and refuses or changes what it is told to.
#[derive(Default)]
pub(super) struct Recorder {
    mutating: Mutex<Vec<Look>>,
    validating: Mutex<Vec<Look>>,
    /// The subresource that nobody gets.
    refused: Option<&'static str>,
    /// Instead of the container that is asked for.
    container: Option<&'static str>,
}

impl Recorder {
    /// One that refuses this subresource.
    pub(super) fn refusing(subresource: &'static str) -> Self {
        Self {
            refused: Some(subresource),
            ..Self::default()
        }
    }

    /// One that puts this container into the options of a CONNECT.
    pub(super) fn choosing(container: &'static str) -> Self {
        Self {
            container: Some(container),
            ..Self::default()
        }
    }

    pub(super) fn take(&self) -> (Vec<Look>, Vec<Look>) {
        let take = |looks: &Mutex<Vec<Look>>| std::mem::take(&mut *looks.lock());
        (take(&self.mutating), take(&self.validating))
    }
}

struct Recording(Arc<Recorder>);

fn look(attributes: &Attributes<'_>) -> Look {
    Look {
        operation: attributes.operation,
        resource: format!("{}/{}", attributes.resource.plural, attributes.subresource),
        object: format!("{}/{}", attributes.namespace, attributes.name),
        user: attributes.user.name.to_string(),
        is_dry: attributes.options.dry_run,
        content: attributes.object().clone(),
    }
}

#[async_trait]
impl Plugin for Recording {
    fn name(&self) -> &'static str {
        "Recording"
    }

    fn handles(&self, _: Operation, _: &ApiResource) -> bool {
        true
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if attributes.user.name != "alice" {
            return Ok(());
        }
        self.0.mutating.lock().push(look(attributes));
        if let Some(container) = self
            .0
            .container
            .filter(|_| attributes.operation == Operation::Connect)
        {
            attributes.object_mut()["container"] = container.into();
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if attributes.user.name != "alice" {
            return Ok(());
        }
        self.0.validating.lock().push(look(attributes));
        attributes.warn("seen");
        if self.0.refused == Some(attributes.subresource) {
            return Err(attributes.forbidden("nobody gets that"));
        }
        Ok(())
    }
}

/// A server with a pod `web` that is on no node, as `alice` sees it.
pub(super) async fn world(recorder: Recorder) -> (Arc<ApiServer>, Raw, Arc<Recorder>) {
    let recorder = Arc::new(recorder);
    let server = testing::server_with(vec![Box::new(Recording(Arc::clone(&recorder)))]).await;
    let admin = Raw::of(&server, UserInfo::master("admin"));
    assert_eq!(admin.post(PODS, pod("web")).await.0, 201);
    let alice = Raw::of(&server, UserInfo::new("alice", &[GROUP_MASTERS]));
    (server, alice, recorder)
}

/// Makes a namespace `n` that goes, with a pod `web` in it and the account `default`.
pub(super) async fn terminating_namespace(alice: &Raw) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    assert_eq!(alice.post("/api/v1/namespaces", namespace).await.0, 201);
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/n/serviceaccounts";
    assert_eq!(alice.post(accounts, account).await.0, 201);
    let pods = "/api/v1/namespaces/n/pods";
    assert_eq!(alice.post(pods, pod("web")).await.0, 201);
    assert_eq!(alice.delete("/api/v1/namespaces/n", json!({})).await.0, 200);
}

pub(super) fn binding(pod: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"kind": "Node", "name": "n1"}})
}

pub(super) fn token_request() -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
}

pub(super) fn eviction(pod: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}})
}
