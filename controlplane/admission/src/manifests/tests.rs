use std::fs;

use serde_json::json;
use tempfile::TempDir;

use super::{config::WebhookConfig, *};

/// A directory with this file.
fn with(text: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), text).unwrap();
    directory
}

fn opened(holds: Holds, text: &str) -> Result<Source, String> {
    let directory = with(text);
    let opened = Source::open(holds, directory.path().to_str().unwrap());
    opened.map_err(|error| error.to_string())
}

const WEBHOOKS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: b.static.k8s.io}
webhooks:
- name: b.example.org
  clientConfig: {url: 'https://b.example.org'}
  rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  sideEffects: None
  admissionReviewVersions: [v1]
";

const POLICY: &str = "
apiVersion: v1
kind: List
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicy
  metadata: {name: p.static.k8s.io}
  spec:
    matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
    validations: [{expression: 'true'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b.static.k8s.io}
spec: {policyName: p.static.k8s.io, validationActions: [Deny]}
";

#[test]
fn objects_are_as_the_api_would_have_made_them() {
    let source = opened(Holds::ValidatingWebhooks, WEBHOOKS).unwrap();
    let loaded = source.subscribe().borrow().clone();
    let webhook = &loaded.objects[0]["webhooks"][0];
    assert_eq!(
        (&webhook["failurePolicy"], &webhook["timeoutSeconds"]),
        (&json!("Fail"), &json!(10))
    );
    assert_eq!(
        loaded.objects[0]["metadata"]["uid"],
        "manifest/b.static.k8s.io"
    );
    let source = opened(Holds::ValidatingPolicies, POLICY).unwrap();
    let loaded = source.subscribe().borrow().clone();
    assert_eq!((loaded.objects.len(), loaded.bindings.len()), (1, 1));
    let list = format!(
        "{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfigurationList, items: [{}]}}",
        serde_json::to_string(&serde_yaml::from_str::<Value>(WEBHOOKS).unwrap()).unwrap()
    );
    assert!(opened(Holds::ValidatingWebhooks, &list).is_ok());
    assert!(opened(Holds::ValidatingWebhooks, "# nothing\n---\n").is_ok());
}

#[test]
fn what_may_not_be_said_ends_the_server() {
    for (from, to, expect) in [
        (
            "b.static.k8s.io",
            "b.example.org",
            "\"b.example.org\": must have a name ending with \".static.k8s.io\"",
        ),
        (
            "{name: b.static.k8s.io}",
            "{}",
            "a resource must have a name",
        ),
        (
            "b.static.k8s.io",
            "B.static.k8s.io",
            "a lowercase RFC 1123 subdomain",
        ),
        (
            "sideEffects: None",
            "sideEffects: None\n  more: 1",
            "unknown field",
        ),
        (
            "sideEffects: None",
            "sideEffects: None\n  sideEffects: None",
            "duplicate",
        ),
        (
            "sideEffects: None",
            "sideEffects: Unknown",
            "webhooks[0].sideEffects: Unsupported value",
        ),
        (
            "url: 'https://b.example.org'",
            "service: {name: s, namespace: n}",
            "webhook \"b.example.org\": clientConfig.service is not supported for static manifests",
        ),
        (
            "registration.k8s.io/v1",
            "registration.k8s.io/v1beta1",
            "unsupported resource type",
        ),
        (
            "kind: Validating",
            "kind: Mutating",
            "unsupported resource type MutatingWebhookConfiguration",
        ),
    ] {
        assert!(WEBHOOKS.contains(from), "{from}");
        let error = opened(Holds::ValidatingWebhooks, &WEBHOOKS.replacen(from, to, 1));
        let error = error.expect_err(to);
        assert!(
            error.contains(expect) && error.contains("a.yaml"),
            "{error}\n{expect}"
        );
    }
    let twice = opened(
        Holds::ValidatingWebhooks,
        &format!("{WEBHOOKS}---\n{WEBHOOKS}"),
    );
    assert!(
        twice
            .unwrap_err()
            .contains("duplicate name \"b.static.k8s.io\"")
    );
    for (from, to, expect) in [
        (
            "validations:",
            "paramKind: {apiVersion: v1, kind: ConfigMap}\n    validations:",
            "spec.paramKind is not supported",
        ),
        (
            "validationActions:",
            "paramRef: {name: a, parameterNotFoundAction: Deny}, validationActions:",
            "spec.paramRef is not supported",
        ),
        (
            "{policyName: p",
            "{policyName: q",
            "binding \"b.static.k8s.io\" references policy \"q.static.k8s.io\" which does not exist",
        ),
    ] {
        assert!(POLICY.contains(from), "{from}");
        let error = opened(Holds::ValidatingPolicies, &POLICY.replacen(from, to, 1)).expect_err(to);
        assert!(error.contains(expect), "{error}\n{expect}");
    }
}

#[test]
fn the_directory_is_one() {
    for (path, expect) in [
        (
            "a/b",
            "Invalid value: \"a/b\": must be an absolute file path",
        ),
        ("/nonexistent", "unable to read: "),
        ("/dev/null", "must be a directory"),
    ] {
        let error = Source::open(Holds::MutatingWebhooks, path)
            .unwrap_err()
            .to_string();
        assert!(error.contains(expect), "{error}");
    }
}

#[test]
fn webhooks_and_policies_are_told_by_their_own_kinds() {
    let directory = with(WEBHOOKS);
    let path = directory.path().to_str().unwrap();
    let told = |value: Value| WebhookConfig::of(value, Holds::ValidatingWebhooks);
    let (v1, kind) = (
        "apiserver.config.k8s.io/v1",
        "WebhookAdmissionConfiguration",
    );
    let both = told(json!({"apiVersion": v1, "kind": kind, "staticManifestsDir": path})).unwrap();
    assert!(both.manifests.is_some());
    for (value, expect) in [
        (
            json!({"apiVersion": v1, "kind": kind}),
            "kubeConfigFile: Invalid value: \"\": must be an absolute file path",
        ),
        (
            json!({"apiVersion": v1, "kind": kind, "kubeConfigFile": "a"}),
            "kubeConfigFile: Invalid value: \"a\"",
        ),
        (
            json!({"apiVersion": v1, "kind": "ValidatingAdmissionPolicyConfiguration"}),
            "expected WebhookAdmissionConfiguration",
        ),
        (
            json!({"apiVersion": v1, "kind": kind, "dir": path}),
            "unknown field `dir`",
        ),
    ] {
        let error = told(value).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }
    let policies = json!({"apiVersion": v1, "kind": "ValidatingAdmissionPolicyConfiguration"});
    assert!(config::of_policies(policies.clone(), Holds::ValidatingPolicies).is_ok());
    assert!(config::of_policies(policies, Holds::MutatingPolicies).is_err());
}

#[tokio::test(start_paused = true)]
async fn what_changes_is_taken_in_unless_it_is_wrong() {
    let directory = with(WEBHOOKS);
    let path = directory.path().join("a.yaml");
    let source = Source::open(
        Holds::ValidatingWebhooks,
        directory.path().to_str().unwrap(),
    );
    let (source, stop) = (source.unwrap(), CancellationToken::new());
    let (mut now, metrics) = (source.subscribe(), ManifestMetrics::default());
    let test = async {
        fs::write(&path, WEBHOOKS.replace("b.static", "c.static")).unwrap();
        now.changed().await.unwrap();
        let loaded = now.borrow_and_update().clone();
        assert_eq!(loaded.objects[0]["metadata"]["name"], "c.static.k8s.io");
        assert_eq!(loaded.objects[0]["metadata"]["generation"], 2);
        fs::write(&path, WEBHOOKS.replace("b.static", "b.dynamic")).unwrap();
        sleep(PERIOD * 3).await;
        assert!(!now.has_changed().unwrap(), "what is wrong is not taken");
        fs::remove_file(&path).unwrap();
        now.changed().await.unwrap();
        assert!(now.borrow_and_update().objects.is_empty());
        let mut shown = String::new();
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register("reloads", "", metrics.reloads.clone());
        registry.register("info", "", metrics.info.clone());
        prometheus_client::encoding::text::encode(&mut shown, &registry).unwrap();
        let line = |line: &str| shown.lines().any(|one| one == line);
        let plugin = "plugin=\"ValidatingAdmissionWebhook\"";
        assert!(
            line(&format!("reloads_total{{status=\"success\",{plugin}}} 3")),
            "{shown}"
        );
        assert!(shown.contains("status=\"failure\""), "{shown}");
        assert!(line(&format!("info{{{plugin},hash=\"\"}} 1")), "{shown}");
        stop.cancel();
    };
    tokio::join!(source.follow(&stop, &metrics), test);
}
