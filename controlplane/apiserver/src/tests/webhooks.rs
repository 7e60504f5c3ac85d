//! Admission webhooks: what they are asked, what comes of what they answer, and of what they do
//! not.

mod conformance;
mod conversions;
mod counted;
mod failures;
mod floods;
mod identity;
mod matching;
pub(super) mod server;
mod versions;

use std::sync::Arc;

use coracle_auth::user::{GROUP_MASTERS, UserInfo};
use serde_json::{Value, json};

use self::server::{Hook, Reply, patch};
use super::raw::{CONFIG_MAPS, PODS, Raw, config_map, pod};
use crate::{server::ApiServer, testing};

pub(super) const MUTATING: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(super) const VALIDATING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

async fn cluster() -> (Arc<ApiServer>, Raw) {
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::new("admin", &[GROUP_MASTERS]));
    (server, admin)
}

/// Makes a configuration, and has the server know it.
pub(super) async fn configure(
    server: &ApiServer,
    admin: &Raw,
    path: &str,
    name: &str,
    webhooks: &[Value],
) {
    let kind = if path == MUTATING {
        "MutatingWebhookConfiguration"
    } else {
        "ValidatingWebhookConfiguration"
    };
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "webhooks": webhooks});
    let (code, made) = admin.post(path, configuration).await;
    assert_eq!(code, 201, "{made}");
    server.state.store.cache.catch_up().await.unwrap();
}

fn says(response: Value) -> Reply {
    Reply::Says(response)
}

/// Code and message.
async fn make(admin: &Raw, path: &str, object: Value) -> (u16, String) {
    let (code, answer) = admin.post(path, object).await;
    let message = answer["message"].as_str().unwrap_or_default();
    (code, message.to_owned())
}

#[tokio::test]
async fn a_webhook_is_told_all_of_a_write() {
    let (server, admin) = cluster().await;
    let hook = Hook::allowing().await;
    let rules = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"],
        "resources": ["configmaps"]}]);
    let webhook = hook.webhook("a", json!({"rules": rules}));
    configure(&server, &admin, VALIDATING, "c", &[webhook]).await;
    let path = format!("{CONFIG_MAPS}?fieldManager=me&dryRun=All&fieldValidation=Strict");
    assert_eq!(admin.post(&path, config_map("x")).await.0, 201);
    let asked = hook.asked().remove(0);
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    for (field, expect) in [
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("requestKind", kind),
        ("requestResource", resource),
        ("name", json!("x")),
        ("namespace", json!("default")),
        ("operation", json!("CREATE")),
        (
            "userInfo",
            json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]}),
        ),
        ("oldObject", Value::Null),
        ("dryRun", json!(true)),
        (
            "options",
            json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"],
                "fieldManager": "me", "fieldValidation": "Strict"}),
        ),
    ] {
        assert_eq!(asked[field], expect, "{field}");
    }
    assert_eq!(asked["uid"].as_str().unwrap().len(), 36);
    assert_eq!(asked["object"]["data"]["n"], "0");
    assert_eq!(asked["object"]["kind"], "ConfigMap");
    assert!(asked["object"]["metadata"]["uid"].is_string());

    admin.post(CONFIG_MAPS, config_map("x")).await;
    let one = format!("{CONFIG_MAPS}/x");
    admin
        .merge(
            &format!("{one}?fieldManager=me"),
            json!({"data": {"n": "1"}}),
        )
        .await;
    let asked = hook.asked().pop().unwrap();
    assert_eq!(
        (&asked["operation"], &asked["options"]["kind"]),
        (&json!("UPDATE"), &json!("UpdateOptions"))
    );
    assert_eq!(
        (
            &asked["object"]["data"]["n"],
            &asked["oldObject"]["data"]["n"]
        ),
        (&json!("1"), &json!("0"))
    );

    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground"});
    admin.delete(&one, options).await;
    let asked = hook.asked().pop().unwrap();
    assert_eq!(
        (&asked["operation"], &asked["name"], &asked["object"]),
        (&json!("DELETE"), &json!("x"), &Value::Null)
    );
    assert_eq!(asked["oldObject"]["data"]["n"], "1");
    let options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1",
        "gracePeriodSeconds": 0, "propagationPolicy": "Foreground"});
    assert_eq!(asked["options"], options);
}

