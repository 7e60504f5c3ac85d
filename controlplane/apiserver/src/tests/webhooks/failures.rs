//! Webhooks that are slow, refuse to answer, lie and break: the documented outcome of each.

use std::time::{Duration, Instant};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    CONFIG_MAPS, MUTATING, VALIDATING, cluster, config_map, configure, make, says,
    server::{Hook, Reply, patch},
};

/// What a mutating webhook that answers like this makes of a write, by its failure policy.
async fn outcomes(reply: Reply) -> [(u16, String); 2] {
    let (server, admin) = cluster().await;
    let hook = Hook::that(reply).await;
    let mut outcomes = Vec::new();
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    for policy in ["Fail", "Ignore"] {
        let webhook = hook.webhook("m", json!({"failurePolicy": policy, "timeoutSeconds": 1}));
        let name = policy.to_lowercase();
        configure(&server, &admin, MUTATING, &name, &[webhook]).await;
        let (code, message) = make(&admin, &path, config_map("x")).await;
        let message = message.replace(&hook.address.to_string(), "HERE");
        outcomes.push((code, message));
        admin.delete(&format!("{MUTATING}/{name}"), json!({})).await;
        server.state.store.cache.catch_up().await.unwrap();
    }
    outcomes.try_into().unwrap()
}

/// The failure policy decides: that is what is told if it is `Fail`.
#[track_caller]
fn check([fail, ignore]: [(u16, String); 2], why: &str) {
    let message =
        format!("Internal error occurred: failed calling webhook \"m.example.org\": {why}");
    assert_eq!(fail, (500, message));
    assert_eq!(ignore, (201, String::new()));
}

#[tokio::test]
async fn one_that_hangs_is_given_up() {
    let why =
        "failed to call webhook: Post \"https://HERE/m?timeout=1s\": context deadline exceeded";
    check(outcomes(Reply::Hangs).await, why);
}

#[tokio::test]
async fn answers_that_are_none_are_failures() {
    let mutated = |response: Value| says(response);
    let patched = BASE64_STANDARD.encode("[]");
    for (reply, why) in [
        (
            Reply::Redirects,
            "failed to call webhook: the server responded with the status code 307 but did not return more information",
        ),
        (
            Reply::Raw(500, Bytes::new()),
            "failed to call webhook: an error on the server (\"unknown\") has prevented the request from succeeding",
        ),
        (
            Reply::Raw(404, Bytes::new()),
            "failed to call webhook: the server could not find the requested resource",
        ),
        (
            Reply::Raw(200, Bytes::from_static(b"{\"kind\":\"AdmissionReview\"}")),
            "failed to call webhook: Object 'apiVersion' is missing in '{\"kind\":\"AdmissionReview\"}'",
        ),
        (
            mutated(Value::Null),
            "received invalid webhook response: webhook response was absent",
        ),
        (
            mutated(json!({"allowed": true, "patch": patched})),
            "received invalid webhook response: webhook returned response.patch but not response.patchType",
        ),
        (
            mutated(json!({"allowed": true, "patch": patched, "patchType": "Merge"})),
            "",
        ),
        (
            mutated(
                json!({"allowed": true, "patch": BASE64_STANDARD.encode("[{}]"), "patchType": "Merge"}),
            ),
            "unsupported patch type \"Merge\"",
        ),
    ] {
        let outcomes = outcomes(reply).await;
        if why.is_empty() {
            // A patch without operations is none, of whatever type.
            assert_eq!(outcomes.map(|(code, _)| code), [201, 201]);
        } else {
            check(outcomes, why);
        }
    }
}

#[tokio::test]
async fn an_answer_to_another_question_is_none() {
    let [fail, ignore] = outcomes(says(json!({"uid": "other", "allowed": true}))).await;
    let begins = "Internal error occurred: failed calling webhook \"m.example.org\": received invalid webhook response: expected response.uid=\"";
    assert!(
        fail.1.starts_with(begins) && fail.1.ends_with("\", got \"other\""),
        "{fail:?}"
    );
    assert_eq!((fail.0, ignore.0), (500, 201));
}

#[tokio::test]
async fn garbage_and_floods_are_failures() {
    let [fail, ignore] = outcomes(Reply::Raw(200, Bytes::from_static(b"<html>"))).await;
    let begins = "Internal error occurred: failed calling webhook \"m.example.org\": failed to call webhook: couldn't get version/kind; json parse error: ";
    assert!(fail.1.starts_with(begins), "{fail:?}");
    assert_eq!((fail.0, ignore.0), (500, 201));
    let flood = Bytes::from(vec![b' '; 3 * 1024 * 1024 + 1]);
    let why = "failed to call webhook: Post \"https://HERE/m?timeout=1s\": the answer is longer than 3145728 bytes";
    check(outcomes(Reply::Raw(200, flood)).await, why);
    // Few bytes a value, and very many values.
    let crowd = format!("[{}1]", "1,".repeat(1_400_000));
    let [fail, _] = outcomes(Reply::Raw(200, crowd.into())).await;
    assert!(fail.1.starts_with(begins), "{fail:?}");
}

