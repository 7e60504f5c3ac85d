//! DefaultBinder: writes the Binding.
//!
//! Nothing is retried here: what fails goes back to the queue, which knows when.
//!
//! Source: `pkg/scheduler/framework/plugins/defaultbinder/default_binder.go` at v1.37.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use serde_json::json;

use crate::{
    framework::{Bind, CycleState, Plugin, PluginName, Status},
    pod_info::PodInfo,
};

/// For one Binding.
const DEADLINE: Duration = Duration::from_secs(10);

pub(super) struct DefaultBinder {
    client: Client,
}

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

impl DefaultBinder {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    async fn write(&self, pod: &PodInfo, node: &str) -> Result<(), BindError> {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": &*pod.uid.0},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let params = PostParams::default();
        let request = pods
            .create_subresource::<_, serde_json::Value>("binding", &pod.name, &params, &binding);
        match tokio::time::timeout(DEADLINE, request).await {
            Ok(result) => result.map(drop).map_err(BindError::Api),
            Err(_) => Err(BindError::Timeout),
        }
    }
}

impl Plugin for DefaultBinder {
    fn name(&self) -> PluginName {
        PluginName::DefaultBinder
    }
}

impl Bind for DefaultBinder {
    fn bind<'a>(
        &'a self,
        _: &'a CycleState,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> BoxFuture<'a, Status> {
        async move {
            self.write(pod, node)
                .await
                .map_or_else(Status::failed, |()| Status::SUCCESS)
        }
        .boxed()
    }
}
