//! Many bindings in one request, each as if it had been sent alone.

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::raw::{PODS, Raw, admin, pod};
use crate::testing;

const BATCHES: &str = "/apis/scheduling.coracle.dev/v1alpha1/bindingbatches";

fn binding(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"namespace": namespace, "name": name},
        "target": {"kind": "Node", "name": "n1"}})
}

fn batch(bindings: &[Value]) -> Value {
    json!({"apiVersion": "scheduling.coracle.dev/v1alpha1", "kind": "BindingBatch", "bindings": bindings})
}

/// The codes of an answer, in its order.
fn codes(answer: &Value) -> Vec<u64> {
    let outcomes = answer["outcomes"].as_array();
    let outcomes = outcomes.unwrap_or_else(|| panic!("{answer}")).iter();
    outcomes
        .map(|one| one["code"].as_u64().unwrap_or_default())
        .collect()
}

async fn node_of(raw: &Raw, name: &str) -> Value {
    let (_, pod) = raw.get(&format!("{PODS}/{name}")).await;
    pod["spec"]["nodeName"].clone()
}

#[tokio::test]
async fn each_binding_has_its_own_outcome() {
    let raw = admin().await;
    for name in ["a", "b", "c"] {
        raw.post(PODS, pod(name)).await;
    }
    let mut stale = binding("default", "b");
    stale["metadata"]["uid"] = json!("of-another");
    let mut aimless = binding("default", "c");
    aimless["target"]["name"] = json!("");
    let sent = [
        binding("default", "a"),
        binding("default", "a"),
        stale,
        binding("default", "absent"),
        aimless,
        json!({"metadata": {"name": "c"}}),
        json!("nothing"),
        binding("default", "c"),
    ];
    let (code, answer) = raw.post(BATCHES, batch(&sent)).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(
        codes(&answer),
        [201, 409, 409, 404, 422, 400, 400, 201],
        "{answer}"
    );
    let (_, alone) = raw
        .post(&format!("{PODS}/a/binding"), binding("default", "a"))
        .await;
    assert_eq!(answer["outcomes"][1], alone, "as if it had been sent alone");
    assert_eq!(node_of(&raw, "a").await, "n1");
    assert_eq!(node_of(&raw, "b").await, Value::Null);
    assert_eq!(node_of(&raw, "c").await, "n1");
}

#[tokio::test]
async fn each_binding_needs_the_right_to_it() {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::master("admin"));
    let user = Raw::of(&server, UserInfo::new("ann", &[]));
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "others"}});
    admin.post("/api/v1/namespaces", namespace).await;
    admin.post(PODS, pod("a")).await;
    let mut other = pod("a");
    other["metadata"]["namespace"] = json!("others");
    admin.post("/api/v1/namespaces/others/pods", other).await;
    let sent = batch(&[binding("others", "a"), binding("default", "a")]);
    let (code, refused) = user.post(BATCHES, sent.clone()).await;
    assert_eq!(code, 403, "{refused}");

    let subject = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]);
    let group = "rbac.authorization.k8s.io";
    for (path, kind, rule) in [
        (
            RBAC.to_owned(),
            "ClusterRole",
            json!({"apiGroups": ["scheduling.coracle.dev"], "resources": ["bindingbatches"], "verbs": ["create"]}),
        ),
        (
            format!("{RBAC}/namespaces/default"),
            "Role",
            json!({"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}),
        ),
    ] {
        let api = format!("{group}/v1");
        let role =
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": "r"}, "rules": [rule]});
        let bound = json!({"apiVersion": api, "kind": format!("{kind}Binding"), "metadata": {"name": "r"},
            "roleRef": {"apiGroup": group, "kind": kind, "name": "r"}, "subjects": subject});
        let plural = kind.to_lowercase();
        for (of, object) in [("s", role), ("bindings", bound)] {
            let (code, answer) = admin.post(&format!("{path}/{plural}{of}"), object).await;
            assert_eq!(code, 201, "{answer}");
        }
    }
    let (code, answer) = user.post(BATCHES, sent).await;
    assert_eq!((code, codes(&answer)), (201, vec![403, 201]), "{answer}");
    let said = answer["outcomes"][0]["message"].as_str().unwrap();
    assert!(
        said.contains("cannot create resource \"pods/binding\""),
        "{said}"
    );
    let (_, other) = admin.get("/api/v1/namespaces/others/pods/a").await;
    assert_eq!(other["spec"]["nodeName"], Value::Null);
}

#[tokio::test]
async fn what_is_no_batch_is_refused() {
    let raw = admin().await;
    raw.post(PODS, pod("a")).await;
    let many = vec![binding("default", "a"); 257];
    for (body, expect, text) in [
        (json!({"bindings": many}), 422, "Too many: 257"),
        (json!({"bindings": {}}), 400, "a BindingBatch is expected"),
        (json!([]), 400, "a BindingBatch is expected"),
    ] {
        let (code, answer) = raw.post(BATCHES, body).await;
        assert_eq!(code, expect, "{answer}");
        let said = answer["message"].as_str().unwrap();
        assert!(said.contains(text), "{said}");
    }
    let one = batch(&[binding("default", "a")]).to_string();
    let (code, answer) = raw.send("POST", BATCHES, "application/yaml", one).await;
    assert_eq!(code, 415, "{answer}");
    let (code, answer) = raw.get(BATCHES).await;
    assert_eq!(code, 405, "{answer}");
    assert_eq!(node_of(&raw, "a").await, Value::Null);
    let dry = format!("{BATCHES}?dryRun=All");
    let (code, answer) = raw.post(&dry, batch(&[binding("default", "a")])).await;
    assert_eq!((code, codes(&answer)), (201, vec![201]), "{answer}");
    assert_eq!(node_of(&raw, "a").await, Value::Null);
    let (code, answer) = raw.post(BATCHES, batch(&[])).await;
    assert_eq!((code, codes(&answer)), (201, vec![]), "{answer}");
}
