use coracle_auth::{
    authz::{Attributes, Decision, ResourceTarget, Target},
    user::UserInfo,
};

use crate::testing;

fn resource<'a>(namespace: &'a str, resource: &'a str, name: &'a str) -> Target<'a> {
    Target::Resource(ResourceTarget {
        resource,
        namespace,
        name,
        ..ResourceTarget::default()
    })
}

#[tokio::test]
async fn refusals_read_as_upstreams() {
    let server = testing::server().await;
    let alice = UserInfo::new("alice", &[]);
    let message = |verb: &str, target| {
        server
            .state
            .authorizer
            .authorize(&Attributes {
                user: &alice,
                verb,
                target,
            })
            .unwrap_err()
            .message
    };
    let log = ResourceTarget {
        resource: "pods",
        subresource: "log",
        namespace: "a",
        name: "p",
        ..Default::default()
    };
    let role = ResourceTarget {
        group: "rbac.authorization.k8s.io",
        resource: "roles",
        ..Default::default()
    };
    let table = [
        (
            message("get", resource("default", "pods", "x")),
            r#"pods "x" is forbidden: User "alice" cannot get resource "pods" in API group "" in the namespace "default""#,
        ),
        (
            message("list", resource("", "nodes", "")),
            r#"nodes is forbidden: User "alice" cannot list resource "nodes" in API group "" at the cluster scope"#,
        ),
        (
            message("get", resource("kube-system", "namespaces", "kube-system")),
            r#"namespaces "kube-system" is forbidden: User "alice" cannot get resource "namespaces" in API group "" in the namespace "kube-system""#,
        ),
        (
            message("get", Target::Resource(log)),
            r#"pods "p" is forbidden: User "alice" cannot get resource "pods/log" in API group "" in the namespace "a""#,
        ),
        (
            message("create", Target::Resource(role)),
            r#"roles.rbac.authorization.k8s.io is forbidden: User "alice" cannot create resource "roles" in API group "rbac.authorization.k8s.io" at the cluster scope"#,
        ),
        (
            message("post", Target::Path("/metrics")),
            r#"forbidden: User "alice" cannot post path "/metrics""#,
        ),
    ];
    for (said, expect) in table {
        assert_eq!(said, expect);
    }
}

#[tokio::test]
async fn built_in_groups_may_what_they_need() {
    let server = testing::server().await;
    let may = |user: &UserInfo, verb: &str, target| {
        server
            .state
            .authorizer
            .allows(&Attributes { user, verb, target })
    };
    let csr = ResourceTarget {
        group: "certificates.k8s.io",
        resource: "certificatesigningrequests",
        ..ResourceTarget::default()
    };
    let joining = UserInfo::new("system:bootstrap:abcdef", &["system:bootstrappers"]);
    assert!(may(&joining, "create", Target::Resource(csr)));
    assert!(!may(&joining, "get", resource("default", "pods", "p")));
    let nobody = UserInfo::anonymous();
    assert!(
        may(&nobody, "get", Target::Path("/version"))
            && may(&nobody, "get", Target::Path("/readyz"))
    );
    assert!(!may(&nobody, "get", Target::Path("/api")));
    let scheduler = UserInfo::new("system:kube-scheduler", &[]);
    let binding = ResourceTarget {
        resource: "pods",
        subresource: "binding",
        namespace: "default",
        ..Default::default()
    };
    assert!(may(&scheduler, "create", Target::Resource(binding)));
    assert!(!may(&scheduler, "get", resource("default", "secrets", "s")));
    assert!(may(
        &UserInfo::master("x"),
        "frobnicate",
        resource("", "anything", "")
    ));
}

#[tokio::test]
async fn nodes_reach_what_their_pods_refer_to() {
    use coracle_registry::store::{WriteOptions, delete::DeleteOptions};
    use serde_json::json;
    let server = testing::server().await;
    let pods = server.state.registry.core("pods").unwrap();
    let pod = |name: &str, node: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "nodeName": node, "serviceAccountName": "robot",
            "volumes": [{"name": "v", "secret": {"secretName": format!("of-{name}")}}],
            "containers": [{"name": "c", "image": "i"}],
        }})
    };
    let node = UserInfo::node("n1");
    let may = |verb: &str, target| {
        server.state.authorizer.allows(&Attributes {
            user: &node,
            verb,
            target,
        })
    };
    assert!(!may("get", resource("default", "secrets", "of-a")));
    let store = &server.state.store;
    for (name, on) in [("a", "n1"), ("b", "n2")] {
        let made = store.create(pods, "default", pod(name, on), WriteOptions::default());
        made.await.unwrap();
    }
    store.cache.catch_up().await.unwrap();
    assert!(may("get", resource("default", "secrets", "of-a")));
    assert!(may("watch", resource("default", "secrets", "of-a")));
    assert!(!may("list", resource("default", "secrets", "")));
    assert!(!may("get", resource("default", "secrets", "of-b")));
    assert!(!may("get", resource("kube-system", "secrets", "of-a")));
    let token = |name| ResourceTarget {
        resource: "serviceaccounts",
        subresource: "token",
        namespace: "default",
        name,
        ..ResourceTarget::default()
    };
    assert!(may("create", Target::Resource(token("robot"))));
    assert!(!may("create", Target::Resource(token("default"))));
    assert!(
        may("get", resource("default", "pods", "a"))
            && !may("get", resource("default", "pods", "b"))
    );
    let reason = server.state.authorizer.explain(&Attributes {
        user: &node,
        verb: "get",
        target: resource("default", "secrets", "of-b"),
    });
    let why = "no relationship found between node 'n1' and this object";
    assert_eq!(reason, Decision::NoOpinion(why.to_owned()));
    let now = DeleteOptions {
        grace_secs: Some(0),
        ..DeleteOptions::default()
    };
    store.delete(pods, "default", "a", &now).await.unwrap();
    store.cache.catch_up().await.unwrap();
    assert!(
        !may("get", resource("default", "secrets", "of-a")),
        "the pod is gone"
    );
}
