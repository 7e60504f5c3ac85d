use std::{sync::Arc, time::Instant};

use coracle_auth::{
    authz::{Attributes, Decision, ResourceTarget, Target},
    user::UserInfo,
};
use coracle_registry::store::{WriteOptions, delete::DeleteOptions};
use serde_json::{Value, json};

use crate::{ApiServer, testing};

const GROUP: &str = "rbac.authorization.k8s.io";

async fn put(server: &Arc<ApiServer>, plural: &str, namespace: &str, object: Value) {
    let resource = server.state.registry.get(GROUP, "v1", plural).unwrap();
    server
        .state
        .store
        .create(resource, namespace, object, WriteOptions::default())
        .await
        .unwrap();
    server.state.store.cache.catch_up().await.unwrap();
}

fn role(name: &str, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, role: (&str, &str), subjects: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": role.0, "name": role.1}, "subjects": subjects,
    })
}

fn user(name: &str) -> Value {
    json!([{"kind": "User", "apiGroup": GROUP, "name": name}])
}

fn on<'a>(namespace: &'a str, resource: &'a str) -> Target<'a> {
    Target::Resource(ResourceTarget {
        resource,
        namespace,
        ..ResourceTarget::default()
    })
}

fn may(server: &ApiServer, user: &UserInfo, verb: &str, target: Target<'_>) -> bool {
    server
        .state
        .authorizer
        .allows(&Attributes { user, verb, target })
}

#[tokio::test]
async fn roles_hold_where_they_are_bound_and_as_long() {
    let server = testing::server().await;
    let (alice, bob) = (UserInfo::new("alice", &[]), UserInfo::new("bob", &["dev"]));
    assert!(!may(&server, &alice, "get", on("default", "pods")));
    put(
        &server,
        "rolebindings",
        "default",
        binding("views", ("ClusterRole", "view"), user("alice")),
    )
    .await;
    assert!(may(&server, &alice, "get", on("default", "pods")));
    assert!(!may(&server, &alice, "get", on("default", "secrets")));
    assert!(!may(&server, &alice, "get", on("kube-system", "pods")));
    assert!(!may(&server, &alice, "list", on("", "pods")));
    assert!(!may(&server, &bob, "get", on("default", "pods")));

    let devs = json!([{"kind": "Group", "apiGroup": GROUP, "name": "dev"}]);
    put(
        &server,
        "rolebindings",
        "default",
        binding("devs", ("Role", "late"), devs),
    )
    .await;
    assert!(
        !may(&server, &bob, "get", on("default", "secrets")),
        "the role is not there yet"
    );
    let secrets = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]);
    put(&server, "roles", "default", role("late", secrets)).await;
    assert!(may(&server, &bob, "get", on("default", "secrets")));

    let account = json!([{"kind": "ServiceAccount", "namespace": "default", "name": "robot"}]);
    put(
        &server,
        "rolebindings",
        "kube-system",
        binding("robots", ("ClusterRole", "view"), account),
    )
    .await;
    let robot = UserInfo::new("system:serviceaccount:default:robot", &[]);
    assert!(may(&server, &robot, "list", on("kube-system", "pods")));
    assert!(!may(&server, &robot, "list", on("default", "pods")));

    let bindings = server
        .state
        .registry
        .get(GROUP, "v1", "rolebindings")
        .unwrap();
    server
        .state
        .store
        .delete(bindings, "default", "views", &DeleteOptions::default())
        .await
        .unwrap();
    server.state.store.cache.catch_up().await.unwrap();
    assert!(!may(&server, &alice, "get", on("default", "pods")));
    assert!(
        may(&server, &bob, "get", on("default", "secrets")),
        "others stay"
    );
}

#[tokio::test]
async fn reasons_are_upstreams() {
    let server = testing::server().await;
    let account = json!([{"kind": "ServiceAccount", "namespace": "default", "name": "robot"}]);
    put(
        &server,
        "rolebindings",
        "default",
        binding("robots", ("ClusterRole", "view"), account),
    )
    .await;
    put(
        &server,
        "rolebindings",
        "default",
        binding("lost", ("Role", "nowhere"), user("carol")),
    )
    .await;
    let explain = |user: &str, target| {
        let user = UserInfo::new(user, &[]);
        server.state.authorizer.explain(&Attributes {
            user: &user,
            verb: "get",
            target,
        })
    };
    let allowed = |reason: &str| Decision::Allow(reason.to_owned());
    assert_eq!(
        explain("system:serviceaccount:default:robot", on("default", "pods")),
        allowed(
            "RBAC: allowed by RoleBinding \"robots/default\" of ClusterRole \"view\" to ServiceAccount \"robot/default\""
        )
    );
    assert_eq!(
        explain("anybody", Target::Path("/api")),
        allowed(
            "RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \
             \"system:authenticated\""
        )
    );
    assert_eq!(
        explain("carol", on("default", "pods")),
        Decision::NoOpinion(
            "RBAC: role.rbac.authorization.k8s.io \"nowhere\" not found".to_owned()
        )
    );
    assert_eq!(
        explain("anybody", on("default", "pods")),
        Decision::NoOpinion(String::new())
    );
}

/// No claim about time, which depends on the machine: the figure is for who reads the test's
/// output.
#[tokio::test]
async fn many_bindings_cost_a_request_nothing() {
    let server = testing::server().await;
    for n in 0..500 {
        let name = format!("b{n}");
        put(
            &server,
            "rolebindings",
            "default",
            binding(&name, ("ClusterRole", "view"), user(&name)),
        )
        .await;
    }
    let user = UserInfo::new("b250", &["dev"]);
    assert!(may(&server, &user, "get", on("default", "pods")));
    let (started, rounds) = (Instant::now(), 10_000);
    for _ in 0..rounds {
        assert!(may(&server, &user, "get", on("default", "configmaps")));
    }
    eprintln!(
        "one authorization with 500 bindings: {:?}",
        started.elapsed() / rounds
    );
}