#[tokio::test]
async fn a_patch_that_does_not_fit_is_refused_whatever_the_policy_says() {
    for (operations, says) in [
        (
            json!([{"op": "test", "path": "/data/n", "value": "other"}]),
            "Internal error occurred: testing value /data/n failed: test failed",
        ),
        (
            json!([{"op": "add", "path": "/metadata/annotations/a", "value": "b"}]),
            "Internal error occurred: add operation does not apply: doc is missing path: \"/metadata/annotations/a\": missing value",
        ),
        (
            json!([{"op": "replace", "path": "/data", "value": 1}]),
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap",
        ),
        (
            json!([{"op": "replace", "path": "/kind", "value": "Secret"}]),
            "Secret",
        ),
    ] {
        for (code, message) in outcomes(patch(operations.clone())).await {
            assert_eq!(code, 500, "{operations}: {message}");
            assert!(message.contains(says), "{operations}: {message}");
        }
    }
}

#[tokio::test]
async fn a_deletion_cannot_be_patched() {
    let (server, admin) = cluster().await;
    admin.post(CONFIG_MAPS, config_map("x")).await;
    let hook = Hook::that(patch(
        json!([{"op": "add", "path": "/data/a", "value": "1"}]),
    ))
    .await;
    let rules = json!([{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["configmaps"]}]);
    let webhook = hook.webhook("m", json!({"rules": rules, "failurePolicy": "Ignore"}));
    configure(&server, &admin, MUTATING, "c", &[webhook]).await;
    let (code, answer) = admin.delete(&format!("{CONFIG_MAPS}/x"), json!({})).await;
    let message = "Internal error occurred: admission webhook \"m.example.org\" attempted to modify the object, which is not supported for this operation";
    assert_eq!((code, answer["message"].as_str()), (500, Some(message)));
}

