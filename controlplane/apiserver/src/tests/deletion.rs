use serde_json::json;

use super::raw::{CONFIG_MAPS, PODS, admin, config_map, pod};

#[tokio::test]
async fn deleted_object_answers_with_a_status() {
    let raw = admin().await;
    let (_, made) = raw.post(CONFIG_MAPS, config_map("x")).await;
    let (code, answer) = raw.delete(&format!("{CONFIG_MAPS}/x"), json!({})).await;
    assert_eq!(code, 200);
    assert_eq!(
        (&answer["kind"], &answer["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(answer["details"]["uid"], made["metadata"]["uid"]);
}

#[tokio::test]
async fn finalizers_hold_until_the_last_is_gone() {
    let raw = admin().await;
    let mut object = config_map("x");
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    raw.post(CONFIG_MAPS, object).await;
    let path = format!("{CONFIG_MAPS}/x");
    let (code, waiting) = raw.delete(&path, json!({})).await;
    assert_eq!(code, 200);
    assert!(
        waiting["metadata"]["deletionTimestamp"].is_string(),
        "{waiting}"
    );
    let more =
        json!({"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}});
    let (code, refused) = raw.merge(&path, more).await;
    assert_eq!(code, 422, "{refused}");
    assert_eq!(
        raw.merge(
            &path,
            json!({"metadata": {"finalizers": ["example.com/b"]}})
        )
        .await
        .0,
        200
    );
    assert_eq!(raw.get(&path).await.0, 200);
    assert_eq!(
        raw.merge(&path, json!({"metadata": {"finalizers": null}}))
            .await
            .0,
        200
    );
    assert_eq!(raw.get(&path).await.0, 404);
}

#[tokio::test]
async fn preconditions_guard_a_deletion() {
    let raw = admin().await;
    let (_, made) = raw.post(CONFIG_MAPS, config_map("x")).await;
    let path = format!("{CONFIG_MAPS}/x");
    let is = |field: &str| made["metadata"][field].as_str().unwrap();
    for (other, why) in [
        (
            json!({"uid": "other"}),
            format!(
                "the UID in the precondition (other) does not match the UID in record ({}). The object might have been deleted and then recreated",
                is("uid")
            ),
        ),
        (
            json!({"resourceVersion": "1"}),
            format!(
                "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({}). The object might have been modified",
                is("resourceVersion")
            ),
        ),
    ] {
        let (code, refused) = raw.delete(&path, json!({"preconditions": other})).await;
        let expected = format!("Operation cannot be fulfilled on ConfigMap \"x\": {why}");
        assert_eq!((code, &refused["message"]), (409, &json!(expected)));
    }
    let right = json!({"preconditions": {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}});
    assert_eq!(raw.delete(&path, right).await.0, 200);
}

#[tokio::test]
async fn propagation_becomes_finalizers() {
    let raw = admin().await;
    for (policy, expect) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        raw.post(CONFIG_MAPS, config_map("x")).await;
        let path = format!("{CONFIG_MAPS}/x");
        let (code, waiting) = raw
            .delete(&path, json!({"propagationPolicy": policy}))
            .await;
        assert_eq!(
            (code, &waiting["metadata"]["finalizers"]),
            (200, &json!([expect]))
        );
        raw.merge(&path, json!({"metadata": {"finalizers": null}}))
            .await;
        assert_eq!(raw.get(&path).await.0, 404);
    }
    raw.post(CONFIG_MAPS, config_map("x")).await;
    raw.delete(
        &format!("{CONFIG_MAPS}/x"),
        json!({"propagationPolicy": "Background"}),
    )
    .await;
    assert_eq!(raw.get(&format!("{CONFIG_MAPS}/x")).await.0, 404);
}

#[tokio::test]
async fn jobs_and_replication_controllers_leave_their_pods_unless_told() {
    let raw = admin().await;
    let template = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
    });
    let mut always = template.clone();
    always["spec"]["restartPolicy"] = "Always".into();
    for (path, kind, api_version, template, expected) in [
        (
            "/apis/batch/v1/namespaces/default/jobs",
            "Job",
            "batch/v1",
            &template,
            json!(["orphan"]),
        ),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            "ReplicationController",
            "v1",
            &always,
            json!(["orphan"]),
        ),
        (
            "/apis/apps/v1/namespaces/default/replicasets",
            "ReplicaSet",
            "apps/v1",
            &always,
            json!(null),
        ),
    ] {
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": {"name": "x"},
            "spec": {"template": template}});
        if kind == "ReplicaSet" {
            object["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
        }
        let own = format!("{path}/x");
        for (said, expected) in [
            (json!({}), &expected),
            (json!({"propagationPolicy": "Background"}), &json!(null)),
            (
                json!({"propagationPolicy": "Foreground"}),
                &json!(["foregroundDeletion"]),
            ),
        ] {
            let (code, made) = raw.post(path, object.clone()).await;
            assert_eq!(code, 201, "{made}");
            let (_, answer) = raw.delete(&own, said.clone()).await;
            assert_eq!(&answer["metadata"]["finalizers"], expected, "{kind} {said}");
            raw.merge(&own, json!({"metadata": {"finalizers": null}}))
                .await;
            assert_eq!(raw.get(&own).await.0, 404, "{kind} {said}");
        }
    }
}

