//! Upstream's conformance tests of webhooks, retold: those that no other test here asks.
//! `docs/conformance.md` says which test each one retells.

mod custom;

use std::time::Duration;

use super::*;

const JSON_PATCH: &str = "application/json-patch+json";

fn about(operations: &[&str], group: &str, resource: &str) -> Value {
    json!([{"operations": operations, "apiGroups": [group], "apiVersions": ["*"],
        "resources": [resource]}])
}

/// Refuses what says of itself that it is not wanted.
async fn choosy() -> Hook {
    Hook::start(|request| {
        let shown = match &request["object"] {
            Value::Null => &request["oldObject"],
            object => object,
        };
        let is_wanted = shown["data"]["unwanted"].is_null()
            && shown["metadata"]["labels"]["unwanted"].is_null();
        says(json!({"allowed": is_wanted, "status": {"message": "it is not wanted"}}))
    })
    .await
}

fn unwanted(name: &str) -> Value {
    let mut object = config_map(name);
    object["data"]["unwanted"] = "yes".into();
    object
}

/// Adds a value to ConfigMaps.
async fn adding(key: &str) -> Hook {
    let path = format!("/data/{key}");
    Hook::that(patch(json!([{"op": "add", "path": path, "value": "yes"}]))).await
}

/// Refused, and by a webhook.
#[track_caller]
fn denied((code, answer): (u16, Value)) {
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(
        code >= 400 && message.contains("denied the request"),
        "{code}: {answer}"
    );
}

async fn catch_up(server: &ApiServer) {
    server.state.store.cache.catch_up().await.unwrap();
}