#[tokio::test]
async fn a_validating_webhook_changes_nothing() {
    let (server, admin) = cluster().await;
    let hook = Hook::that(patch(
        json!([{"op": "add", "path": "/data/a", "value": "1"}]),
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
    let (code, message) = make(&admin, CONFIG_MAPS, config_map("x")).await;
    let why = "Internal error occurred: failed calling webhook \"v.example.org\": received invalid webhook response: validating webhook may not return response.patch";
    assert_eq!((code, &*message), (500, why));
}

#[tokio::test]
async fn a_dry_run_calls_nobody_whose_calls_have_effects() {
    let (server, admin) = cluster().await;
    let hook = Hook::allowing().await;
    configure(
        &server,
        &admin,
        MUTATING,
        "c",
        &[hook.webhook("m", json!({}))],
    )
    .await;
    // Older releases took such configurations: the store may still have some.
    let resource = server.state.registry.get(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
    );
    let key = resource.unwrap().key("", "c");
    let stored = server.state.store.backend.get(&key).await.unwrap().unwrap();
    let text = String::from_utf8(stored.value.to_vec()).unwrap();
    let text = text.replace("\"sideEffects\":\"None\"", "\"sideEffects\":\"Some\"");
    let put = coracle_store::Op::Put {
        key: stored.key.clone(),
        value: text.into(),
    };
    let txn = coracle_store::Txn {
        compare: Vec::new(),
        ops: vec![put],
        may_use_disk_reserve: false,
    };
    server.state.store.backend.txn(txn).await.unwrap();
    server.state.store.cache.catch_up().await.unwrap();
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    let (code, message) = make(&admin, &path, config_map("x")).await;
    let why = "admission webhook \"m.example.org\" does not support dry run";
    assert_eq!((code, &*message, hook.asked().len()), (400, why, 0));
    assert_eq!(make(&admin, CONFIG_MAPS, config_map("x")).await.0, 201);
    assert_eq!(hook.asked().len(), 1);
}

#[tokio::test]
async fn one_that_hangs_holds_up_nobody_else() {
    let (server, admin) = cluster().await;
    let hook = Hook::that(Reply::Hangs).await;
    let selector = json!({"matchLabels": {"slow": "yes"}});
    let webhook = hook.webhook(
        "m",
        json!({"objectSelector": selector, "timeoutSeconds": 10}),
    );
    configure(&server, &admin, MUTATING, "c", &[webhook]).await;
    let slow = |at: u32| {
        let admin = admin.clone();
        let mut object = config_map(&format!("slow{at}"));
        object["metadata"]["labels"] = json!({"slow": "yes"});
        async move { admin.post(CONFIG_MAPS, object).await }
    };
    let mut hanging = tokio::task::JoinSet::new();
    for at in 0..40 {
        coracle_telemetry::spawn_in(&mut hanging, "hanging", slow(at));
    }
    while hook.asked().len() < 40 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begun = Instant::now();
    for at in 0..100 {
        let made = admin
            .post(CONFIG_MAPS, config_map(&format!("fast{at}")))
            .await;
        assert_eq!(made.0, 201);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(hook.asked().len(), 40);
}

#[tokio::test]
async fn nobody_there_is_told_with_the_way_that_was_tried() {
    let (server, admin) = cluster().await;
    let hook = Hook::allowing().await;
    let bundle = hook.webhook("m", json!({}))["clientConfig"]["caBundle"].clone();
    let service = json!({"caBundle": bundle, "service": {"namespace": "default", "name": "absent", "path": "/p"}});
    let webhook = hook.webhook("m", json!({"clientConfig": service}));
    configure(&server, &admin, MUTATING, "c", &[webhook]).await;
    let (code, message) = make(&admin, CONFIG_MAPS, config_map("x")).await;
    let why = "Internal error occurred: failed calling webhook \"m.example.org\": failed to call webhook: Post \"https://absent.default.svc:443/p?timeout=5s\": services \"absent\" not found";
    assert_eq!((code, &*message), (500, why));
}

/// Each of many webhooks may add megabytes, and the next one is sent all that those before it made.
#[tokio::test]
async fn what_webhooks_make_of_an_object_together_has_a_bound() {
    let (server, admin) = cluster().await;
    let mut hooks = Vec::new();
    for name in ["a", "b", "c"] {
        let path = format!("/data/{name}");
        let more = json!([{"op": "add", "path": path, "value": "x".repeat(1_700_000)}]);
        let hook = Hook::that(patch(more)).await;
        let webhook = hook.webhook(name, json!({"failurePolicy": "Ignore"}));
        configure(&server, &admin, MUTATING, name, &[webhook]).await;
        hooks.push(hook);
    }
    let (code, message) = make(&admin, CONFIG_MAPS, config_map("x")).await;
    let why = "Internal error occurred: Request entity too large: limit is 3145728";
    assert_eq!((code, &*message), (500, why));
    let asked = hooks.iter().map(|hook| hook.asked().len());
    assert_eq!(asked.collect::<Vec<_>>(), [1, 1, 0]);
}

#[tokio::test]
async fn what_a_webhook_says_besides_its_answer_has_a_bound() {
    let long: Vec<String> = (0..2000)
        .map(|at| format!("{at}{}", "w".repeat(1000)))
        .collect();
    let said = json!({"allowed": true, "warnings": long, "auditAnnotations": {"a": "b"}});
    let (server, admin) = cluster().await;
    let hook = Hook::that(says(said)).await;
    let webhook = hook.webhook("a", json!({}));
    configure(&server, &admin, VALIDATING, "v", &[webhook]).await;
    let body = config_map("x").to_string();
    let response = admin
        .response("POST", CONFIG_MAPS, "application/json", body)
        .await;
    assert_eq!(response.status(), 201);
    let warnings = response.headers().get_all("warning").iter();
    let bytes: usize = warnings.map(http::HeaderValue::len).sum();
    assert!((1..6000).contains(&bytes), "{bytes}");
}

/// What a webhook says is no reason to try something else.
#[tokio::test]
async fn a_denial_is_told_whatever_its_code() {
    let (server, admin) = cluster().await;
    let endpoints = "/api/v1/namespaces/default/endpoints";
    let one =
        |name: &str| json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name}});
    assert_eq!(admin.post(endpoints, one("there")).await.0, 201);
    for (reason, code) in [("NotFound", 404), ("AlreadyExists", 409)] {
        let status = json!({"code": code, "reason": reason, "message": "no"});
        let hook = Hook::that(says(json!({"allowed": false, "status": status}))).await;
        let rules = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["endpoints"]}]);
        let webhook = hook.webhook("a", json!({"rules": rules}));
        let name = reason.to_lowercase();
        configure(&server, &admin, VALIDATING, &name, &[webhook]).await;
        let (there, new) = (format!("{endpoints}/there"), format!("{endpoints}/new"));
        let mut changed = one("there");
        changed["metadata"]["labels"] = json!({"a": "b"});
        let (applied, made) = (changed.to_string(), one("new").to_string());
        let apply = "application/apply-patch+yaml";
        let by = |path: &str| format!("{path}?fieldManager=m");
        for answer in [
            admin.put(&there, changed).await,
            admin.put(&new, one("new")).await,
            admin.send("PATCH", &by(&there), apply, applied).await,
            admin.send("PATCH", &by(&new), apply, made).await,
        ] {
            let said = (answer.0, answer.1["message"].as_str().unwrap_or_default());
            let expect = "admission webhook \"a.example.org\" denied the request: no";
            assert_eq!(said, (code, expect), "{reason}");
        }
        assert_eq!(hook.asked().len(), 4, "{reason}");
        admin
            .delete(&format!("{VALIDATING}/{name}"), json!({}))
            .await;
        server.state.store.cache.catch_up().await.unwrap();
    }
}
