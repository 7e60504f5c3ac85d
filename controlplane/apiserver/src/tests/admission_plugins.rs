//! Plugins by their names: those that are on anyway, and those that a flag turns on or off.

mod configured;
mod default_on;
mod manifests;
mod optional;

use std::sync::Arc;

use coracle_admission::AdmissionConfig;
use coracle_auth::user::{GROUP_MASTERS, UserInfo};
use coracle_store::memory::MemoryBackend;
use serde_json::{Value, json};

use super::raw::{PODS, Raw, admin, pod};
use crate::{ApiServer, testing};

/// A server with these plugins besides the usual ones, without those, and what the file says.
async fn server(on: &[&str], off: &[&str], plugins: &str) -> Arc<ApiServer> {
    let names = |all: &[&str]| {
        all.iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{plugins}]}}"
    );
    std::fs::write(file.path(), text).expect("written");
    let mut config = AdmissionConfig::read(file.path()).expect("a configuration");
    config.select(&names(on), &names(off)).expect("names");
    testing::server_told(config, Arc::new(MemoryBackend::new())).await
}

fn of(server: &Arc<ApiServer>) -> Raw {
    Raw::of(server, UserInfo::new("admin", &[GROUP_MASTERS]))
}

/// An administrator of a server with one plugin more.
async fn with(plugin: &str) -> Raw {
    of(&server(&[plugin], &[], "").await)
}

async fn made(raw: &Raw, path: &str, object: Value) -> Value {
    let (code, answer) = raw.post(path, object).await;
    assert_eq!(code, 201, "{answer}");
    answer
}

async fn refused(raw: &Raw, path: &str, object: Value) -> (u16, String) {
    let (code, answer) = raw.post(path, object).await;
    assert!(code >= 400, "{answer}");
    (
        code,
        answer["message"].as_str().unwrap_or_default().to_owned(),
    )
}

/// A pod with these fields of its spec.
fn pod_with(name: &str, fields: Value) -> Value {
    let mut object = pod(name);
    let spec = object["spec"].as_object_mut().expect("a spec");
    spec.extend(fields.as_object().expect("fields").clone());
    object
}

async fn namespace(raw: &Raw, name: &str, annotations: Value) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}});
    made(raw, "/api/v1/namespaces", object).await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
    made(raw, &accounts, account).await;
}

#[tokio::test]
async fn a_plugin_that_is_turned_off_does_nothing() {
    let tolerations = |pod: Value| pod["spec"]["tolerations"].clone();
    let raw = admin().await;
    assert!(tolerations(made(&raw, PODS, pod("p")).await).is_array());
    let raw = of(&server(&[], &["DefaultTolerationSeconds"], "").await);
    assert!(tolerations(made(&raw, PODS, pod("p")).await).is_null());
}

#[tokio::test]
async fn without_namespace_lifecycle_nobody_asks_for_a_namespace() {
    let (path, map) = (
        "/api/v1/namespaces/none/configmaps",
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}),
    );
    assert_eq!(refused(&admin().await, path, map.clone()).await.0, 404);
    let raw = of(&server(&[], &["NamespaceLifecycle"], "").await);
    made(&raw, path, map).await;
    let (code, _) = raw.delete("/api/v1/namespaces/default", json!({})).await;
    assert_eq!(code, 200, "none stays for ever");
}

#[tokio::test]
async fn without_resource_quota_nothing_is_charged() {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}});
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let raw = of(&server(&[], &["ResourceQuota"], "").await);
    made(&raw, quotas, quota).await;
    made(&raw, PODS, pod("p")).await;
}

#[tokio::test]
async fn plugins_and_halves_are_timed_under_upstreams_names() {
    let server = server(&[], &[], "").await;
    let raw = of(&server);
    made(&raw, PODS, pod("p")).await;
    refused(
        &raw,
        PODS,
        pod_with("q", json!({"priorityClassName": "none"})),
    )
    .await;
    let text = server.metrics().text();
    for line in [
        "apiserver_admission_controller_admission_duration_seconds_count{name=\"Priority\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 1",
        "apiserver_admission_controller_admission_duration_seconds_count{name=\"Priority\",operation=\"CREATE\",rejected=\"true\",type=\"admit\"} 1",
        "apiserver_admission_controller_admission_duration_seconds_count{name=\"ServiceAccount\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 2",
        "apiserver_admission_step_admission_duration_seconds_count{operation=\"CREATE\",rejected=\"false\",type=\"validate\"} 2",
        "apiserver_admission_step_admission_duration_seconds_count{operation=\"CREATE\",rejected=\"true\",type=\"admit\"} 1",
    ] {
        let found: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("admission_duration_seconds_count"))
            .collect();
        assert!(found.contains(&line), "no {line} in {found:#?}");
    }
}