#[tokio::test]
async fn discovery_tells_of_webhooks_and_policies() {
    let (_, admin) = cluster().await;
    let named = |list: &Value, field: &str, name: &str| {
        let list = list.as_array().unwrap();
        list.iter().find(|one| one[field] == name).cloned()
    };
    const GROUP: &str = "admissionregistration.k8s.io";
    let (_, groups) = admin.get("/apis").await;
    let group = named(&groups["groups"], "name", GROUP).expect("a group");
    let (_, own) = admin.get(&format!("/apis/{GROUP}")).await;
    assert_eq!(own["name"], GROUP);
    for group in [group, own] {
        assert!(
            named(&group["versions"], "version", "v1").is_some(),
            "{group}"
        );
    }
    let (_, resources) = admin.get(&format!("/apis/{GROUP}/v1")).await;
    assert_eq!(resources["groupVersion"], format!("{GROUP}/v1"));
    for name in [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicies/status",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ] {
        assert!(
            named(&resources["resources"], "name", name).is_some(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn pods_and_config_maps_are_refused_when_they_are_made_and_changed() {
    let (server, admin) = cluster().await;
    let choosy = choosy().await;
    let hanging = Hook::that(Reply::Hangs).await;
    let both = [
        about(&["CREATE", "UPDATE"], "", "pods"),
        about(&["CREATE", "UPDATE"], "", "configmaps"),
    ];
    let exempt = json!({"matchExpressions": [{"key": "exempt", "operator": "DoesNotExist"}]});
    let [pods, config_maps] =
        both.map(|rules| json!({"rules": rules, "namespaceSelector": exempt}));
    let slow = json!({"rules": about(&["CREATE"], "", "pods"), "timeoutSeconds": 1,
        "objectSelector": {"matchLabels": {"app": "slow"}}});
    let webhooks = [
        choosy.webhook("pods", pods),
        choosy.webhook("maps", config_maps),
        hanging.webhook("slow", slow),
    ];
    configure(&server, &admin, VALIDATING, "c", &webhooks).await;
    let mut labelled = pod("p");
    labelled["metadata"]["labels"]["unwanted"] = "yes".into();
    denied(admin.post(PODS, labelled).await);
    let (code, message) = make(&admin, PODS, pod("slow")).await;
    assert!(
        code == 500 && message.contains("deadline"),
        "{code}: {message}"
    );
    let none = admin.get(&format!("{PODS}/slow")).await;
    assert_eq!(none.0, 404);
    denied(admin.post(CONFIG_MAPS, unwanted("x")).await);
    assert_eq!(admin.post(CONFIG_MAPS, config_map("x")).await.0, 201);
    let own = format!("{CONFIG_MAPS}/x");
    let (_, mut read) = admin.get(&own).await;
    read["data"]["unwanted"] = "yes".into();
    denied(admin.put(&own, read).await);
    denied(
        admin
            .merge(&own, json!({"data": {"unwanted": "yes"}}))
            .await,
    );
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "free", "labels": {"exempt": "yes"}}});
    assert_eq!(admin.post("/api/v1/namespaces", namespace).await.0, 201);
    let elsewhere = "/api/v1/namespaces/free/configmaps";
    assert_eq!(admin.post(elsewhere, unwanted("x")).await.0, 201);
}

#[tokio::test]
async fn nobody_attaches_to_a_pod_against_a_webhook() {
    let (server, admin) = cluster().await;
    let hook = Hook::that(says(json!({"allowed": false, "status": {"message": "no"}}))).await;
    let rules = about(&["CONNECT"], "", "pods/attach");
    let webhook = hook.webhook("v", json!({"rules": rules}));
    configure(&server, &admin, VALIDATING, "c", &[webhook]).await;
    assert_eq!(admin.post(PODS, pod("p")).await.0, 201);
    denied(
        admin
            .get(&format!("{PODS}/p/attach?container=c&stdout=true"))
            .await,
    );
    let asked = hook.asked().pop().unwrap();
    assert_eq!(asked["kind"]["kind"], "PodAttachOptions");
    assert_eq!(asked["object"]["container"], "c");
}

#[tokio::test]
async fn what_cannot_be_called_refuses_everything_that_it_is_about() {
    let (server, admin) = cluster().await;
    let hook = Hook::allowing().await;
    let mut webhook = hook.webhook("v", json!({}));
    // Nobody has signed its certificate.
    webhook["clientConfig"]["caBundle"] = Value::Null;
    configure(&server, &admin, VALIDATING, "c", &[webhook]).await;
    let (code, message) = make(&admin, CONFIG_MAPS, config_map("x")).await;
    let begins = "Internal error occurred: failed calling webhook \"v.example.org\": failed to call webhook: Post";
    assert!(
        code == 500 && message.starts_with(begins),
        "{code}: {message}"
    );
    assert_eq!(hook.asked().len(), 0);
}

/// Each of two answers after a while: one in time, one too late.
#[tokio::test]
async fn timeouts_are_those_of_the_webhook() {
    let (server, admin) = cluster().await;
    let late = Hook::that(Reply::Late(Duration::from_millis(1500))).await;
    for (policy, timeout, is_made) in [
        ("Fail", json!(1), false),
        ("Ignore", json!(1), true),
        ("Fail", json!(10), true),
        ("Fail", Value::Null, true),
    ] {
        let mut webhook = late.webhook("v", json!({"failurePolicy": policy}));
        webhook["timeoutSeconds"] = timeout.clone();
        configure(&server, &admin, VALIDATING, "c", &[webhook]).await;
        let (code, message) = make(
            &admin,
            &format!("{CONFIG_MAPS}?dryRun=All"),
            config_map("x"),
        )
        .await;
        assert_eq!(code == 201, is_made, "{policy} {timeout}: {message}");
        if !is_made {
            assert!(message.contains("/v?timeout=1s"), "{message}");
        }
        admin.delete(&format!("{VALIDATING}/c"), json!({})).await;
        catch_up(&server).await;
    }
}

#[tokio::test]
async fn webhooks_hold_as_their_configuration_is_changed() {
    let (server, admin) = cluster().await;
    let (choosy, adding) = (choosy().await, adding("added").await);
    configure(
        &server,
        &admin,
        VALIDATING,
        "v",
        &[choosy.webhook("v", json!({}))],
    )
    .await;
    configure(
        &server,
        &admin,
        MUTATING,
        "m",
        &[adding.webhook("m", json!({}))],
    )
    .await;
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    denied(admin.post(&dry, unwanted("x")).await);
    let added = async || admin.post(&dry, config_map("x")).await.1["data"]["added"].clone();
    assert_eq!(added().await, "yes");
    for own in [format!("{VALIDATING}/v"), format!("{MUTATING}/m")] {
        let (_, mut read) = admin.get(&own).await;
        read["webhooks"][0]["rules"][0]["operations"] = json!(["UPDATE"]);
        let (code, answer) = admin.put(&own, read).await;
        assert_eq!(code, 200, "{answer}");
    }
    catch_up(&server).await;
    assert_eq!(admin.post(&dry, unwanted("x")).await.0, 201);
    assert_eq!(added().await, Value::Null);
    let again =
        json!([{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"]}]);
    for own in [format!("{VALIDATING}/v"), format!("{MUTATING}/m")] {
        let (code, answer) = admin
            .send("PATCH", &own, JSON_PATCH, again.to_string())
            .await;
        assert_eq!(code, 200, "{answer}");
    }
    catch_up(&server).await;
    denied(admin.post(&dry, unwanted("x")).await);
    assert_eq!(added().await, "yes");
}

#[tokio::test]
async fn webhooks_are_listed_and_deleted_by_their_labels() {
    let (server, admin) = cluster().await;
    let (choosy, adding) = (choosy().await, adding("added").await);
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    for (path, kind, webhook) in [
        (
            VALIDATING,
            "ValidatingWebhookConfiguration",
            choosy.webhook("v", json!({})),
        ),
        (
            MUTATING,
            "MutatingWebhookConfiguration",
            adding.webhook("m", json!({})),
        ),
    ] {
        for at in 0..10 {
            let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": format!("c{at}"), "labels": {"listed": "yes"}}, "webhooks": [webhook]});
            assert_eq!(admin.post(path, configuration).await.0, 201);
        }
        let selected = format!("{path}?labelSelector=listed%3Dyes");
        let (_, list) = admin.get(&selected).await;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(10));
        catch_up(&server).await;
        let changed = async || {
            let refused = admin.post(&dry, unwanted("x")).await.0 >= 400;
            refused || admin.post(&dry, config_map("x")).await.1["data"]["added"] == "yes"
        };
        assert!(changed().await, "{kind}");
        let (code, gone) = admin.delete(&selected, json!({})).await;
        assert_eq!(code, 200, "{gone}");
        catch_up(&server).await;
        assert!(!changed().await, "{kind}");
    }
}

#[tokio::test]
async fn match_conditions_are_kept_and_checked() {
    let (server, admin) = cluster().await;
    let hook = Hook::allowing().await;
    let condition = |name: &str, text: &str| json!({"name": name, "expression": text});
    let first = condition("expression-1", "object.metadata.namespace == 'production'");
    let second = condition("expression-2", "object.metadata.namespace == 'staging'");
    for (path, kind) in [
        (VALIDATING, "ValidatingWebhookConfiguration"),
        (MUTATING, "MutatingWebhookConfiguration"),
    ] {
        let webhook = hook.webhook("w", json!({"matchConditions": [first]}));
        configure(&server, &admin, path, "c", &[webhook]).await;
        let own = format!("{path}/c");
        let (_, mut read) = admin.get(&own).await;
        assert_eq!(read["webhooks"][0]["matchConditions"], json!([first]));
        read["webhooks"][0]["matchConditions"] = json!([first, second]);
        assert_eq!(admin.put(&own, read).await.0, 200);
        let (_, read) = admin.get(&own).await;
        assert_eq!(
            read["webhooks"][0]["matchConditions"],
            json!([first, second])
        );
        let bad = condition("invalid-expression-1", "... [] bad expression");
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "bad"}, "webhooks": [hook.webhook("w", json!({"matchConditions": [bad]}))]});
        let (code, message) = make(&admin, path, configuration).await;
        assert!(
            code == 422 && message.contains("compilation failed"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_match_condition_leaves_out_an_object_by_its_name() {
    let (server, admin) = cluster().await;
    let hook = adding("stage").await;
    let condition = json!([{"name": "skip-me", "expression": "object.metadata.name != 'skip-me'"}]);
    let webhook = hook.webhook("m", json!({"matchConditions": condition}));
    configure(&server, &admin, MUTATING, "c", &[webhook]).await;
    let (_, made) = admin.post(CONFIG_MAPS, config_map("x")).await;
    assert_eq!(made["data"], json!({"n": "0", "stage": "yes"}));
    let (_, made) = admin.post(CONFIG_MAPS, config_map("skip-me")).await;
    assert_eq!(made["data"], json!({"n": "0"}));
}
