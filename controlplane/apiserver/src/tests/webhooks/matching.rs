//! Which writes a webhook is asked about, and as what it is shown them.

mod namespaces;

use serde_json::{Value, json};

use super::{
    CONFIG_MAPS, MUTATING, PODS, VALIDATING, cluster, config_map, configure, make, pod, says,
    server::{Hook, patch},
    versions,
};

fn rule(operation: &str, group: &str, version: &str, resource: &str) -> Value {
    json!({"operations": [operation], "apiGroups": [group], "apiVersions": [version],
        "resources": [resource]})
}

#[tokio::test]
async fn selectors_choose_by_namespace_and_by_object() {
    let (server, admin) = cluster().await;
    let hook = Hook::allowing().await;
    for name in ["n", "m"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"asks": name}}});
        assert_eq!(admin.post("/api/v1/namespaces", namespace).await.0, 201);
    }
    let chosen = json!({"namespaceSelector": {"matchExpressions": [
            {"key": "asks", "operator": "In", "values": ["n"]}]},
        "objectSelector": {"matchLabels": {"a": "b"}},
        "rules": [rule("*", "*", "*", "*")]});
    configure(
        &server,
        &admin,
        VALIDATING,
        "c",
        &[hook.webhook("v", chosen)],
    )
    .await;
    let labelled = |name: &str| {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"a": "b"});
        object
    };
    for (namespace, object, asked) in [
        ("n", config_map("x"), 0),
        ("m", labelled("x"), 0),
        ("default", labelled("x"), 0),
        ("n", labelled("y"), 1),
    ] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        assert_eq!(admin.post(&path, object).await.0, 201);
        assert_eq!(hook.asked().len(), asked, "{namespace}");
    }
    // What it was counts, too.
    let path = "/api/v1/namespaces/n/configmaps/y";
    admin
        .merge(path, json!({"metadata": {"labels": {"a": null}}}))
        .await;
    assert_eq!(hook.asked().len(), 2);
    admin.merge(path, json!({"data": {"n": "2"}})).await;
    assert_eq!(hook.asked().len(), 2);
}

#[tokio::test]
async fn conditions_narrow_it_down_and_fail_as_the_policy_says() {
    let (server, admin) = cluster().await;
    let hook = Hook::allowing().await;
    let conditions = |text: &str| json!([{"name": "c", "expression": text}]);
    let who = "request.userInfo.username == 'admin' && request.operation == 'CREATE' && object.data.n == '0' \
               && oldObject == null && authorizer.group('').resource('pods').check('create').allowed()";
    for (text, policy, code, asked) in [
        (who, "Fail", 201, 1),
        ("object.data.n == '1'", "Fail", 201, 0),
        ("object.absent == 1", "Ignore", 201, 0),
        ("object.absent == 1", "Fail", 403, 0),
    ] {
        let before = hook.asked().len();
        let changes = json!({"matchConditions": conditions(text), "failurePolicy": policy});
        configure(
            &server,
            &admin,
            VALIDATING,
            "c",
            &[hook.webhook("v", changes)],
        )
        .await;
        let (found, message) = make(
            &admin,
            &format!("{CONFIG_MAPS}?dryRun=All"),
            config_map("x"),
        )
        .await;
        assert_eq!(
            (found, hook.asked().len() - before),
            (code, asked),
            "{text}: {message}"
        );
        if code == 403 {
            let why = "configmaps \"x\" is forbidden: expression 'object.absent == 1' resulted in error: no such key: absent";
            assert_eq!(message, why);
        }
        admin.delete(&format!("{VALIDATING}/c"), json!({})).await;
    }
    let changes = json!({"matchConditions": conditions("1 +")});
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "c"},
        "webhooks": [hook.webhook("v", changes)]});
    let (code, message) = make(&admin, VALIDATING, configuration).await;
    assert_eq!(code, 422);
    assert!(
        message.contains(
            "webhooks[0].matchConditions[0].expression: Invalid value: \"1 +\": compilation failed"
        ),
        "{message}"
    );
}

