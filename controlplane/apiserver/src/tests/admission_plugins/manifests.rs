//! Webhooks and policies from files.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{
    super::{
        raw::{CONFIG_MAPS, config_map},
        webhooks::server::{Hook, Reply},
    },
    *,
};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const V1: &str = "admissionregistration.k8s.io/v1";

/// A server that reads these objects from a file of one plugin.
async fn reading(plugin: &str, kind: &str, objects: &[Value]) -> (Arc<ApiServer>, TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), objects);
    let file = format!(
        "{{name: {plugin}, configuration: {{apiVersion: apiserver.config.k8s.io/v1, kind: {kind}, staticManifestsDir: {}}}}}",
        directory.path().display()
    );
    (server(&[], &[], &file).await, directory)
}

fn write(directory: &Path, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(directory.join("all.json"), list.to_string()).expect("written");
}

/// A validating policy about these resources with its binding.
fn policy(name: &str, group: &str, resources: &[&str], expression: &str) -> [Value; 2] {
    let rule = json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": resources});
    let policy = json!({"apiVersion": V1, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": name}]}});
    let binding = json!({"apiVersion": V1, "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    [policy, binding]
}

async fn validating(objects: &[Value]) -> (Arc<ApiServer>, TempDir) {
    let kind = "ValidatingAdmissionPolicyConfiguration";
    reading("ValidatingAdmissionPolicy", kind, objects).await
}

#[tokio::test]
async fn policies_of_files_hold_and_guard_those_of_the_api() {
    let protected = "oldObject == null || !has(oldObject.metadata.labels) || !('protected' in oldObject.metadata.labels)";
    let own = policy(
        "guard.static.k8s.io",
        "admissionregistration.k8s.io",
        &["*"],
        protected,
    );
    let (server, _directory) = validating(&own).await;
    let raw = of(&server);
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    let [mut one, binding] = policy("p", "", &["configmaps"], "false");
    one["metadata"]["labels"] = json!({"protected": "yes"});
    made(&raw, &policies, one).await;
    made(
        &raw,
        &format!("{GROUP}/validatingadmissionpolicybindings"),
        binding,
    )
    .await;
    let (code, answer) = raw.delete(&format!("{policies}/p"), json!({})).await;
    assert_eq!(code, 422, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("guard.static.k8s.io"), "{message}");
    // One of the API is not asked about policies, whatever it says.
    let [nothing, binding] = policy("nothing", "admissionregistration.k8s.io", &["*"], "false");
    made(&raw, &policies, nothing).await;
    made(
        &raw,
        &format!("{GROUP}/validatingadmissionpolicybindings"),
        binding,
    )
    .await;
    server.state.admission.refresh_policies();
    let [other, _] = policy("other", "", &["secrets"], "true");
    made(&raw, &policies, other).await;
    let (_, message) = refused(&raw, CONFIG_MAPS, config_map("x")).await;
    assert!(message.contains("'p' with binding 'p' denied"), "{message}");
}

#[tokio::test]
async fn nobody_makes_by_the_api_what_is_of_files() {
    let raw = admin().await;
    let [one, _] = policy("p.static.k8s.io", "", &["secrets"], "true");
    let (code, message) = refused(&raw, &format!("{GROUP}/validatingadmissionpolicies"), one).await;
    let expect = "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p.static.k8s.io\" is invalid: metadata.name: \
                  Invalid value: \"p.static.k8s.io\": names ending with \".static.k8s.io\" are reserved for static \
                  manifest-based configurations and cannot be managed via the API";
    assert_eq!((code, message.as_str()), (422, expect));
}

#[tokio::test]
async fn policies_of_files_are_read_anew() {
    let own = policy("a.static.k8s.io", "", &["configmaps"], "false");
    let (server, directory) = validating(&own).await;
    let raw = of(&server);
    let (_, message) = refused(&raw, CONFIG_MAPS, config_map("x")).await;
    assert!(
        message.contains("'a.static.k8s.io' with binding"),
        "{message}"
    );
    write(
        directory.path(),
        &policy("b.static.k8s.io", "", &["configmaps"], "false"),
    );
    tokio::time::pause();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let (_, message) = refused(&raw, CONFIG_MAPS, config_map("x")).await;
        if message.contains("'b.static.k8s.io' with binding") {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{message}");
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn webhooks_of_files_are_asked_before_others_and_about_them() {
    let hook = Hook::start(|request| {
        let is_other = request["object"]["metadata"]["name"] == "forbidden";
        Reply::Says(json!({"allowed": !is_other, "status": {"message": "no"}}))
    })
    .await;
    let rules = json!([{"operations": ["CREATE"], "apiGroups": ["", "admissionregistration.k8s.io"],
        "apiVersions": ["v1"], "resources": ["configmaps", "validatingwebhookconfigurations"]}]);
    let own = hook.webhook("own", json!({"rules": rules, "namespaceSelector": {}}));
    let configuration = |name: &str, webhook: Value| {
        json!({"apiVersion": V1, "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name}, "webhooks": [webhook]})
    };
    let files = [configuration("z.static.k8s.io", own.clone())];
    let (server, _directory) = reading(
        "ValidatingAdmissionWebhook",
        "WebhookAdmissionConfiguration",
        &files,
    )
    .await;
    let raw = of(&server);
    made(&raw, CONFIG_MAPS, config_map("x")).await;
    assert_eq!(hook.asked().len(), 1);
    let path = format!("{GROUP}/validatingwebhookconfigurations");
    let (_, message) = refused(&raw, &path, configuration("forbidden", own.clone())).await;
    let expect = "admission webhook \"own.example.org\" denied the request: no";
    assert_eq!(message, expect);
    let other = Hook::that(Reply::Says(json!({"allowed": false}))).await;
    let webhook = other.webhook("a", json!({"rules": rules, "namespaceSelector": {}}));
    made(&raw, &path, configuration("a", webhook)).await;
    server.state.store.cache.catch_up().await.unwrap();
    let before = other.asked().len();
    made(&raw, &path, configuration("b", own)).await;
    assert_eq!(
        other.asked().len(),
        before,
        "it is not asked about configurations"
    );
    // Both refuse; that of the file is the first, whatever their names are.
    let (_, message) = refused(&raw, CONFIG_MAPS, config_map("forbidden")).await;
    assert_eq!(message, expect);
}
