//! Requests as they stand on the wire, without a typed client between.

use bytes::Bytes;
use coracle_auth::user::UserInfo;
use http::{Request, Response};
use serde_json::{Value, json};

use crate::testing;

/// An administrator of a fresh server.
pub(super) async fn admin() -> Raw {
    Raw(testing::client().await)
}

/// Lets so much time pass that the cache remembers nothing for its youth. With the next event the
/// rest is forgotten.
pub(super) async fn grow_old() {
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(80)).await;
    tokio::time::resume();
}

/// One identity.
#[derive(Clone)]
pub(super) struct Raw(pub(super) kube::Client);

impl Raw {
    pub(super) fn of(server: &std::sync::Arc<crate::ApiServer>, user: UserInfo) -> Self {
        Self(server.client(user))
    }

    /// As [`Raw::of`], with the limits of somebody who is no part of this process.
    pub(super) fn outside(server: &std::sync::Arc<crate::ApiServer>, user: UserInfo) -> Self {
        Self(crate::client::outsider(
            std::sync::Arc::clone(&server.state),
            user,
        ))
    }

    /// Code and JSON of the answer.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: impl Into<Bytes>,
    ) -> (u16, Value) {
        let response = self.response(method, path, kind, body).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect_bytes().await.unwrap();
        (
            code,
            serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))),
        )
    }

    pub(super) async fn response(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: impl Into<Bytes>,
    ) -> Response<kube::client::Body> {
        let mut request = Request::builder().method(method).uri(path);
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        self.0
            .send(request.body(kube::client::Body::from(body.into())).unwrap())
            .await
            .unwrap()
    }

    /// A write as its method is usually sent: PATCH merges.
    pub(super) async fn write(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        self.send(method, path, kind, body.to_string()).await
    }

    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, "", Bytes::new()).await
    }

    pub(super) async fn delete(&self, path: &str, options: Value) -> (u16, Value) {
        self.send("DELETE", path, "application/json", options.to_string())
            .await
    }

    pub(super) async fn post(&self, path: &str, object: Value) -> (u16, Value) {
        self.send("POST", path, "application/json", object.to_string())
            .await
    }

    pub(super) async fn put(&self, path: &str, object: Value) -> (u16, Value) {
        self.send("PUT", path, "application/json", object.to_string())
            .await
    }

    pub(super) async fn merge(&self, path: &str, patch: Value) -> (u16, Value) {
        self.send(
            "PATCH",
            path,
            "application/merge-patch+json",
            patch.to_string(),
        )
        .await
    }
}

pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";

pub(super) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": "0"}})
}

pub(super) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    })
}