#[tokio::test]
async fn a_rule_about_one_version_is_about_all_unless_it_is_exact() {
    let (server, admin) = cluster().await;
    let (exact, equivalent) = (Hook::allowing().await, Hook::allowing().await);
    let changes = |policy: &str| json!({"matchPolicy": policy, "rules": [rule("*", "autoscaling", "v1", "*")]});
    let webhooks = [
        exact.webhook("e", changes("Exact")),
        equivalent.webhook("q", changes("Equivalent")),
    ];
    configure(&server, &admin, VALIDATING, "c", &webhooks).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let metrics = json!([{"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 70}}}]);
    let v2 = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "two"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3, "metrics": metrics}});
    let path = |version: &str| {
        format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers")
    };
    assert_eq!(admin.post(&path("v2"), v2).await.0, 201);
    assert_eq!(exact.asked().len(), 0);
    let asked = equivalent.asked().remove(0);
    let version = |name: &str| asked[name]["version"].as_str().unwrap().to_owned();
    assert_eq!(
        (version("kind"), version("requestKind")),
        ("v1".to_owned(), "v2".to_owned())
    );
    assert_eq!(
        (version("resource"), version("requestResource")),
        ("v1".to_owned(), "v2".to_owned())
    );
    assert_eq!(asked["object"]["apiVersion"], "autoscaling/v1");
    assert_eq!(
        asked["object"]["spec"]["targetCPUUtilizationPercentage"],
        70
    );
    // And who asks by that version is shown as it asks.
    let v1 = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "one"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 60}});
    assert_eq!(admin.post(&path("v1"), v1).await.0, 201);
    let asked = exact.asked().remove(0);
    assert_eq!(
        asked["object"]["spec"]["targetCPUUtilizationPercentage"],
        60
    );
}

#[tokio::test]
async fn a_patch_of_another_version_counts_in_the_requests_own() {
    let (server, admin) = cluster().await;
    let hook = Hook::that(patch(json!([
        {"op": "add", "path": "/spec/targetCPUUtilizationPercentage", "value": 55}])))
    .await;
    let changes = json!({"rules": [rule("*", "autoscaling", "v1", "*")]});
    configure(
        &server,
        &admin,
        MUTATING,
        "c",
        &[hook.webhook("m", changes)],
    )
    .await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "x"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}});
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let (code, made) = admin.post(path, hpa).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        55
    );
}

#[tokio::test]
async fn custom_resources_are_shown_and_changed_as_others() {
    let (server, admin) = cluster().await;
    let fields =
        json!({"size": {"type": "integer"}, "mode": {"type": "string", "default": "fast"}});
    let widgets = ["v1", "v2"].map(|version| (version, fields.clone()));
    versions::serve(&server, ("Widget", "widgets"), widgets).await;
    let hook = Hook::that(patch(json!([
        {"op": "add", "path": "/size", "value": 7},
        {"op": "add", "path": "/nonsense", "value": 1},
        {"op": "remove", "path": "/mode"}])))
    .await;
    let changes = json!({"rules": [rule("*", "example.org", "v1", "*")]});
    configure(
        &server,
        &admin,
        MUTATING,
        "c",
        &[hook.webhook("m", changes)],
    )
    .await;
    for version in ["v1", "v2"] {
        let path = format!("/apis/example.org/{version}/namespaces/default/widgets");
        let widget = json!({"apiVersion": format!("example.org/{version}"), "kind": "Widget",
            "metadata": {"name": version}, "mode": "slow"});
        let (code, made) = admin.post(&path, widget).await;
        assert_eq!(code, 201, "{made}");
        assert_eq!(
            (&made["size"], &made["mode"], &made["nonsense"]),
            (&json!(7), &json!("fast"), &Value::Null)
        );
        assert_eq!(made["apiVersion"], format!("example.org/{version}"));
        let asked = hook.asked().pop().unwrap();
        assert_eq!(asked["object"]["apiVersion"], "example.org/v1");
        assert_eq!(asked["requestKind"]["version"], version);
    }
    // What is no widget any more is refused, and what is of a wrong type.
    let broken = Hook::that(patch(
        json!([{"op": "add", "path": "/size", "value": "large"}]),
    ))
    .await;
    let changes = json!({"rules": [rule("*", "example.org", "*", "*")]});
    configure(
        &server,
        &admin,
        MUTATING,
        "d",
        &[broken.webhook("d", changes)],
    )
    .await;
    let widget =
        json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let (code, message) = make(
        &admin,
        "/apis/example.org/v1/namespaces/default/widgets",
        widget,
    )
    .await;
    assert_eq!(code, 422, "{message}");
}

