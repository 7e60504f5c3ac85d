//! A webhook that does wrong, or is not asked at all.

use super::*;

#[tokio::test]
async fn a_webhook_that_fails_costs_those_who_need_it_alone() {
    let (server, admin, webhook) = served().await;
    admin.post(ENDS, end("a", "h:1")).await;
    admin.post(ENDS, end("b", "h:2")).await;
    let mut in_v2 = watch(&admin, ENDS_V2).await;
    assert_eq!(within(in_v2.next()).await.unwrap()["type"], "ADDED");
    webhook.set(Mode::Refuses);
    let told = "conversion webhook for example.org/v1, Kind=End failed: connection refused";
    let one = format!("{ENDS_V2}/b");
    admin
        .merge(&format!("{ENDS}/b"), json!({"spec": {"hostPort": "h:3"}}))
        .await;
    for (code, answer) in [
        admin.get(&one).await,
        admin.get(ENDS_V2).await,
        admin.merge(&one, json!({"spec": {"port": "4"}})).await,
        admin.delete(&one, json!({})).await,
    ] {
        assert_eq!((code, &answer["message"]), (500, &json!(told)), "{answer}");
        assert_eq!(answer.get("reason"), None, "{answer}");
    }
    let (code, answer) = admin.post(ENDS_V2, end_in_v2("c", "h", "1")).await;
    let told_v2 = "conversion webhook for example.org/v2, Kind=End failed: connection refused";
    assert_eq!((code, &answer["message"]), (500, &json!(told_v2)));
    // What was there is sent, then what cannot be converted is told, and it ends.
    let mut last = Value::Null;
    while let Some(event) = within(in_v2.next()).await {
        last = event;
    }
    assert_eq!(
        (&last["type"], &last["object"]["message"]),
        (&json!("ERROR"), &json!(told))
    );
    // The version in which they are stored goes on.
    assert_eq!(admin.get(ENDS).await.0, 200);
    assert_eq!(
        admin
            .merge(&format!("{ENDS}/a"), json!({"spec": {"replicas": 2}}))
            .await
            .0,
        200
    );
    let metadata = Request::get(ENDS_V2).header(
        header::ACCEPT,
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    );
    let metadata = admin
        .0
        .request_text(metadata.body(Vec::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(names(&serde_json::from_str(&metadata).unwrap()), ["a", "b"]);
    // So do the parts of the cluster that collect and empty.
    webhook.set(Mode::Hangs);
    let part = Raw::of(&server, component());
    let (code, list) = part.get(ENDS_V2).await;
    assert_eq!((code, names(&list)), (200, vec!["a", "b"]), "{list}");
    let finalizers = json!({"metadata": {"finalizers": ["example.org/f"]}});
    assert_eq!(part.merge(&one, finalizers).await.0, 200);
    assert_eq!(
        part.merge(&one, json!({"metadata": {"finalizers": null}}))
            .await
            .0,
        200
    );
    assert_eq!(part.delete(&one, json!({})).await.0, 200);
    assert_eq!(part.delete(ENDS_V2, json!({})).await.0, 200);
    assert_eq!(names(&admin.get(ENDS).await.1), Vec::<&str>::new());
    webhook.set(Mode::SaysTheWrongUid);
    let (code, answer) = admin.post(ENDS_V2, end_in_v2("c", "h", "1")).await;
    let message = answer["message"].as_str().unwrap();
    assert_eq!(code, 500);
    assert!(message.contains(", got \"other\""), "{message}");
    webhook.set(Mode::Works);
    assert_eq!(admin.post(ENDS_V2, end_in_v2("c", "h", "1")).await.0, 201);
}

pub(super) fn component() -> UserInfo {
    UserInfo::new(
        "system:serviceaccount:kube-system:namespace-controller",
        &["system:masters"],
    )
}

#[tokio::test]
async fn what_was_stored_in_another_version_is_converted_when_it_is_read() {
    let (server, admin, webhook) = served().await;
    admin.post(ENDS, end("a", "h:1")).await;
    webhook.set(Mode::Hangs);
    // Nobody waits for a webhook to serve a kind anew.
    within(serve(&server, ends(end_v2(), end_v1()), &webhook)).await;
    webhook.set(Mode::Works);
    admin.post(ENDS_V2, end_in_v2("b", "h", "2")).await;
    let (_, list) = admin.get(ENDS).await;
    assert_eq!(
        (names(&list), &list["items"][1]["spec"]["hostPort"]),
        (vec!["a", "b"], &json!("h:2"))
    );
    let (_, list) = admin.get(ENDS_V2).await;
    assert_eq!(
        (names(&list), &list["items"][0]["spec"]["host"]),
        (vec!["a", "b"], &json!("h"))
    );
    // A write that changes nothing moves it into the storage version.
    let path = format!("{ENDS}/a");
    let (_, now) = admin.get(&path).await;
    assert_eq!(admin.put(&path, now).await.0, 200);
    let kv = server
        .state
        .store
        .backend
        .get("/registry/example.org/ends/default/a")
        .await;
    let stored: Value = serde_json::from_slice(&kv.unwrap().unwrap().value).unwrap();
    assert_eq!(
        (&stored["apiVersion"], &stored["spec"]["host"]),
        (&json!("example.org/v2"), &json!("h"))
    );
}

#[tokio::test]
async fn what_is_too_long_for_one_answer_is_asked_for_in_pieces() {
    let (_server, admin, webhook) = served().await;
    let all = ["a", "b", "c", "d", "e"];
    for name in all {
        admin.post(ENDS, end(name, "h:1")).await;
    }
    // Five, of which two (one and one) and three (one and two).
    webhook.set(Mode::AnswersAtMost(2));
    webhook.calls();
    let (code, list) = admin.get(ENDS_V2).await;
    assert_eq!((code, names(&list)), (200, all.to_vec()), "{list}");
    assert!(
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["spec"]["host"] == "h")
    );
    assert_eq!(webhook.calls(), 5);
    // An object that is too long by itself is not asked for again and again.
    for name in all {
        admin
            .merge(
                &format!("{ENDS}/{name}"),
                json!({"spec": {"hostPort": "g:1"}}),
            )
            .await;
    }
    webhook.set(Mode::AnswersAtMost(0));
    let (code, answer) = admin.get(ENDS_V2).await;
    let told = "conversion webhook for example.org/v1, Kind=End failed: the answer is too long";
    assert_eq!((code, &answer["message"]), (500, &json!(told)), "{answer}");
    assert_eq!(webhook.calls(), 3);
}

#[tokio::test]
async fn the_pieces_of_a_batch_are_bounded() {
    let (_server, admin, webhook) = served().await;
    for at in 0..20 {
        admin.post(ENDS, end(&format!("a{at}"), "h:1")).await;
    }
    webhook.set(Mode::AnswersAtMost(1));
    webhook.calls();
    let (code, answer) = admin.get(ENDS_V2).await;
    assert_eq!(code, 500, "{answer}");
    assert!(webhook.calls() <= 16);
}
