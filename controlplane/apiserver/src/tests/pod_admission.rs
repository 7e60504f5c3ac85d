use serde_json::{Value, json};

use super::raw::{PODS, Raw, admin, pod};

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn class(raw: &Raw, name: &str, fields: Value) -> (u16, Value) {
    let mut class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}});
    class
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    raw.post(CLASSES, class).await
}

/// What became of a pod with these fields of its spec.
async fn admitted(raw: &Raw, name: &str, fields: Value) -> (u16, Value) {
    let mut object = pod(name);
    object["spec"]
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    raw.post(PODS, object).await
}

#[tokio::test]
async fn pods_get_the_priority_of_their_class() {
    let raw = admin().await;
    let (_, plain) = admitted(&raw, "plain", json!({})).await;
    assert_eq!(plain["spec"]["priority"], 0);
    assert!(plain["spec"]["priorityClassName"].is_null());
    assert_eq!(
        class(
            &raw,
            "high",
            json!({"value": 9, "preemptionPolicy": "Never"})
        )
        .await
        .0,
        201
    );
    let (_, high) = admitted(&raw, "high", json!({"priorityClassName": "high"})).await;
    assert_eq!(
        (&high["spec"]["priority"], &high["spec"]["preemptionPolicy"]),
        (&json!(9), &json!("Never"))
    );
    let (_, system) = admitted(
        &raw,
        "system",
        json!({"priorityClassName": "system-node-critical"}),
    )
    .await;
    assert_eq!(system["spec"]["priority"], 2_000_001_000);
    let (code, refused) = admitted(&raw, "none", json!({"priorityClassName": "none"})).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "pods \"none\" is forbidden: no PriorityClass with name none was found"
    );
    let (code, refused) = admitted(&raw, "own", json!({"priority": 3})).await;
    assert_eq!(code, 403, "{refused}");
}

#[tokio::test]
async fn an_update_loses_nothing_that_admission_added() {
    let raw = admin().await;
    class(
        &raw,
        "high",
        json!({"value": 9, "preemptionPolicy": "Never"}),
    )
    .await;
    let (_, made) = admitted(&raw, "p", json!({"priorityClassName": "high"})).await;
    let path = format!("{PODS}/p");
    let own = json!({"key": "a", "operator": "Exists"});
    let (code, answer) = raw
        .merge(&path, json!({"spec": {"tolerations": [own]}}))
        .await;
    assert_eq!(code, 200, "{answer}");
    let keys: Vec<&Value> = answer["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["key"])
        .collect();
    assert_eq!(
        keys,
        [
            "a",
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable"
        ]
    );
    // As a client writes it whose library is older than these fields.
    let mut whole = made;
    whole["metadata"]["resourceVersion"].take();
    whole["spec"]["tolerations"] = json!([own]);
    for field in ["priority", "preemptionPolicy"] {
        whole["spec"].as_object_mut().unwrap().remove(field);
    }
    let (code, answer) = raw.put(&path, whole.clone()).await;
    assert_eq!(
        (code, &answer["spec"]["priority"]),
        (200, &json!(9)),
        "{answer}"
    );
    assert_eq!(answer["spec"]["preemptionPolicy"], "Never");
    whole["spec"]["priority"] = 3.into();
    assert_eq!(raw.put(&path, whole).await.0, 422);
}

#[tokio::test]
async fn there_is_one_default_class() {
    let raw = admin().await;
    assert_eq!(
        class(&raw, "first", json!({"value": 5, "globalDefault": true}))
            .await
            .0,
        201
    );
    let (code, refused) = class(&raw, "second", json!({"value": 6, "globalDefault": true})).await;
    assert_eq!(code, 403);
    let why = "PriorityClass first is already marked as default. Only one default can exist";
    assert_eq!(
        refused["message"],
        format!("priorityclasses.scheduling.k8s.io \"second\" is forbidden: {why}")
    );
    class(&raw, "second", json!({"value": 6})).await;
    let (code, _) = raw
        .merge(&format!("{CLASSES}/second"), json!({"globalDefault": true}))
        .await;
    assert_eq!(code, 403);
    let (code, _) = raw
        .merge(&format!("{CLASSES}/first"), json!({"description": "still"}))
        .await;
    assert_eq!(code, 200);
    let (_, pod) = admitted(&raw, "p", json!({})).await;
    assert_eq!(
        (&pod["spec"]["priority"], &pod["spec"]["priorityClassName"]),
        (&json!(5), &json!("first"))
    );
    // What is added is nobody's field.
    let fields = pod["metadata"]["managedFields"].to_string();
    assert!(
        !fields.contains("f:priority") && !fields.contains("f:tolerations"),
        "{fields}"
    );
}

#[tokio::test]
async fn a_pod_waits_for_the_account_default_and_not_for_ever() {
    let raw = admin().await;
    assert_eq!(
        raw.delete(&format!("{ACCOUNTS}/default"), json!({}))
            .await
            .0,
        200
    );
    let (code, refused) = admitted(&raw, "p", json!({})).await;
    let why =
        "error looking up service account default/default: serviceaccount \"default\" not found";
    assert_eq!(
        (code, &refused["message"]),
        (403, &json!(format!("pods \"p\" is forbidden: {why}")))
    );
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let ((code, made), (made_account, _)) =
        tokio::join!(admitted(&raw, "p", json!({})), raw.post(ACCOUNTS, account));
    assert_eq!((code, made_account), (201, 201), "{made}");
}

#[tokio::test]
async fn accounts_exist_and_say_what_their_pods_get() {
    let raw = admin().await;
    let (code, refused) = admitted(&raw, "p", json!({"serviceAccountName": "robot"})).await;
    assert_eq!(code, 403);
    let why = "error looking up service account default/robot: serviceaccount \"robot\" not found";
    assert_eq!(
        refused["message"],
        format!("pods \"p\" is forbidden: {why}")
    );
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"},
        "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "pull"}]});
    assert_eq!(raw.post(ACCOUNTS, account).await.0, 201);
    let (_, pod) = admitted(&raw, "p", json!({"serviceAccountName": "robot"})).await;
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
    assert!(pod["spec"]["volumes"].is_null(), "{pod}");
    let own = json!({"serviceAccountName": "robot", "automountServiceAccountToken": true});
    let (_, pod) = admitted(&raw, "q", own).await;
    assert!(pod["spec"]["volumes"][0]["projected"].is_object(), "{pod}");
}

#[tokio::test]
async fn an_account_confines_its_pods_to_secrets_that_it_lists() {
    let raw = admin().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "secrets": [{"name": "own"}], "metadata":
        {"name": "robot", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}});
    assert_eq!(raw.post(ACCOUNTS, account).await.0, 201);
    let of = |secret: &str| json!({"serviceAccountName": "robot", "volumes": [{"name": "v", "secret": {"secretName": secret}}]});
    let (code, refused) = admitted(&raw, "p", of("other")).await;
    let why = "pods \"p\" is forbidden: volume with secret.secretName=\"other\" is not allowed because service account \
        robot does not reference that secret";
    assert_eq!((code, &refused["message"]), (403, &json!(why)));
    assert_eq!(admitted(&raw, "p", of("own")).await.0, 201);
    let debugger = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "i",
        "envFrom": [{"secretRef": {"name": "other"}}]}]}});
    let (code, refused) = raw
        .merge(&format!("{PODS}/p/ephemeralcontainers"), debugger)
        .await;
    assert_eq!(code, 403, "{refused}");
    let mut unbound = of("other");
    unbound["serviceAccountName"] = "default".into();
    assert_eq!(admitted(&raw, "q", unbound).await.0, 201);
}

