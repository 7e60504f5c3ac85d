//! Objects of a kind that came at run time, written in every way.

use serde_json::{Value, json};

use super::{WIDGETS, served, widget};
use crate::tests::raw::config_map;

#[tokio::test]
async fn objects_are_defaulted_pruned_and_checked_by_their_schema() {
    let (_server, admin) = served().await;
    let sent = widget("a", json!({"size": 1, "colour": "red"}));
    let answer = admin
        .response("POST", WIDGETS, "application/json", sent.to_string())
        .await;
    assert_eq!(answer.status(), http::StatusCode::CREATED);
    assert!(
        answer.headers()["warning"]
            .to_str()
            .unwrap()
            .contains("spec.colour")
    );
    let (code, made) = admin.get(&format!("{WIDGETS}/a")).await;
    assert_eq!(
        (code, &made["spec"], &made["metadata"]["generation"]),
        (200, &json!({"size": 1, "mode": "fast"}), &json!(1))
    );
    for (object, query, code, expect) in [
        (
            widget("b", json!({"size": "1"})),
            "",
            422,
            "spec.size in body must be of type integer: \"string\"",
        ),
        (widget("b", json!({})), "", 422, "spec.size: Required value"),
        (
            widget("b", json!({"size": 1, "x": 1})),
            "?fieldValidation=Strict",
            400,
            "unknown field \"spec.x\"",
        ),
        (widget("B_", json!({"size": 1})), "", 422, "metadata.name"),
        (
            json!({"kind": "Widget", "apiVersion": "example.org/v1", "metadata": {"labels": 1}}),
            "",
            400,
            "labels",
        ),
        (config_map("b"), "", 400, "ConfigMap"),
    ] {
        let (found, answer) = admin.post(&format!("{WIDGETS}{query}"), object).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(
            found == code && message.contains(expect),
            "{found} {answer}"
        );
    }
}

#[tokio::test]
async fn objects_are_sent_as_json_or_yaml() {
    let (_server, admin) = served().await;
    let yaml = "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: c}\nspec: {size: 2}\n";
    assert_eq!(
        admin
            .send("POST", WIDGETS, "application/yaml", yaml)
            .await
            .0,
        201
    );
    assert_eq!(
        admin
            .send(
                "POST",
                WIDGETS,
                "application/vnd.kubernetes.protobuf",
                "k8s\0"
            )
            .await
            .0,
        415
    );
}

#[tokio::test]
async fn selectors_know_the_fields_that_the_kind_names() {
    let (_server, admin) = served().await;
    admin.post(WIDGETS, widget("a", json!({"size": 1}))).await;
    admin.post(WIDGETS, widget("c", json!({"size": 2}))).await;
    let (_, list) = admin
        .get(&format!(
            "{WIDGETS}?fieldSelector=spec.mode%3Dfast,metadata.name%3Dc"
        ))
        .await;
    assert_eq!(
        (&list["kind"], list["items"].as_array().unwrap().len()),
        (&json!("WidgetList"), 1)
    );
    assert_eq!(
        admin
            .get(&format!("{WIDGETS}?fieldSelector=spec.size%3D1"))
            .await
            .0,
        400
    );
    let (code, found) = admin.delete(&format!("{WIDGETS}/c"), json!({})).await;
    assert_eq!(
        (code, &found["status"]),
        (200, &json!("Success")),
        "{found}"
    );
}

#[tokio::test]
async fn objects_are_changed_in_every_way_but_a_strategic_merge() {
    let (_server, admin) = served().await;
    admin.post(WIDGETS, widget("a", json!({"size": 1}))).await;
    let path = format!("{WIDGETS}/a");
    let (code, merged) = admin
        .merge(
            &path,
            json!({"spec": {"size": 2}, "status": {"phase": "x"}}),
        )
        .await;
    assert_eq!(
        (
            code,
            &merged["spec"]["size"],
            &merged["metadata"]["generation"]
        ),
        (200, &json!(2), &json!(2))
    );
    assert!(merged["status"].is_null(), "{merged}");
    let (code, told) = admin
        .merge(
            &format!("{path}/status"),
            json!({"spec": {"size": 3}, "status": {"phase": "Up"}}),
        )
        .await;
    assert_eq!(
        (code, &told["spec"]["size"], &told["status"]),
        (200, &json!(2), &json!({"phase": "Up"}))
    );
    let patch = json!([{"op": "replace", "path": "/spec/size", "value": 4}]).to_string();
    let (code, patched) = admin
        .send("PATCH", &path, "application/json-patch+json", patch)
        .await;
    assert_eq!((code, &patched["spec"]["size"]), (200, &json!(4)));
    let (code, _) = admin
        .send(
            "PATCH",
            &path,
            "application/strategic-merge-patch+json",
            "{}",
        )
        .await;
    assert_eq!(code, 415);
    let (code, put) = admin.put(&path, widget("a", json!({"size": 5}))).await;
    assert_eq!(
        (code, &put["spec"]["size"], &put["status"]["phase"]),
        (200, &json!(5), &json!("Up"))
    );
}

#[tokio::test]
async fn fields_are_owned_along_the_schema_that_came() {
    let (_server, admin) = served().await;
    let apply = async |manager: &str, spec: Value| {
        let path = format!("{WIDGETS}/a?fieldManager={manager}");
        admin
            .send(
                "PATCH",
                &path,
                "application/apply-patch+yaml",
                widget("a", spec).to_string(),
            )
            .await
    };
    assert_eq!(
        apply(
            "one",
            json!({"size": 1, "parts": [{"name": "x", "count": 1}]})
        )
        .await
        .0,
        201
    );
    let (code, both) = apply(
        "two",
        json!({"size": 1, "parts": [{"name": "y", "count": 2}]}),
    )
    .await;
    assert_eq!(
        (code, both["spec"]["parts"].as_array().unwrap().len()),
        (200, 2),
        "{both}"
    );
    let (code, refused) = apply("two", json!({"size": 2})).await;
    assert_eq!(
        (code, &refused["details"]["causes"][0]["field"]),
        (409, &json!(".spec.size")),
        "{refused}"
    );
    // What one named and names no more goes; what is another's stays.
    let (_, left) = apply("one", json!({"size": 1})).await;
    assert_eq!(
        left["spec"]["parts"],
        json!([{"name": "y", "count": 2}]).clone(),
        "{left}"
    );
}