#[tokio::test]
async fn a_mutating_webhook_changes_what_is_written() {
    let (server, admin) = cluster().await;
    let hook = Hook::that(patch(json!([
        {"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "proxy", "nonsense": 1}},
        {"op": "add", "path": "/metadata/annotations", "value": {"injected": "yes"}},
    ])))
    .await;
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["pods"]}]);
    let webhook = hook.webhook("inject", json!({"rules": rules}));
    configure(&server, &admin, MUTATING, "c", &[webhook]).await;
    let (code, made) = admin.post(PODS, pod("p")).await;
    assert_eq!(code, 201, "{made}");
    // It has its identity afterwards.
    let asked = &hook.asked()[0]["object"]["metadata"];
    assert_eq!(
        (&asked["uid"], &asked["creationTimestamp"]),
        (&Value::Null, &Value::Null)
    );
    assert!(
        made["metadata"]["uid"].is_string() && made["metadata"]["creationTimestamp"].is_string()
    );
    let sidecar = &made["spec"]["containers"][1];
    // It has its defaults, what the server adds to containers, and nothing that is no field.
    assert_eq!(sidecar["image"], "proxy");
    assert_eq!(sidecar["imagePullPolicy"], "Always");
    assert!(sidecar["volumeMounts"].is_array(), "{sidecar}");
    assert!(sidecar.get("nonsense").is_none());
    assert_eq!(made["metadata"]["annotations"]["injected"], "yes");
}

#[tokio::test]
async fn webhooks_see_what_those_before_them_made() {
    let (server, admin) = cluster().await;
    let first = Hook::that(patch(
        json!([{"op": "add", "path": "/data/first", "value": "1"}]),
    ))
    .await;
    let second = Hook::that(patch(
        json!([{"op": "add", "path": "/data/second", "value": "1"}]),
    ))
    .await;
    // By the names of configurations, whenever they were made.
    configure(
        &server,
        &admin,
        MUTATING,
        "b",
        &[second.webhook("b", json!({}))],
    )
    .await;
    configure(
        &server,
        &admin,
        MUTATING,
        "a",
        &[first.webhook("a", json!({}))],
    )
    .await;
    let (_, made) = admin.post(CONFIG_MAPS, config_map("x")).await;
    assert_eq!(made["data"], json!({"n": "0", "first": "1", "second": "1"}));
    assert_eq!(second.asked()[0]["object"]["data"]["first"], "1");
    assert!(first.asked()[0]["object"]["data"]["second"].is_null());
}

#[tokio::test]
async fn who_asks_for_it_is_called_again_once_when_others_have_changed_the_object() {
    let (server, admin) = cluster().await;
    let counting = |request: &Value| {
        let seen = request["object"]["data"]["seen"].as_str().unwrap_or("");
        patch(json!([{"op": "add", "path": "/data/seen", "value": format!("{seen}x")}]))
    };
    let again = Hook::start(counting).await;
    let never = Hook::that(patch(
        json!([{"op": "add", "path": "/data/last", "value": "1"}]),
    ))
    .await;
    let webhooks = [
        again.webhook("a", json!({"reinvocationPolicy": "IfNeeded"})),
        never.webhook("b", json!({})),
    ];
    configure(&server, &admin, MUTATING, "c", &webhooks).await;
    let (_, made) = admin.post(CONFIG_MAPS, config_map("x")).await;
    assert_eq!(made["data"], json!({"n": "0", "seen": "xx", "last": "1"}));
    assert_eq!((again.asked().len(), never.asked().len()), (2, 1));
}

#[tokio::test]
async fn who_changes_nothing_brings_no_second_call() {
    let (server, admin) = cluster().await;
    let again = Hook::that(patch(
        json!([{"op": "replace", "path": "/data/n", "value": "0"}]),
    ))
    .await;
    let webhook = again.webhook("a", json!({"reinvocationPolicy": "IfNeeded"}));
    configure(&server, &admin, MUTATING, "c", &[webhook]).await;
    assert_eq!(admin.post(CONFIG_MAPS, config_map("x")).await.0, 201);
    assert_eq!(again.asked().len(), 1);
}

#[tokio::test]
async fn a_denial_is_the_webhooks_own() {
    let (server, admin) = cluster().await;
    let hook = Hook::start(|request| {
        let denied = |status: Value| says(json!({"allowed": false, "status": status}));
        match request["name"].as_str().unwrap() {
            "silent" => says(json!({"allowed": false})),
            "told" => denied(json!({"message": "not this one"})),
            "coded" => denied(
                json!({"message": "not now", "code": 429, "reason": "TooManyRequests",
                "details": {"retryAfterSeconds": 7}}),
            ),
            _ => says(json!({"allowed": true})),
        }
    })
    .await;
    configure(
        &server,
        &admin,
        VALIDATING,
        "c",
        &[hook.webhook("v", json!({}))],
    )
    .await;
    let by = "admission webhook \"v.example.org\" denied the request";
    let of = |name: &'static str| make(&admin, CONFIG_MAPS, config_map(name));
    assert_eq!(
        of("silent").await,
        (400, format!("{by} without explanation"))
    );
    assert_eq!(of("told").await, (400, format!("{by}: not this one")));
    assert_eq!(of("coded").await, (429, format!("{by}: not now")));
    assert_eq!(of("other").await.0, 201);
}

