//! What a file tells plugins: ImagePolicyWebhook, ResourceQuota.

use std::sync::atomic::{AtomicU16, Ordering};

use super::{
    super::{
        raw::{CONFIG_MAPS, config_map},
        webhooks::server::{Hook, Reply},
    },
    *,
};

/// A server that asks `hook` about images.
async fn asking(hook: &Hook, more: &str) -> Raw {
    let kubeconfig = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(kubeconfig.path(), hook.kubeconfig()).expect("written");
    let path = kubeconfig.path().display();
    let file = format!(
        "{{name: ImagePolicyWebhook, configuration: {{imagePolicy: {{kubeConfigFile: {path}, retryBackoff: 1, {more}}}}}}}"
    );
    of(&server(&["ImagePolicyWebhook"], &[], &file).await)
}

fn review(status: Value) -> Reply {
    let review = json!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": status});
    Reply::Raw(200, review.to_string().into())
}

fn of_image(name: &str, image: &str) -> Value {
    pod_with(name, json!({"containers": [{"name": "c", "image": image}]}))
}

#[tokio::test]
async fn images_run_if_their_webhook_says_so() {
    let hook = Hook::start(|asked| {
        let image = asked["spec"]["containers"][0]["image"].as_str().unwrap();
        match image {
            "good" => review(json!({"allowed": true})),
            "bad" => review(json!({"allowed": false, "reason": "unsigned"})),
            _ => review(json!({"allowed": false})),
        }
    })
    .await;
    let raw = asking(&hook, "").await;
    let mut pod = of_image("a", "good");
    pod["metadata"]["annotations"] = json!({"a": "b", "x.image-policy.k8s.io/ticket": "1"});
    made(&raw, PODS, pod).await;
    let asked = hook.asked().remove(0);
    assert_eq!(asked["kind"], "ImageReview");
    let spec = json!({"containers": [{"image": "good"}], "namespace": "default",
        "annotations": {"x.image-policy.k8s.io/ticket": "1"}});
    assert_eq!(asked["spec"], spec);
    let expect =
        "pods \"b\" is forbidden: image policy webhook backend denied one or more images: unsigned";
    let bad = refused(&raw, PODS, of_image("b", "bad")).await;
    assert_eq!(bad, (403, expect.to_owned()));
    let (_, message) = refused(&raw, PODS, of_image("c", "other")).await;
    let expect = "pods \"c\" is forbidden: one or more images rejected by webhook backend";
    assert_eq!(message, expect);
    // What was said is remembered: of pods of the same images nothing is asked.
    let before = hook.asked().len();
    assert_eq!(refused(&raw, PODS, of_image("b", "bad")).await, bad);
    assert_eq!(hook.asked().len(), before);
    let debugged = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "bad"}]}});
    let path = format!("{PODS}/a/ephemeralcontainers");
    let (code, answer) = raw.merge(&path, debugged).await;
    assert_eq!(code, 403, "{answer}");
}

#[tokio::test]
async fn an_image_webhook_is_asked_again_where_that_may_help() {
    let failures = AtomicU16::new(2);
    let hook = Hook::start(move |_| {
        let left = failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(1)
        });
        match left {
            Ok(_) => Reply::Raw(500, "".into()),
            Err(_) => review(json!({"allowed": true})),
        }
    })
    .await;
    let raw = asking(&hook, "").await;
    made(&raw, PODS, of_image("a", "i")).await;
    assert_eq!(hook.asked().len(), 3);
}