#[tokio::test]
async fn a_finalizer_says_what_becomes_of_dependents_where_the_delete_does_not() {
    let raw = admin().await;
    let mut object = config_map("x");
    object["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    raw.post(CONFIG_MAPS, object).await;
    let path = format!("{CONFIG_MAPS}/x");
    let (_, waiting) = raw.delete(&path, json!({})).await;
    assert_eq!(
        waiting["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    assert_eq!(
        raw.delete(&path, json!({"propagationPolicy": "Background"}))
            .await
            .0,
        200
    );
    assert_eq!(
        raw.get(&path).await.0,
        404,
        "its finalizers may change: it has no grace"
    );
}

#[tokio::test]
async fn a_body_stands_for_the_whole_query() {
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("x")).await;
    let path = format!("{CONFIG_MAPS}/x?propagationPolicy=Orphan");
    let body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    assert_eq!(raw.delete(&path, body).await.1["status"], "Success");
}

#[tokio::test]
async fn a_query_says_as_much_as_a_body() {
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("x")).await;
    let delete = async |query: &str| {
        let path = format!("{CONFIG_MAPS}/x?{query}");
        raw.send("DELETE", &path, "", "").await.0
    };
    assert_eq!(delete("uid=other").await, 409);
    assert_eq!(delete("resourceVersion=1").await, 409);
    assert_eq!(delete("dryRun=").await, 422);
    assert_eq!(delete("propagationPolicy=").await, 422);
    assert_eq!(delete("gracePeriodSeconds=").await, 400);
    assert_eq!(raw.get(&format!("{CONFIG_MAPS}/x")).await.0, 200);
    assert_eq!(delete("uid=&resourceVersion=").await, 200);
}

#[tokio::test]
async fn bound_pod_goes_with_grace() {
    let raw = admin().await;
    let mut object = pod("x");
    object["spec"]["nodeName"] = "n1".into();
    raw.post(PODS, object).await;
    let path = format!("{PODS}/x");
    let (code, waiting) = raw.delete(&path, json!({})).await;
    assert_eq!(code, 200);
    assert_eq!(waiting["metadata"]["deletionGracePeriodSeconds"], 30);
    let first = waiting["metadata"]["deletionTimestamp"].clone();
    let (_, sooner) = raw.delete(&path, json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
    assert!(sooner["metadata"]["deletionTimestamp"].as_str() < first.as_str());
    for nothing_new in [
        json!({"gracePeriodSeconds": 60}),
        json!({}),
        json!({"propagationPolicy": "Foreground"}),
    ] {
        let (code, later) = raw.delete(&path, nothing_new.clone()).await;
        assert_eq!((code, &later), (200, &sooner), "{nothing_new}");
    }
    let (_, negative) = raw.delete(&path, json!({"gracePeriodSeconds": -7})).await;
    assert_eq!(negative["metadata"]["deletionGracePeriodSeconds"], 1);
    let (code, gone) = raw.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!((code, &gone["kind"]), (200, &json!("Pod")));
    assert_eq!(raw.get(&path).await.0, 404);
}

#[tokio::test]
async fn unscheduled_pod_goes_at_once() {
    let raw = admin().await;
    raw.post(PODS, pod("x")).await;
    assert_eq!(raw.delete(&format!("{PODS}/x"), json!({})).await.0, 200);
    assert_eq!(raw.get(&format!("{PODS}/x")).await.0, 404);
}

#[tokio::test]
async fn collection_is_deleted_by_selector() {
    let raw = admin().await;
    for name in ["a", "b", "c"] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"gone": (name != "b").to_string()});
        raw.post(CONFIG_MAPS, object).await;
    }
    let (code, answer) = raw
        .delete(
            &format!("{CONFIG_MAPS}?labelSelector=gone%3Dtrue"),
            json!({}),
        )
        .await;
    assert_eq!(
        (code, answer["items"].as_array().map(Vec::len)),
        (200, Some(2))
    );
    let (_, left) = raw.get(CONFIG_MAPS).await;
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn namespace_goes_when_it_is_finalized() {
    let raw = admin().await;
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    raw.post("/api/v1/namespaces", object).await;
    let (_, mut waiting) = raw.delete("/api/v1/namespaces/n", json!({})).await;
    assert_eq!(waiting["spec"]["finalizers"], json!(["kubernetes"]));
    waiting["spec"]["finalizers"] = json!([]);
    assert_eq!(
        raw.put("/api/v1/namespaces/n/finalize", waiting).await.0,
        200
    );
    assert_eq!(raw.get("/api/v1/namespaces/n").await.0, 404);
}
