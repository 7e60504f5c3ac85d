//! Managers that own fields in versions that a webhook turns into one another.

use super::{failures::component, *};

const APPLY: &str = "application/apply-patch+yaml";

async fn apply(admin: &Raw, path: &str, manager: &str, object: Value) -> (u16, Value) {
    let path = format!("{path}/a?fieldManager={manager}");
    admin.send("PATCH", &path, APPLY, object.to_string()).await
}

async fn force(admin: &Raw, path: &str, manager: &str, object: Value) -> (u16, Value) {
    let path = format!("{path}/a?force=true&fieldManager={manager}");
    admin.send("PATCH", &path, APPLY, object.to_string()).await
}

/// Who owns what of the spec, in which version.
fn owners(object: &Value) -> Vec<(&str, &str, &Value)> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let mut owners: Vec<_> = entries
        .iter()
        .map(|entry| {
            let version = entry["apiVersion"].as_str().unwrap();
            let version = version.trim_start_matches("example.org/");
            (
                entry["manager"].as_str().unwrap(),
                version,
                &entry["fieldsV1"]["f:spec"],
            )
        })
        .collect();
    owners.sort_by_key(|owner| owner.0);
    owners
}

#[tokio::test]
async fn a_field_that_another_owns_in_another_version_is_a_conflict() {
    let (_server, admin, _webhook) = served().await;
    assert_eq!(apply(&admin, ENDS, "one", end("a", "h:1")).await.0, 201);
    let (code, refused) = apply(&admin, ENDS_V2, "two", end_in_v2("a", "g", "1")).await;
    assert_eq!(code, 409, "{refused}");
    let why = "Apply failed with 1 conflict: conflict with \"one\": .spec.hostPort";
    assert_eq!(refused["message"], why);
    // The same value is shared.
    let (code, shared) = apply(&admin, ENDS_V2, "two", end_in_v2("a", "h", "1")).await;
    assert_eq!(code, 200, "{shared}");
    let both = json!({"f:host": {}, "f:port": {}});
    let expect = [
        ("one", "v1", &json!({"f:hostPort": {}})),
        ("two", "v2", &both),
    ];
    assert_eq!(owners(&shared), expect);
    let (code, forced) = force(&admin, ENDS_V2, "two", end_in_v2("a", "g", "1")).await;
    assert_eq!((code, owners(&forced)), (200, vec![("two", "v2", &both)]));
    // A change in the one version takes what it changes of the other.
    let path = format!("{ENDS}/a?fieldManager=hand");
    let (code, changed) = admin
        .merge(&path, json!({"spec": {"hostPort": "g:2"}}))
        .await;
    assert_eq!(code, 200, "{changed}");
    let left = json!({"f:host": {}});
    let expect = [
        ("hand", "v1", &json!({"f:hostPort": {}})),
        ("two", "v2", &left),
    ];
    assert_eq!(owners(&changed), expect);
}

#[tokio::test]
async fn what_was_applied_in_another_version_and_is_no_more_goes() {
    let (_server, admin, webhook) = served().await;
    let mut first = end("a", "h:1");
    first["spec"]["replicas"] = 3.into();
    assert_eq!(apply(&admin, ENDS, "one", first).await.0, 201);
    let (code, left) = apply(&admin, ENDS_V2, "one", end_in_v2("a", "h", "1")).await;
    assert_eq!(
        (code, &left["spec"]["replicas"]),
        (200, &json!(1)),
        "{left}"
    );
    let both = json!({"f:host": {}, "f:port": {}});
    assert_eq!(owners(&left)[0], ("one", "v2", &both));
    // Nothing is left to do.
    let (code, again) = apply(&admin, ENDS_V2, "one", end_in_v2("a", "h", "1")).await;
    assert_eq!((code, &again), (200, &left));
    // Who is alone in a version asks nobody else's.
    webhook.calls();
    let (_, stored) = admin.post(ENDS, end("b", "h:1")).await;
    assert_eq!(stored["apiVersion"], "example.org/v1");
    admin
        .merge(&format!("{ENDS}/b"), json!({"spec": {"replicas": 2}}))
        .await;
    assert_eq!(webhook.calls(), 0);
}

#[tokio::test]
async fn without_the_webhook_nothing_is_applied_over_versions_and_owners_stay() {
    let (_server, admin, webhook) = served().await;
    assert_eq!(
        apply(&admin, ENDS_V2, "two", end_in_v2("a", "h", "1"))
            .await
            .0,
        201
    );
    webhook.set(Mode::Refuses);
    let (code, refused) = apply(&admin, ENDS, "one", end("a", "h:1")).await;
    let why = "failed to convert old object: conversion webhook for example.org/v1, Kind=End failed: connection refused";
    assert_eq!((code, &refused["message"]), (500, &json!(why)));
    let path = format!("{ENDS}/a?fieldManager=hand");
    let (code, changed) = admin.merge(&path, json!({"spec": {"replicas": 2}})).await;
    assert_eq!(code, 200, "{changed}");
    let expect = [
        ("hand", "v1", &json!({"f:replicas": {}})),
        ("two", "v2", &json!({"f:host": {}, "f:port": {}})),
    ];
    assert_eq!(owners(&changed), expect);
}

#[tokio::test]
async fn who_looks_at_metadata_alone_takes_nothing_of_other_versions() {
    let (server, admin, webhook) = served().await;
    assert_eq!(
        apply(&admin, ENDS_V2, "two", end_in_v2("a", "h", "1"))
            .await
            .0,
        201
    );
    webhook.set(Mode::Hangs);
    let part = Raw::of(&server, component());
    let finalizers = json!({"metadata": {"finalizers": ["example.org/f"]}});
    assert_eq!(part.merge(&format!("{ENDS_V2}/a"), finalizers).await.0, 200);
    let (_, stored) = admin.get(&format!("{ENDS}/a")).await;
    let two = owners(&stored).into_iter().find(|owner| owner.0 == "two");
    assert_eq!(
        two,
        Some(("two", "v2", &json!({"f:host": {}, "f:port": {}})))
    );
}
