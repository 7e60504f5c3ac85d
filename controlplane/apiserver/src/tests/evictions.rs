use serde_json::{Value, json};

use super::raw::{PODS, Raw, admin, pod};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A pod that runs, ready or not.
async fn running(raw: &Raw, name: &str, ready: &str) {
    raw.post(PODS, pod(name)).await;
    let status =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    let (code, answer) = raw.merge(&format!("{PODS}/{name}/status"), status).await;
    assert_eq!(code, 200, "{answer}");
}

/// A budget over the pods with label `app` = `name`, counted already.
async fn budget(raw: &Raw, name: &str, app: &str, spec: Value, status: Value) {
    let mut object = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}});
    object["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    let (code, answer) = raw.post(BUDGETS, object).await;
    assert_eq!(code, 201, "{answer}");
    let mut counted = json!({"observedGeneration": 1, "expectedPods": 1});
    counted
        .as_object_mut()
        .unwrap()
        .extend(status.as_object().unwrap().clone());
    let (code, answer) = raw
        .merge(
            &format!("{BUDGETS}/{name}/status"),
            json!({"status": counted}),
        )
        .await;
    assert_eq!(code, 200, "{answer}");
}

async fn evict(raw: &Raw, name: &str, options: Value) -> (u16, Value) {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options});
    raw.post(&format!("{PODS}/{name}/eviction"), eviction).await
}

async fn is_there(raw: &Raw, name: &str) -> bool {
    raw.get(&format!("{PODS}/{name}")).await.0 == 200
}

