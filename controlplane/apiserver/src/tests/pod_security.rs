//! Pod Security over the API: who is refused, who is told, who is not looked at.

mod exemptions;
mod namespaces;
mod observed;
mod pods;

use std::sync::Arc;

use bytes::Bytes;
use coracle_admission::AdmissionConfig;
use coracle_auth::user::{GROUP_MASTERS, UserInfo};
use coracle_store::memory::MemoryBackend;
use serde_json::{Value, json};

use super::raw::{Raw, admin};
use crate::{ApiServer, testing};

const NAMESPACES: &str = "/api/v1/namespaces";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Code, object and warnings of an answer.
struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Answer {
    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

/// Of a write as its method is usually sent.
async fn write(raw: &Raw, method: &str, path: &str, body: &Value) -> Answer {
    let kind = match method {
        "PATCH" if path.contains("fieldManager") => "application/apply-patch+yaml",
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let response = raw
        .response(method, path, kind, Bytes::from(body.to_string()))
        .await;
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

/// A namespace with these labels, which can take pods.
async fn namespace(raw: &Raw, name: &str, labels: Value) -> Answer {
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let answer = write(raw, "POST", NAMESPACES, &made).await;
    if answer.code == 201 {
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let accounts = format!("{NAMESPACES}/{name}/serviceaccounts");
        assert_eq!(raw.post(&accounts, account).await.0, 201);
    }
    answer
}

fn pods(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/pods")
}

/// What no level has anything against.
fn good(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i:1", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}})
}

/// What only the lowest level lets in.
fn privileged(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i:1", "securityContext": {"privileged": true}}]}})
}

const OF_BASELINE: &str =
    "privileged (container \"c\" must not set securityContext.privileged=true)";
const OF_RESTRICTED: &str = "privileged (container \"c\" must not set securityContext.privileged=true), \
    allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
    unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), \
    runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), \
    seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

/// A server whose PodSecurity is told this.
async fn told(configuration: &str) -> Arc<ApiServer> {
    told_over(configuration, Arc::new(MemoryBackend::new())).await
}

async fn told_over(configuration: &str, backend: Arc<MemoryBackend>) -> Arc<ApiServer> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{{name: PodSecurity, \
         configuration: {{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, {configuration}}}}}]}}"
    );
    std::fs::write(file.path(), text).expect("written");
    let config = AdmissionConfig::read(file.path()).expect("a configuration");
    testing::server_told(config, backend).await
}

fn of(server: &Arc<ApiServer>, name: &str) -> Raw {
    Raw::of(server, UserInfo::new(name, &[GROUP_MASTERS]))
}
