//! Labels of namespaces.

use coracle_store::{Backend, Op, Txn};

use super::*;

const BAD: &str = "Invalid value: \"strict\": must be one of privileged, baseline, restricted";

#[tokio::test]
async fn labels_that_cannot_be_read_are_refused() {
    let raw = admin().await;
    let labels = json!({ENFORCE: "strict", "pod-security.kubernetes.io/warn-version": "1.20"});
    let answer = namespace(&raw, "n", labels).await;
    let version = "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"1.20\": must be \"latest\" or \"v1.x\"";
    let message =
        format!("Namespace \"n\" is invalid: [metadata.labels[{ENFORCE}]: {BAD}, {version}]");
    assert_eq!((answer.code, answer.message()), (422, message.as_str()));
    let fields: Vec<&Value> = answer.body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cause| &cause["field"])
        .collect();
    assert_eq!(
        fields,
        [
            &json!(format!("metadata.labels[{ENFORCE}]")),
            &json!("metadata.labels[pod-security.kubernetes.io/warn-version]")
        ]
    );
    namespace(&raw, "n", json!({})).await;
    let path = format!("{NAMESPACES}/n");
    let (code, answer) = raw
        .merge(&path, json!({"metadata": {"labels": {ENFORCE: "strict"}}}))
        .await;
    let message = format!("Namespace \"n\" is invalid: metadata.labels[{ENFORCE}]: {BAD}");
    assert_eq!((code, &answer["message"]), (422, &json!(message)));
}

/// As earlier releases have stored them.
#[tokio::test]
async fn labels_that_are_there_and_cannot_be_read_are_the_strictest_and_keep_no_other_change_off() {
    let backend = Arc::new(MemoryBackend::new());
    let stored = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "old", "uid": "u",
        "creationTimestamp": "2024-01-01T00:00:00Z", "labels": {ENFORCE: "strict"}}, "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"}});
    let put = Op::Put {
        key: "/registry/namespaces/old".into(),
        value: stored.to_string().into(),
    };
    let txn = Txn {
        ops: vec![put],
        ..Txn::default()
    };
    backend.txn(txn).await.unwrap();
    let server = told_over("defaults: {}", backend).await;
    let raw = of(&server, "admin");
    let path = format!("{NAMESPACES}/old");
    let change = |labels: Value| json!({"metadata": {"labels": labels}});
    assert_eq!(raw.merge(&path, change(json!({"a": "b"}))).await.0, 200);
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    assert_eq!(
        raw.post(&format!("{path}/serviceaccounts"), account)
            .await
            .0,
        201
    );
    let answer = write(&raw, "POST", &pods("old"), &privileged("p")).await;
    assert!(
        answer
            .message()
            .contains("violates PodSecurity \"restricted:latest\""),
        "{}",
        answer.body
    );
    assert_eq!(
        raw.merge(&path, change(json!({ENFORCE: "stricter"})))
            .await
            .0,
        422
    );
    assert_eq!(
        raw.merge(&path, change(json!({ENFORCE: "privileged"})))
            .await
            .0,
        200
    );
    assert_eq!(raw.post(&pods("old"), privileged("p")).await.0, 201);
}

#[tokio::test]
async fn whoever_asks_for_more_is_told_of_the_pods_that_would_be_refused() {
    let raw = admin().await;
    namespace(&raw, "n", json!({})).await;
    namespace(&raw, "other", json!({})).await;
    for name in ["b", "a", "c"] {
        assert_eq!(raw.post(&pods("n"), privileged(name)).await.0, 201);
    }
    assert_eq!(raw.post(&pods("n"), good("g")).await.0, 201);
    assert_eq!(raw.post(&pods("other"), privileged("o")).await.0, 201);
    let mut host = good("h");
    host["spec"]["hostPID"] = json!(true);
    assert_eq!(raw.post(&pods("n"), host).await.0, 201);
    let path = format!("{NAMESPACES}/n");
    let dry = format!("{path}?dryRun=All");
    let ask = |level: Value, version: Value| json!({"metadata": {"labels": {ENFORCE: level, format!("{ENFORCE}-version"): version}}});
    let violate = |level: &str| {
        format!(
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"{level}\""
        )
    };
    let of_baseline = |level: &str| {
        vec![
            violate(level),
            "a (and 2 other pods): privileged".into(),
            "h: host namespaces".into(),
        ]
    };
    let of_restricted = vec![
        violate("restricted:latest"),
        "a (and 2 other pods): privileged, allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile".into(),
        "h: host namespaces".into(),
    ];
    let none = Vec::new;
    for (path, level, version, expect) in [
        (
            &dry,
            json!("baseline"),
            Value::Null,
            of_baseline("baseline:latest"),
        ),
        // Nothing has come of that.
        (
            &dry,
            json!("baseline"),
            json!("v1.20"),
            of_baseline("baseline:v1.20"),
        ),
        (&path, json!("restricted"), Value::Null, of_restricted),
        (&path, json!("restricted"), json!("latest"), none()),
        (&path, json!("baseline"), Value::Null, none()),
        (
            &path,
            json!("baseline"),
            json!("v1.20"),
            of_baseline("baseline:v1.20"),
        ),
        (&path, json!("privileged"), Value::Null, none()),
        (&path, Value::Null, Value::Null, none()),
        (&dry, json!("privileged"), json!("v1.20"), none()),
    ] {
        let answer = write(&raw, "PATCH", path, &ask(level.clone(), version.clone())).await;
        assert_eq!(
            (answer.code, answer.warnings),
            (200, expect),
            "{level} {version}"
        );
    }
    // Of what else asks for it, nobody is told: no pod is refused by that.
    let warn = json!({"metadata": {"labels": {"pod-security.kubernetes.io/warn": "restricted"}}});
    let answer = write(&raw, "PATCH", &path, &warn).await;
    assert_eq!((answer.code, answer.warnings), (200, vec![]));
}