#[tokio::test]
async fn pod_without_a_budget_goes() {
    let raw = admin().await;
    running(&raw, "x", "True").await;
    let (code, answer) = evict(&raw, "x", json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(
        (code, &answer["status"]),
        (201, &json!("Success")),
        "{answer}"
    );
    assert!(!is_there(&raw, "x").await);
}

#[tokio::test]
async fn budget_pays_for_each_eviction_until_it_has_nothing_left() {
    let raw = admin().await;
    running(&raw, "x", "True").await;
    budget(
        &raw,
        "b",
        "x",
        json!({}),
        json!({"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1}),
    )
    .await;
    let (code, answer) = evict(
        &raw,
        "x",
        json!({"gracePeriodSeconds": 30, "dryRun": ["All"]}),
    )
    .await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(
        raw.get(&format!("{BUDGETS}/b")).await.1["status"]["disruptionsAllowed"],
        1
    );
    // On a node, so that it stays for its grace.
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "x"},
        "target": {"kind": "Node", "name": "n1"}});
    raw.post(&format!("{PODS}/x/binding"), binding).await;
    let (code, answer) = evict(&raw, "x", json!({"gracePeriodSeconds": 30})).await;
    assert_eq!(code, 201, "{answer}");
    let (_, budget) = raw.get(&format!("{BUDGETS}/b")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(
        budget["status"]["disruptedPods"]["x"].is_string(),
        "{budget}"
    );
    assert_eq!(
        budget["status"]["conditions"][0]["reason"],
        "InsufficientPods"
    );
    let (_, going) = raw.get(&format!("{PODS}/x")).await;
    assert!(
        going["metadata"]["deletionTimestamp"].is_string(),
        "{going}"
    );
    let conditions = going["status"]["conditions"].as_array().unwrap();
    let target = conditions
        .iter()
        .find(|condition| condition["type"] == "DisruptionTarget")
        .unwrap();
    assert_eq!(target["reason"], "EvictionByEvictionAPI");
    // What goes already is not asked for twice.
    assert_eq!(
        evict(&raw, "x", json!({"gracePeriodSeconds": 30})).await.0,
        201
    );
}

#[tokio::test]
async fn budget_with_nothing_left_refuses_and_says_why() {
    let raw = admin().await;
    running(&raw, "x", "True").await;
    budget(
        &raw,
        "b",
        "x",
        json!({}),
        json!({"currentHealthy": 1, "desiredHealthy": 1}),
    )
    .await;
    let (code, answer) = evict(&raw, "x", json!({})).await;
    assert_eq!(
        (code, &answer["reason"]),
        (429, &json!("TooManyRequests")),
        "{answer}"
    );
    assert_eq!(
        answer["message"],
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    let cause = "The disruption budget b needs 1 healthy pods and has 1 currently";
    assert_eq!(
        answer["details"]["causes"],
        json!([{"reason": "DisruptionBudget", "message": cause}])
    );
    assert!(is_there(&raw, "x").await);
}

#[tokio::test]
async fn budget_that_has_changed_since_it_was_counted_refuses_for_now() {
    let raw = admin().await;
    running(&raw, "x", "True").await;
    budget(&raw, "b", "x", json!({}), json!({"disruptionsAllowed": 1})).await;
    raw.merge(
        &format!("{BUDGETS}/b"),
        json!({"spec": {"minAvailable": 2}}),
    )
    .await;
    let (code, answer) = evict(&raw, "x", json!({})).await;
    assert_eq!(
        (code, &answer["details"]["retryAfterSeconds"]),
        (429, &json!(10)),
        "{answer}"
    );
}

#[tokio::test]
async fn pod_with_two_budgets_cannot_be_evicted() {
    let raw = admin().await;
    running(&raw, "x", "True").await;
    budget(&raw, "a", "x", json!({}), json!({"disruptionsAllowed": 1})).await;
    budget(&raw, "b", "x", json!({}), json!({"disruptionsAllowed": 1})).await;
    let (code, answer) = evict(&raw, "x", json!({})).await;
    assert_eq!(code, 500, "{answer}");
    let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!(answer["message"], message);
}

#[tokio::test]
async fn pods_that_do_not_count_go_without_being_charged() {
    let raw = admin().await;
    for (name, phase, ready, policy) in [
        ("pending", "Pending", "False", "IfHealthyBudget"),
        ("failed", "Failed", "False", "IfHealthyBudget"),
        ("unready", "Running", "False", "AlwaysAllow"),
    ] {
        running(&raw, name, ready).await;
        raw.merge(
            &format!("{PODS}/{name}/status"),
            json!({"status": {"phase": phase}}),
        )
        .await;
        budget(
            &raw,
            name,
            name,
            json!({"unhealthyPodEvictionPolicy": policy}),
            json!({"desiredHealthy": 1}),
        )
        .await;
        let (code, answer) = evict(&raw, name, json!({"gracePeriodSeconds": 0})).await;
        assert_eq!(code, 201, "{name}: {answer}");
        assert!(!is_there(&raw, name).await, "{name}");
    }
    running(&raw, "guarded", "False").await;
    budget(
        &raw,
        "guarded",
        "guarded",
        json!({}),
        json!({"desiredHealthy": 1}),
    )
    .await;
    assert_eq!(evict(&raw, "guarded", json!({})).await.0, 429);
}

#[tokio::test]
async fn preconditions_of_the_client_hold() {
    let raw = admin().await;
    running(&raw, "x", "True").await;
    let (code, answer) = evict(
        &raw,
        "x",
        json!({"preconditions": {"resourceVersion": "1"}}),
    )
    .await;
    assert_eq!(code, 409, "{answer}");
    let (code, answer) = evict(&raw, "x", json!({"preconditions": {"uid": "other"}})).await;
    assert_eq!(code, 409, "{answer}");
    let (_, present) = raw.get(&format!("{PODS}/x")).await;
    let exact = json!({"resourceVersion": present["metadata"]["resourceVersion"], "uid": present["metadata"]["uid"]});
    let (code, answer) = evict(
        &raw,
        "x",
        json!({"gracePeriodSeconds": 0, "preconditions": exact}),
    )
    .await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test]
async fn a_pod_that_no_budget_is_asked_about_is_told_why_it_goes_too() {
    let raw = admin().await;
    for (name, phase) in [("pending", "Pending"), ("failed", "Failed")] {
        running(&raw, name, "False").await;
        let path = format!("{PODS}/{name}");
        let status = json!({"status": {"phase": phase}});
        raw.merge(&format!("{path}/status"), status).await;
        let held = json!({"metadata": {"finalizers": ["example.org/a"]}});
        raw.merge(&path, held).await;
        for _ in 0..2 {
            assert_eq!(evict(&raw, name, json!({})).await.0, 201, "{name}");
        }
        let (_, going) = raw.get(&path).await;
        assert!(
            going["metadata"]["deletionTimestamp"].is_string(),
            "{going}"
        );
        let conditions = going["status"]["conditions"].as_array().unwrap();
        let targets = conditions
            .iter()
            .filter(|condition| condition["type"] == "DisruptionTarget");
        let reasons: Vec<_> = targets.map(|target| &target["reason"]).collect();
        assert_eq!(reasons, ["EvictionByEvictionAPI"], "{name}");
    }
}
