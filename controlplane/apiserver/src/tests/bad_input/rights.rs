//! Who may not is told so.

use super::*;

#[tokio::test]
async fn rights_are_needed() {
    let server = testing::server().await;
    let nobody = Raw::of(&server, UserInfo::anonymous());
    check(nobody.get(PODS).await, 401, "Unauthorized", "Unauthorized");
    assert_eq!(nobody.get("/version").await.0, 200);
    assert_eq!(nobody.get("/readyz").await.0, 200);
    check(nobody.get("/api").await, 401, "Unauthorized", "");
    let somebody = Raw::of(&server, UserInfo::new("u", &[]));
    let denied = "pods \"x\" is forbidden: User \"u\" cannot get resource \"pods\" in API group \"\" in the namespace \"default\"";
    check(
        somebody.get(&format!("{PODS}/x")).await,
        403,
        "Forbidden",
        denied,
    );
    assert_eq!(somebody.get("/api").await.0, 200);
}

#[tokio::test]
async fn nodes_reach_only_what_is_theirs() {
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::master("test"));
    let node = Raw::of(&server, UserInfo::node("n1"));
    let secret =
        |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    for name in ["used", "unused"] {
        let made = admin.post("/api/v1/namespaces/default/secrets", secret(name));
        assert_eq!(made.await.0, 201);
    }
    for (name, on) in [("mine", "n1"), ("other", "n2")] {
        let mut object = pod(name);
        object["spec"]["nodeName"] = on.into();
        object["spec"]["volumes"] = json!([{"name": "s", "secret": {"secretName": if on == "n1" { "used" } else { "unused" }}}]);
        assert_eq!(admin.post(PODS, object).await.0, 201);
    }
    server.state.store.cache.catch_up().await.unwrap();
    let secrets = "/api/v1/namespaces/default/secrets";
    let of_node = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1";
    assert_eq!(node.get(&format!("{secrets}/used")).await.0, 200);
    assert_eq!(node.get(of_node).await.0, 200);
    for (path, why) in [
        (
            format!("{secrets}/unused"),
            "no relationship found between node 'n1' and this object",
        ),
        (secrets.to_owned(), "No Object name found"),
        (
            PODS.to_owned(),
            "can only list/watch pods with spec.nodeName field selector",
        ),
    ] {
        check(node.get(&path).await, 403, "Forbidden", why);
    }
    let status = json!({"status": {"phase": "Running"}});
    let own = format!("{PODS}/mine/status");
    assert_eq!(node.merge(&own, status.clone()).await.0, 200);
    let other = node.merge(&format!("{PODS}/other/status"), status).await;
    check(other, 403, "Forbidden", "");
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(node.post(leases, lease("n1")).await.0, 201);
    let why = "same name as the requesting node";
    check(node.post(leases, lease("n2")).await, 403, "Forbidden", why);
    let of_node =
        |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let nodes = "/api/v1/nodes";
    assert_eq!(node.post(nodes, of_node("n1")).await.0, 201);
    let why = "is not allowed to modify node";
    check(node.post(nodes, of_node("n2")).await, 403, "Forbidden", why);
}

#[tokio::test]
async fn everybody_may_ask_about_themselves() {
    let server = testing::server().await;
    let ask = |verb: &str| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}}})
    };
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (user, allowed) in [
        (UserInfo::master("test"), true),
        (UserInfo::new("u", &[]), false),
    ] {
        let (code, answer) = Raw::of(&server, user).post(path, ask("list")).await;
        assert_eq!(
            (code, &answer["status"]["allowed"]),
            (201, &json!(allowed)),
            "{answer}"
        );
    }
    for (accept, expect) in [(TABLE, 406), (&format!("{TABLE},application/json"), 201)] {
        let body = ask("list").to_string().into_bytes();
        let request = http::Request::post(path)
            .header("accept", accept)
            .body(body.into())
            .unwrap();
        let response = testing::client().await.send(request).await.unwrap();
        assert_eq!(
            response.status().as_u16(),
            expect,
            "no review is a table: {accept}"
        );
    }
    let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let raw = Raw::of(&server, UserInfo::new("u", &[]));
    let (code, answer) = raw
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", who)
        .await;
    assert_eq!(
        (code, &answer["status"]["userInfo"]["username"]),
        (201, &json!("u")),
        "{answer}"
    );
}
