//! Reviews: what one may oneself, and what others may.

use super::*;

const ACCESS: &str = "/apis/authorization.k8s.io/v1";

fn review(kind: &str, spec: Value) -> Value {
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
}

fn get(resource: &str) -> Value {
    json!({"resourceAttributes": {"verb": "get", "resource": resource, "namespace": "default"}})
}

/// Bob, who may view.
async fn viewer() -> (World, Raw) {
    let world = World::new().await;
    let bindings = format!("{RBAC}/clusterrolebindings");
    let (code, answer) = world.admin.post(&bindings, binding("bob", "view")).await;
    assert_eq!(code, 201, "{answer}");
    let bob = world.user("bob");
    (world, bob)
}

#[tokio::test]
async fn reviews_answer_for_oneself() {
    let (_world, bob) = viewer().await;
    let own = format!("{ACCESS}/selfsubjectaccessreviews");
    let ask = async |spec| {
        bob.post(&own, review("SelfSubjectAccessReview", spec))
            .await
    };
    let (code, answer) = ask(get("pods")).await;
    assert_eq!(
        (code, &answer["status"]["allowed"]),
        (201, &json!(true)),
        "{answer}"
    );
    let (_, answer) = ask(get("secrets")).await;
    assert_eq!(answer["status"], json!({"allowed": false}));
    assert_eq!(ask(json!({})).await.0, 422);

    let rules = format!("{ACCESS}/selfsubjectrulesreviews");
    let of_default = review("SelfSubjectRulesReview", json!({"namespace": "default"}));
    let (_, answer) = bob.post(&rules, of_default).await;
    let resources = answer["status"]["resourceRules"].to_string();
    assert!(
        resources.contains("pods/log") && !resources.contains("secrets"),
        "{answer}"
    );
    let paths = answer["status"]["nonResourceRules"].to_string();
    assert!(paths.contains("/openapi"), "{answer}");

    let me = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let (_, answer) = bob
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", me)
        .await;
    assert_eq!(
        answer["status"]["userInfo"],
        json!({"username": "bob", "groups": ["system:authenticated"]})
    );
}

#[tokio::test]
async fn reviews_answer_for_others() {
    let (world, bob) = viewer().await;
    let mut of_bob = get("pods");
    of_bob["user"] = "bob".into();
    let others = format!("{ACCESS}/subjectaccessreviews");
    let asked = review("SubjectAccessReview", of_bob.clone());
    let (_, answer) = world.admin.post(&others, asked.clone()).await;
    assert_eq!(
        answer["status"]["reason"],
        "RBAC: allowed by ClusterRoleBinding \"bob-view\" of ClusterRole \"view\" to User \"bob\""
    );
    assert_eq!(bob.post(&others, asked).await.0, 403);
    let local = async |namespace: &str| {
        let path = format!("{ACCESS}/namespaces/{namespace}/localsubjectaccessreviews");
        let asked = review("LocalSubjectAccessReview", of_bob.clone());
        world.admin.post(&path, asked).await
    };
    let (code, answer) = local("default").await;
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(true)));
    assert_eq!(local("other").await.0, 400);
}
