//! What users see of their mistakes.

mod rights;

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, PODS, Raw, admin, config_map, pod};
use crate::testing;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn check((code, answer): (u16, Value), expect: u16, reason: &str, message: &str) {
    let said = answer["message"].as_str().unwrap_or_default();
    assert_eq!(code, expect, "{answer}");
    assert_eq!(answer["kind"], "Status", "{answer}");
    assert_eq!(
        answer["reason"].as_str().unwrap_or_default(),
        reason,
        "{answer}"
    );
    assert!(said.contains(message), "expected {message:?} in {said:?}");
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_400_or_413_or_415() {
    let raw = admin().await;
    let json = "application/json";
    check(
        raw.send("POST", PODS, json, "{nonsense").await,
        400,
        "BadRequest",
        "",
    );
    check(
        raw.send("POST", PODS, json, config_map("x").to_string())
            .await,
        400,
        "BadRequest",
        "cannot be handled as a",
    );
    let strict = format!("{PODS}?fieldValidation=Strict");
    let mut unknown = pod("x");
    unknown["spec"]["x"] = 1.into();
    check(
        raw.send("POST", &strict, json, unknown.to_string()).await,
        400,
        "BadRequest",
        "strict decoding error: unknown field \"spec.x\"",
    );
    check(
        raw.send("POST", PODS, json, vec![b' '; 4 << 20]).await,
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    );
    check(
        raw.send("POST", PODS, "application/xml", "<a/>").await,
        415,
        "UnsupportedMediaType",
        "",
    );
    check(
        raw.send("PATCH", &format!("{PODS}/x"), "application/json", "{}")
            .await,
        415,
        "UnsupportedMediaType",
        "",
    );
}

#[tokio::test]
async fn unknown_fields_are_warned_of_by_default() {
    let raw = admin().await;
    let mut object = config_map("x");
    object["wrong"] = 1.into();
    let response = raw
        .response("POST", CONFIG_MAPS, "application/json", object.to_string())
        .await;
    assert_eq!(response.status(), 201);
    let warning = response.headers().get("warning").unwrap().to_str().unwrap();
    assert_eq!(warning, "299 - \"unknown field \\\"wrong\\\"\"");
}

#[tokio::test]
async fn bad_objects_are_422_with_causes() {
    let raw = admin().await;
    let mut nameless = pod("A");
    let invalid = "Pod \"A\" is invalid: metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of";
    check(
        raw.post(PODS, nameless.clone()).await,
        422,
        "Invalid",
        invalid,
    );
    nameless["metadata"] = json!({});
    check(
        raw.post(PODS, nameless).await,
        422,
        "Invalid",
        "metadata.name: Required value: name or generateName is required",
    );
    let mut no_image = pod("x");
    no_image["spec"]["containers"][0]["image"] = "".into();
    let (code, answer) = raw.post(PODS, no_image).await;
    assert_eq!(
        answer["details"]["causes"][0]["field"],
        "spec.containers[0].image"
    );
    check(
        (code, answer),
        422,
        "Invalid",
        "spec.containers[0].image: Required value",
    );
    let mut labels = config_map("x");
    labels["metadata"]["labels"] = json!({"a b": "c"});
    check(
        raw.post(CONFIG_MAPS, labels).await,
        422,
        "Invalid",
        "metadata.labels: Invalid value: \"a b\"",
    );
    let mut finalizers = config_map("x");
    finalizers["metadata"]["finalizers"] = json!(["orphan", "example.com/own", "mine"]);
    let unqualified = "ConfigMap \"x\" is invalid: metadata.finalizers[2]: Invalid value: \"mine\": name is neither a \
                       standard finalizer name nor is it fully qualified";
    check(
        raw.post(CONFIG_MAPS, finalizers).await,
        422,
        "Invalid",
        unqualified,
    );
    let mut annotations = config_map("x");
    annotations["metadata"]["annotations"] = json!({"a": "x".repeat(300_000)});
    check(
        raw.post(CONFIG_MAPS, annotations).await,
        422,
        "Invalid",
        "metadata.annotations: Too long",
    );
}

#[tokio::test]
async fn lost_races_are_409() {
    let raw = admin().await;
    let (_, made) = raw.post(CONFIG_MAPS, config_map("x")).await;
    check(
        raw.post(CONFIG_MAPS, config_map("x")).await,
        409,
        "AlreadyExists",
        "configmaps \"x\" already exists",
    );
    let path = format!("{CONFIG_MAPS}/x");
    let mut first = made.clone();
    first["data"]["n"] = "1".into();
    assert_eq!(raw.put(&path, first).await.0, 200);
    let mut second = made.clone();
    second["data"]["n"] = "2".into();
    let modified = "Operation cannot be fulfilled on configmaps \"x\": the object has been modified; please apply your changes to the latest version and try again";
    check(raw.put(&path, second).await, 409, "Conflict", modified);
    let mut other = config_map("x");
    other["metadata"]["uid"] = "another".into();
    check(
        raw.put(&path, other).await,
        409,
        "Conflict",
        "Precondition failed: UID in precondition: another",
    );
    let stale = json!({"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"n": "3"}});
    check(
        raw.merge(&path, stale).await,
        409,
        "Conflict",
        "the object has been modified",
    );
}

#[tokio::test]
async fn requests_that_contradict_their_url_are_400() {
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("b")).await;
    check(
        raw.put(&format!("{CONFIG_MAPS}/b"), config_map("a")).await,
        400,
        "BadRequest",
        "the name of the object (a) does not match the name on the URL (b)",
    );
    let mut elsewhere = config_map("x");
    elsewhere["metadata"]["namespace"] = "other".into();
    check(
        raw.post(CONFIG_MAPS, elsewhere).await,
        400,
        "BadRequest",
        "the namespace of the provided object does not match",
    );
    let mut versioned = config_map("x");
    versioned["metadata"]["resourceVersion"] = "5".into();
    check(
        raw.post(CONFIG_MAPS, versioned).await,
        500,
        "",
        "resourceVersion should not be set on objects to be created",
    );
}

#[tokio::test]
async fn what_is_not_there_is_404_or_405() {
    let raw = admin().await;
    check(
        raw.get(&format!("{PODS}/x")).await,
        404,
        "NotFound",
        "pods \"x\" not found",
    );
    check(
        raw.put(&format!("{CONFIG_MAPS}/x"), config_map("x")).await,
        404,
        "NotFound",
        "configmaps \"x\" not found",
    );
    check(
        raw.get("/api/v1/namespaces/default/wrongs").await,
        404,
        "NotFound",
        "could not find the requested resource",
    );
    check(
        raw.post("/api/v1/namespaces/none/configmaps", config_map("x"))
            .await,
        404,
        "NotFound",
        "namespaces \"none\" not found",
    );
    check(
        raw.delete("/api/v1/namespaces", json!({})).await,
        405,
        "MethodNotAllowed",
        "",
    );
    check(
        raw.post("/api/v1/configmaps", config_map("x")).await,
        405,
        "MethodNotAllowed",
        "",
    );
}

#[tokio::test]
async fn bad_selectors_are_400() {
    let raw = admin().await;
    check(
        raw.get(&format!("{PODS}?labelSelector=a+b+c")).await,
        400,
        "BadRequest",
        "unable to parse requirement",
    );
    check(
        raw.get(&format!("{PODS}?fieldSelector=spec.wrong%3Da"))
            .await,
        400,
        "BadRequest",
        "field label not supported: spec.wrong",
    );
}

#[tokio::test(start_paused = true)]
async fn versions_of_the_future_are_504() {
    let raw = admin().await;
    let (code, answer) = raw.get(&format!("{PODS}?resourceVersion=999999")).await;
    check(
        (code, answer),
        504,
        "Timeout",
        "Too large resource version: 999999, current: ",
    );
}

#[tokio::test]
async fn terminating_namespace_takes_nothing_new() {
    let raw = admin().await;
    raw.post(
        "/api/v1/namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
    )
    .await;
    let (code, gone) = raw.delete("/api/v1/namespaces/n", json!({})).await;
    assert_eq!(
        (code, &gone["status"]["phase"]),
        (200, &json!("Terminating"))
    );
    check(
        raw.post("/api/v1/namespaces/n/configmaps", config_map("x"))
            .await,
        403,
        "Forbidden",
        "unable to create new content in namespace n because it is being terminated",
    );
    check(
        raw.delete("/api/v1/namespaces/default", json!({})).await,
        403,
        "Forbidden",
        "this namespace may not be deleted",
    );
}

#[tokio::test]
async fn bad_options_are_422() {
    let raw = admin().await;
    check(
        raw.post(&format!("{CONFIG_MAPS}?dryRun=Some"), config_map("x"))
            .await,
        422,
        "Invalid",
        "dryRun: Unsupported value: \"Some\"",
    );
    // Who writes this means not to make it.
    check(
        raw.post(&format!("{CONFIG_MAPS}?dryRun="), config_map("x"))
            .await,
        422,
        "Invalid",
        "dryRun: Unsupported value: \"\"",
    );
    assert_eq!(raw.get(&format!("{CONFIG_MAPS}/x")).await.0, 404);
    check(
        raw.get(&format!("{CONFIG_MAPS}?limit=")).await,
        400,
        "BadRequest",
        "strconv.ParseInt: parsing \"\": invalid syntax",
    );
    check(
        raw.post(&format!("{CONFIG_MAPS}?fieldValidation=x"), config_map("x"))
            .await,
        422,
        "Invalid",
        "fieldValidation",
    );
    raw.post(CONFIG_MAPS, config_map("x")).await;
    let path = format!("{CONFIG_MAPS}/x");
    check(
        raw.delete(&path, json!({"propagationPolicy": "Wrong"}))
            .await,
        422,
        "Invalid",
        "propagationPolicy",
    );
}
