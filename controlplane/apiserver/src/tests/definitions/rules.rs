//! Rules in CEL as clients meet them.

use serde_json::{Value, json};

use super::{
    DEFINITIONS, WIDGETS, cluster, definition, established, memory, patched, until, widget,
};

/// A definition with rules on its spec, its status and all of it.
fn ruled() -> Value {
    let mut definition = definition(json!({"type": "integer"}));
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["x-kubernetes-validations"] = json!([
        {"rule": "self.size < 10", "message": "too large", "fieldPath": ".size"},
        {"rule": "self.size >= oldSelf.size", "messageExpression": "'it never shrinks, ' + self.mode"}]);
    schema["properties"]["status"]["x-kubernetes-validations"] =
        json!([{"rule": "self.size >= 0"}]);
    schema["x-kubernetes-validations"] = json!([{"rule": "self.metadata.name.startsWith('w')", "reason": "FieldValueForbidden", "message": "odd name"}]);
    definition
}

fn refused(name: &str, why: &str) -> Value {
    format!("Widget.example.org \"{name}\" is invalid: {why}").into()
}

#[tokio::test]
async fn objects_are_refused_by_rules() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, ruled()).await;
    let large = "spec.size: Invalid value: too large";
    for (name, size, why) in [
        ("w1", json!(10), large),
        ("a", json!(1), "<nil>: Forbidden: odd name"),
        (
            "w1",
            json!("x"),
            "[spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\", <nil>: Invalid value: \"null\": some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
        ),
    ] {
        let (code, answer) = admin
            .post(WIDGETS, widget(name, json!({"size": size})))
            .await;
        assert_eq!((code, &answer["message"]), (422, &refused(name, why)));
    }
    let (code, made) = admin.post(WIDGETS, widget("w", json!({"size": 3}))).await;
    assert_eq!(code, 201, "{made}");
    let path = format!("{WIDGETS}/w");
    let size = |size: i64| json!({"spec": {"size": size}});
    let (code, answer) = admin.merge(&path, size(2)).await;
    let shrunk = "spec: Invalid value: it never shrinks, fast";
    assert_eq!((code, &answer["message"]), (422, &refused("w", shrunk)));
    let (code, _) = admin.merge(&path, size(4)).await;
    assert_eq!(code, 200);
    let status = format!("{path}/status");
    let negative = json!({"status": {"size": -1}});
    let (code, answer) = admin.merge(&status, negative).await;
    let why = "status: Invalid value: failed rule: self.size >= 0";
    assert_eq!((code, &answer["message"]), (422, &refused("w", why)));
    let scale = format!("{path}/scale");
    for (replicas, expect) in [(12, 422), (5, 200)] {
        let replicas = json!({"spec": {"replicas": replicas}});
        let (code, answer) = admin.merge(&scale, replicas).await;
        assert_eq!(code, expect, "{answer}");
    }
}

#[tokio::test]
async fn what_a_new_rule_forbids_stays_until_it_is_changed() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, definition(json!({"type": "integer"}))).await;
    let (code, _) = admin.post(WIDGETS, widget("a", json!({"size": 11}))).await;
    assert_eq!(code, 201);
    let size = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size";
    let rules = json!([{"rule": "self < 10"}]);
    let patch = json!([
        {"op": "add", "path": format!("{size}/x-kubernetes-validations"), "value": rules},
        {"op": "add", "path": format!("{size}/description"), "value": "Ruled from now on."}]);
    patched(admin, &patch).await;
    until(admin, "/openapi/v3/apis/example.org/v1", |_, document| {
        document.to_string().contains("Ruled from now on.")
    })
    .await;
    let one = format!("{WIDGETS}/a");
    let slow = json!({"spec": {"mode": "slow"}}).to_string();
    let left = admin
        .response("PATCH", &one, "application/merge-patch+json", slow)
        .await;
    let warned = left.headers()["warning"].to_str().unwrap();
    let why = "spec.size: Invalid value: 11: failed rule: self < 10";
    assert!(
        left.status() == 200 && warned.contains(why),
        "{} {warned}",
        left.status()
    );
    let (code, answer) = admin.merge(&one, json!({"spec": {"size": 12}})).await;
    let why = "spec.size: Invalid value: 12: failed rule: self < 10";
    assert_eq!((code, &answer["message"]), (422, &refused("a", why)));
}

#[tokio::test]
async fn definitions_are_refused_for_rules_that_mean_nothing() {
    let cluster = cluster(&memory()).await;
    let mut definition = ruled();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["x-kubernetes-validations"] = json!([{"rule": "self.sise < 10"}]);
    let (code, answer) = cluster.admin.post(DEFINITIONS, definition).await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert_eq!(code, 422, "{message}");
    let why = "compilation failed: ERROR: <input>:1:5: undefined field 'sise'\n | self.sise < 10\n | ....^";
    assert!(message.ends_with(why), "{message}");
}

#[tokio::test]
async fn how_long_rules_take_is_counted() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, ruled()).await;
    let (code, made) = admin.post(WIDGETS, widget("w", json!({"size": 3}))).await;
    assert_eq!(code, 201, "{made}");
    let path = format!("{WIDGETS}/w");
    let (code, _) = admin.merge(&path, json!({"spec": {"size": 4}})).await;
    assert_eq!(code, 200);
    let text = cluster.server.metrics().text();
    for line in [
        "apiserver_cel_compilation_duration_seconds_count 1",
        "apiserver_cel_evaluation_duration_seconds_count 2",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line}\n{text}");
    }
}