#[tokio::test]
async fn warnings_reach_the_client_and_annotations_the_audit() {
    let (server, admin) = cluster().await;
    let hook = Hook::that(says(
        json!({"allowed": true, "warnings": ["think of it", "again"],
        "auditAnnotations": {"k": "v"}}),
    ))
    .await;
    configure(
        &server,
        &admin,
        VALIDATING,
        "c",
        &[hook.webhook("v", json!({}))],
    )
    .await;
    let body = config_map("x").to_string();
    let response = admin
        .response("POST", CONFIG_MAPS, "application/json", body)
        .await;
    let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
    assert_eq!(warnings, ["299 - \"think of it\"", "299 - \"again\""]);

    let resource = server.state.registry.core("configmaps").unwrap();
    let user = UserInfo::new("admin", &[GROUP_MASTERS]);
    let request = coracle_admission::Request {
        user: &user,
        operation: coracle_admission::Operation::Create,
        resource: &resource.info,
        subresource: "",
        namespace: "default",
        name: "y",
        options: coracle_registry::store::WriteOptions::default(),
        told: coracle_admission::Told::default(),
    };
    let mut object = config_map("y");
    let seen = server
        .state
        .validated(request.about(&mut object, None))
        .await;
    let audit = seen.unwrap().audit;
    assert_eq!(audit.get("v.example.org/k").map(String::as_str), Some("v"));
}

/// Also by one that refuses, by one before it, and of a deletion; each once.
#[tokio::test]
async fn warnings_reach_the_client_whatever_comes_of_a_write() {
    let (server, admin) = cluster().await;
    assert_eq!(admin.post(CONFIG_MAPS, config_map("x")).await.0, 201);
    let rules = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["configmaps"]}]);
    let warning = |allowed: bool, text: &str| {
        says(json!({"allowed": allowed, "warnings": ["both", text], "status": {"message": "no"}}))
    };
    let first = Hook::that(warning(true, "first")).await;
    let webhook = first.webhook("m", json!({"rules": rules}));
    configure(&server, &admin, MUTATING, "c", &[webhook]).await;
    let own = format!("{CONFIG_MAPS}/x");
    let warnings = async |method: &str, path: &str, body: String| {
        let response = admin.response(method, path, "application/json", body).await;
        let told = response.headers().get_all("warning").iter();
        let told = told.map(|text| text.to_str().unwrap().to_owned());
        (response.status().as_u16(), told.collect::<Vec<_>>())
    };
    let [both, one] = ["299 - \"both\"", "299 - \"first\""].map(str::to_owned);
    let gone = warnings("DELETE", &format!("{own}?dryRun=All"), String::new()).await;
    assert_eq!(gone, (200, vec![both.clone(), one.clone()]));
    let second = Hook::that(warning(false, "second")).await;
    let webhook = second.webhook("v", json!({"rules": rules}));
    configure(&server, &admin, VALIDATING, "c", &[webhook]).await;
    let all = vec![both, one, "299 - \"second\"".to_owned()];
    let made = warnings("POST", CONFIG_MAPS, config_map("y").to_string()).await;
    assert_eq!(made, (400, all.clone()));
    assert_eq!(
        warnings("PUT", &own, config_map("x").to_string()).await,
        (400, all.clone())
    );
    assert_eq!(warnings("DELETE", &own, String::new()).await, (400, all));
}

#[tokio::test]
async fn validating_webhooks_are_asked_at_the_same_time() {
    let (server, admin) = cluster().await;
    let hanging = Hook::that(Reply::Hangs).await;
    let ignored = json!({"failurePolicy": "Ignore", "timeoutSeconds": 1});
    let webhooks: Vec<Value> = (0..6)
        .map(|at| hanging.webhook(&format!("h{at}"), ignored.clone()))
        .collect();
    configure(&server, &admin, VALIDATING, "c", &webhooks).await;
    let begun = std::time::Instant::now();
    assert_eq!(admin.post(CONFIG_MAPS, config_map("x")).await.0, 201);
    let took = begun.elapsed().as_secs_f64();
    assert!((1.0..3.0).contains(&took), "{took}");
}