#[tokio::test]
async fn where_the_image_webhook_fails_the_file_decides() {
    for (reply, asked) in [
        (Reply::Raw(500, "".into()), 5),
        (Reply::Raw(403, "".into()), 1),
        (Reply::Raw(200, "{}".into()), 1),
    ] {
        let replied = reply.clone();
        let hook = Hook::start(move |_| replied.clone()).await;
        let raw = asking(&hook, "").await;
        let (code, message) = refused(&raw, PODS, of_image("a", "i")).await;
        assert_eq!(code, 403, "{message}");
        assert!(
            message.starts_with("pods \"a\" is forbidden: "),
            "{message}"
        );
        assert_eq!(hook.asked().len(), asked, "{message}");
        let raw = asking(&hook, "defaultAllow: true").await;
        made(&raw, PODS, of_image("a", "i")).await;
    }
}

#[tokio::test]
async fn webhooks_are_told_who_asks() {
    let hook = Hook::allowing().await;
    let kubeconfig = tempfile::NamedTempFile::new().expect("a file");
    let users = json!({"users": [{"name": hook.address, "user": {"token": "secret"}}]});
    std::fs::write(kubeconfig.path(), users.to_string()).expect("written");
    let path = kubeconfig.path().display();
    let file = format!(
        "{{name: ValidatingAdmissionWebhook, configuration: {{apiVersion: apiserver.config.k8s.io/v1, \
         kind: WebhookAdmissionConfiguration, kubeConfigFile: {path}}}}}"
    );
    let server = server(&[], &[], &file).await;
    let raw = of(&server);
    for kind in ["Validating", "Mutating"] {
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations",
            kind.to_lowercase()
        );
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}WebhookConfiguration"), "metadata": {"name": "c"},
            "webhooks": [hook.webhook("a", json!({}))]});
        made(&raw, &path, configuration).await;
    }
    server.state.store.cache.catch_up().await.unwrap();
    made(&raw, CONFIG_MAPS, config_map("x")).await;
    let shown: Vec<Value> = hook
        .asked()
        .iter()
        .map(|asked| asked["authorization"].clone())
        .collect();
    assert_eq!(
        shown,
        [Value::Null, json!("Bearer secret")],
        "each plugin has its own file"
    );
}

#[tokio::test]
async fn what_the_file_limits_needs_a_quota() {
    let limits = "{name: ResourceQuota, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration,
        limitedResources: [
            {resource: persistentvolumeclaims, matchContains: [gold.storageclass.storage.k8s.io/requests.storage]},
            {resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In, values: [high]}]}]}}";
    let raw = of(&server(&[], &[], limits).await);
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, class: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    made(&raw, claims, claim("silver", "silver")).await;
    let expect = "persistentvolumeclaims \"gold\" is forbidden: insufficient quota to consume: \
                  gold.storageclass.storage.k8s.io/requests.storage";
    let gold = refused(&raw, claims, claim("gold", "gold")).await;
    assert_eq!(gold, (403, expect.to_owned()));
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7});
    made(&raw, "/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
    let important = || pod_with("p", json!({"priorityClassName": "high"}));
    let expect = "insufficient quota to match these scopes: [{PriorityClass In [high]}]";
    assert_eq!(
        refused(&raw, PODS, important()).await,
        (500, expect.to_owned())
    );
    made(&raw, PODS, pod("low")).await;
    let hard = json!({"gold.storageclass.storage.k8s.io/requests.storage": "5Gi"});
    quota(&raw, "gold", json!({"hard": hard})).await;
    made(&raw, claims, claim("gold", "gold")).await;
    let scope = json!({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]});
    let spec = json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [scope]}});
    quota(&raw, "high", spec).await;
    made(&raw, PODS, important()).await;
}

/// Makes a quota of which nothing is used yet.
async fn quota(raw: &Raw, name: &str, spec: Value) {
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec});
    let mut quota = made(raw, quotas, quota).await;
    let hard = spec["hard"].as_object().expect("what is limited");
    let used = hard.keys().map(|name| (name.clone(), json!("0")));
    quota["status"] = json!({"hard": hard, "used": used.collect::<serde_json::Map<_, _>>()});
    let (code, answer) = raw.put(&format!("{quotas}/{name}/status"), quota).await;
    assert_eq!(code, 200, "{answer}");
}