#[tokio::test]
async fn a_pods_runtime_class_exists_and_says_what_it_costs() {
    let raw = admin().await;
    let (code, refused) = admitted(&raw, "p", json!({"runtimeClassName": "none"})).await;
    let why = "pods \"p\" is forbidden: pod rejected: RuntimeClass \"none\" not found";
    assert_eq!((code, &refused["message"]), (403, &json!(why)));
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vm"},
        "handler": "vm", "overhead": {"podFixed": {"cpu": "10m"}}});
    assert_eq!(
        raw.post("/apis/node.k8s.io/v1/runtimeclasses", class)
            .await
            .0,
        201
    );
    let (code, pod) = admitted(&raw, "p", json!({"runtimeClassName": "vm"})).await;
    assert_eq!(
        (code, &pod["spec"]["overhead"]),
        (201, &json!({"cpu": "10m"})),
        "{pod}"
    );
    assert_eq!(
        raw.delete("/apis/node.k8s.io/v1/runtimeclasses/vm", json!({}))
            .await
            .0,
        200
    );
    assert_eq!(
        admitted(&raw, "q", json!({"runtimeClassName": "vm"}))
            .await
            .0,
        403
    );
}

#[tokio::test]
async fn an_unmasked_proc_needs_users_of_the_pods_own() {
    let raw = admin().await;
    let unmasked = |host_users: Value| {
        json!({"hostUsers": host_users, "containers":
            [{"name": "c", "image": "i", "securityContext": {"procMount": "Unmasked"}}]})
    };
    for host_users in [Value::Null, json!(true)] {
        let (code, refused) = admitted(&raw, "p", unmasked(host_users)).await;
        let why = "Pod \"p\" is invalid: spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": \
            `hostUsers` must be false to use `Unmasked`";
        assert_eq!((code, &refused["message"]), (422, &json!(why)));
    }
    let (code, pod) = admitted(&raw, "p", unmasked(json!(false))).await;
    assert_eq!(code, 201, "{pod}");
    let (code, refused) = admitted(&raw, "q", json!({"hostUsers": false, "hostPID": true})).await;
    assert_eq!(
        (code, &refused["message"]),
        (
            422,
            &json!("Pod \"q\" is invalid: spec.HostPID: Forbidden: when `hostUsers` is false")
        )
    );
}
