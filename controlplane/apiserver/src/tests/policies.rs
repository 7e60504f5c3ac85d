//! ValidatingAdmissionPolicies and MutatingAdmissionPolicies over the API.

mod conformance;
mod counted;
mod faults;
mod mutating;
mod params;
mod types;
mod validating;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_auth::user::UserInfo;
use coracle_store::{Backend, memory::MemoryBackend};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::raw::Raw;
use crate::{server::ApiServer, testing};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const NAMESPACES: &str = "/api/v1/namespaces";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server, its administrator, and who keeps its definitions for as long as this is held.
struct Cluster {
    server: Arc<ApiServer>,
    admin: Raw,
    keeping: DropGuard,
}

async fn cluster() -> Cluster {
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    let server = testing::server_over(backend).await;
    let stop = CancellationToken::new();
    let keeping = Arc::clone(&server).keep_definitions(stop.clone());
    coracle_telemetry::spawn("keep definitions", keeping);
    let admin = Raw::of(&server, UserInfo::master("test"));
    Cluster {
        admin,
        server,
        keeping: stop.drop_guard(),
    }
}

/// Code, object and warnings of an answer.
pub(super) struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Answer {
    pub(super) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

async fn write(raw: &Raw, method: &str, path: &str, body: &Value) -> Answer {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = Bytes::from(body.to_string());
    let response = raw.response(method, path, kind, body).await;
    let warning = |text: &http::HeaderValue| {
        let text = text.to_str().expect("a text");
        let quoted = text.strip_prefix("299 - ").expect("a warning");
        serde_json::from_str(quoted).expect("a quoted text")
    };
    let warnings = response.headers().get_all("warning").iter().map(warning);
    let (code, warnings) = (response.status().as_u16(), warnings.collect());
    let bytes = response.into_body().collect_bytes().await.unwrap();
    Answer {
        code,
        body: serde_json::from_slice(&bytes).expect("JSON"),
        warnings,
    }
}

/// Tries a write, which stays one without effect, until its answer is as it is to be: policies are
/// taken in beside the writes.
pub(super) async fn until(
    raw: &Raw,
    path: &str,
    body: &Value,
    holds: impl Fn(&Answer) -> bool,
) -> Answer {
    let path = format!("{path}?dryRun=All");
    let trying = async {
        loop {
            let answer = write(raw, "POST", &path, body).await;
            if holds(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let tried = tokio::time::timeout(Duration::from_secs(20), trying).await;
    tried.unwrap_or_else(|_| panic!("{path}: {body}"))
}

/// The same until it is refused.
async fn refused(raw: &Raw, path: &str, body: &Value) -> Answer {
    until(raw, path, body, |answer| answer.code >= 400).await
}

async fn made(raw: &Raw, path: &str, body: Value) {
    let answer = write(raw, "POST", path, &body).await;
    assert_eq!(answer.code, 201, "{path}: {}", answer.body);
}

fn rules(resource: &str, operations: &[&str]) -> Value {
    let (group, resource) = resource.split_once('/').unwrap_or(("", resource));
    json!({"resourceRules": [{"apiGroups": [group], "apiVersions": ["v1"],
        "operations": operations, "resources": [resource]}]})
}

/// A validating policy `p` on what is made of a resource, and its binding `b`.
pub(super) async fn validating(raw: &Raw, resource: &str, spec: Value, binding: Value) {
    let mut policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {"matchConstraints": rules(resource, &["CREATE", "UPDATE"])}});
    merge(&mut policy["spec"], spec);
    let mut bound = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    merge(&mut bound["spec"], binding);
    made(
        raw,
        &format!("{ADMISSION}/validatingadmissionpolicies"),
        policy,
    )
    .await;
    let bindings = format!("{ADMISSION}/validatingadmissionpolicybindings");
    made(raw, &bindings, bound).await;
}

/// The same of a mutating policy with this name.
pub(super) async fn mutating(raw: &Raw, name: &str, resource: &str, spec: Value, binding: Value) {
    let mut policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"reinvocationPolicy": "Never", "matchConstraints": rules(resource, &["CREATE", "UPDATE"])}});
    merge(&mut policy["spec"], spec);
    let mut bound = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": format!("{name}-b")},
        "spec": {"policyName": name}});
    merge(&mut bound["spec"], binding);
    made(
        raw,
        &format!("{ADMISSION}/mutatingadmissionpolicies"),
        policy,
    )
    .await;
    let bindings = format!("{ADMISSION}/mutatingadmissionpolicybindings");
    made(raw, &bindings, bound).await;
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

pub(super) fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

fn merge(into: &mut Value, from: Value) {
    let Value::Object(fields) = from else { return };
    for (name, value) in fields {
        into[name] = value;
    }
}

fn configmap(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn pod(name: &str, is_privileged: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i:1",
            "securityContext": {"privileged": is_privileged}}]}})
}