#[tokio::test]
async fn what_is_below_objects_is_asked_about_under_its_own_kind() {
    let (server, admin) = cluster().await;
    let hook = Hook::start(|request| {
        let is_exec = request["subResource"] == "exec";
        says(json!({"allowed": !is_exec, "status": {"message": "no shells"}}))
    })
    .await;
    let changes = json!({"rules": [rule("*", "*", "*", "*/*")]});
    configure(
        &server,
        &admin,
        VALIDATING,
        "c",
        &[hook.webhook("v", changes)],
    )
    .await;
    assert_eq!(admin.post(PODS, pod("p")).await.0, 201);
    let exec = admin
        .get(&format!("{PODS}/p/exec?command=sh&stdout=true"))
        .await;
    let message = "admission webhook \"v.example.org\" denied the request: no shells";
    assert_eq!((exec.0, exec.1["message"].as_str()), (400, Some(message)));
    let asked = hook.asked().pop().unwrap();
    assert_eq!(
        (&asked["operation"], &asked["kind"]["kind"]),
        (&json!("CONNECT"), &json!("PodExecOptions"))
    );
    assert_eq!(
        (&asked["subResource"], &asked["name"]),
        (&json!("exec"), &json!("p"))
    );
    assert_eq!(asked["object"]["command"], json!(["sh"]));
    assert_eq!(asked["options"], Value::Null);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(admin.post(path, deployment).await.0, 201);
    let scaled = admin
        .merge(&format!("{path}/d/scale"), json!({"spec": {"replicas": 4}}))
        .await;
    assert_eq!(scaled.0, 200);
    let asked = hook.asked().pop().unwrap();
    assert_eq!(
        (&asked["kind"]["kind"], &asked["object"]["kind"]),
        (&json!("Scale"), &json!("Scale"))
    );
    let replicas = |of: &str| asked[of]["spec"]["replicas"].as_i64();
    assert_eq!(
        (replicas("object"), replicas("oldObject")),
        (Some(4), Some(1))
    );
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    assert_eq!(
        admin.post(&format!("{PODS}/p/eviction"), eviction).await.0,
        201
    );
    let asked = hook.asked();
    let asked = asked
        .iter()
        .find(|one| one["subResource"] == "eviction")
        .unwrap();
    assert_eq!(
        asked["kind"],
        json!({"group": "policy", "version": "v1", "kind": "Eviction"})
    );
    assert_eq!(asked["resource"]["resource"], "pods");
}

#[tokio::test]
async fn configurations_and_reviews_are_never_sent() {
    let (server, admin) = cluster().await;
    let hook = Hook::that(says(json!({"allowed": false}))).await;
    let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
        "resources": ["*/*"]}]);
    let webhook = hook.webhook("v", json!({"rules": rules, "namespaceSelector": {}}));
    configure(
        &server,
        &admin,
        VALIDATING,
        "c",
        std::slice::from_ref(&webhook),
    )
    .await;
    configure(&server, &admin, MUTATING, "c", &[webhook]).await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(admin.post(path, review).await.0, 201);
    assert_eq!(admin.post(CONFIG_MAPS, config_map("x")).await.0, 400);
    // So one gets rid of it.
    assert_eq!(
        admin.delete(&format!("{VALIDATING}/c"), json!({})).await.0,
        200
    );
    assert_eq!(
        admin.delete(&format!("{MUTATING}/c"), json!({})).await.0,
        200
    );
    server.state.store.cache.catch_up().await.unwrap();
    assert_eq!(admin.post(CONFIG_MAPS, config_map("x")).await.0, 201);
    assert_eq!(hook.asked().len(), 1);
}
