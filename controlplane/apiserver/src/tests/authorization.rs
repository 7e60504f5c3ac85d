//! Roles, impersonation, reviews and certificates, as users with few rights meet them.

use std::sync::Arc;

use coracle_auth::user::UserInfo;
use http::Request;
use serde_json::{Value, json};

use super::raw::{PODS, Raw, pod};
use crate::{ApiServer, testing};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ACCESS: &str = "/apis/authorization.k8s.io/v1";
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

struct World {
    server: Arc<ApiServer>,
    admin: Raw,
}

impl World {
    async fn new() -> Self {
        let server = testing::server().await;
        let admin = Raw::of(&server, UserInfo::component("admin"));
        Self { server, admin }
    }

    fn user(&self, name: &str) -> Raw {
        Raw::of(&self.server, UserInfo::new(name, &[]))
    }

    async fn grant(&self, user: &str, rules: Value) {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("of-{user}")}, "rules": rules});
        let (code, answer) = self.admin.post(&format!("{RBAC}/clusterroles"), role).await;
        assert_eq!(code, 201, "{answer}");
        let (code, answer) = self
            .admin
            .post(
                &format!("{RBAC}/clusterrolebindings"),
                binding(user, &format!("of-{user}")),
            )
            .await;
        assert_eq!(code, 201, "{answer}");
    }
}

fn binding(user: &str, role: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{user}-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
}

fn role(rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": rules})
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_hold() {
    let world = World::new().await;
    // Not `*`: the verbs of granting are left out.
    let rbac = json!({"verbs": ["get", "create", "update", "patch"], "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings", "clusterrolebindings", "clusterroles"]});
    let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    world.grant("alice", json!([rbac, pods])).await;
    let alice = world.user("alice");
    let roles = format!("{RBAC}/namespaces/default/roles");
    let (code, answer) = alice.post(&roles, role(json!([pods]))).await;
    assert_eq!(code, 201, "{answer}");
    let more = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]);
    let (code, answer) = alice.put(&format!("{roles}/r"), role(more)).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            403,
            "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"alice\" (groups=[\"system:authenticated\"]) is \
             attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], \
             Verbs:[\"list\"]}"
        )
    );
    let bindings = format!("{RBAC}/clusterrolebindings");
    assert_eq!(alice.post(&bindings, binding("bob", "view")).await.0, 403);
    assert_eq!(
        alice.post(&bindings, binding("bob", "of-alice")).await.0,
        201
    );
    assert_eq!(
        alice.post(&bindings, binding("bob", "nowhere")).await.0,
        404
    );
    let (code, answer) = alice
        .merge(
            &format!("{bindings}/bob-of-alice"),
            json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await;
    assert_eq!(code, 200, "{answer}");
    // Who may bind a role gives it without holding it.
    let bind = json!({"verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
        "resourceNames": ["view"]});
    world.grant("carol", json!([bind, rbac])).await;
    assert_eq!(
        world
            .user("carol")
            .post(&bindings, binding("dave", "view"))
            .await
            .0,
        201
    );
    assert_eq!(
        world
            .user("carol")
            .post(&bindings, binding("dave", "edit"))
            .await
            .0,
        403
    );
    let aggregated = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "x"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let (code, answer) = alice
        .post(&format!("{RBAC}/clusterroles"), aggregated)
        .await;
    assert_eq!(code, 403);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .ends_with("must have cluster-admin privileges to use the aggregationRule")
    );
}

#[tokio::test]
async fn impersonation_needs_the_right_to_it() {
    let world = World::new().await;
    world
        .admin
        .post(
            &format!("{RBAC}/clusterrolebindings"),
            binding("bob", "view"),
        )
        .await;
    let list = async |raw: &Raw, headers: &[(&str, &str)]| {
        let mut request = Request::get(PODS);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = raw
            .0
            .send(request.body(kube::client::Body::empty()).unwrap())
            .await
            .unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect_bytes().await.unwrap();
        (code, serde_json::from_slice::<Value>(&body).unwrap())
    };
    assert_eq!(
        list(&world.admin, &[("Impersonate-User", "bob")]).await.0,
        200
    );
    let (code, answer) = list(
        &world.admin,
        &[("Impersonate-User", "carol"), ("Impersonate-Group", "dev")],
    )
    .await;
    assert_eq!(code, 403);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("User \"carol\" cannot list"),
        "{answer}"
    );
    let (code, answer) = list(&world.user("alice"), &[("Impersonate-User", "bob")]).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            403,
            "users \"bob\" is forbidden: User \"alice\" cannot impersonate resource \"users\" in API group \"\" at the \
             cluster scope"
        )
    );
    assert_eq!(
        list(&world.admin, &[("Impersonate-Group", "dev")]).await.0,
        500
    );
    let masters = [
        ("Impersonate-User", "bob"),
        ("Impersonate-Group", "system:masters"),
    ];
    let bob = json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]}]);
    world.grant("erin", bob).await;
    assert_eq!(
        list(&world.user("erin"), &[("Impersonate-User", "bob")])
            .await
            .0,
        200
    );
    assert_eq!(list(&world.user("erin"), &masters).await.0, 403);
}

#[tokio::test]
async fn reviews_answer_for_oneself_and_for_others() {
    let world = World::new().await;
    world
        .admin
        .post(
            &format!("{RBAC}/clusterrolebindings"),
            binding("bob", "view"),
        )
        .await;
    let bob = world.user("bob");
    let review = |kind: &str, spec: Value| json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    let get = |resource: &str| json!({"resourceAttributes": {"verb": "get", "resource": resource, "namespace": "default"}});
    let own = format!("{ACCESS}/selfsubjectaccessreviews");
    let (code, answer) = bob
        .post(&own, review("SelfSubjectAccessReview", get("pods")))
        .await;
    assert_eq!(
        (code, &answer["status"]["allowed"]),
        (201, &json!(true)),
        "{answer}"
    );
    let (_, answer) = bob
        .post(&own, review("SelfSubjectAccessReview", get("secrets")))
        .await;
    assert_eq!(answer["status"], json!({"allowed": false}));
    assert_eq!(
        bob.post(&own, review("SelfSubjectAccessReview", json!({})))
            .await
            .0,
        422
    );

    let mut of_bob = get("pods");
    of_bob["user"] = "bob".into();
    let others = format!("{ACCESS}/subjectaccessreviews");
    let (_, answer) = world
        .admin
        .post(&others, review("SubjectAccessReview", of_bob.clone()))
        .await;
    assert_eq!(
        answer["status"]["reason"],
        "RBAC: allowed by ClusterRoleBinding \"bob-view\" of ClusterRole \"view\" to User \"bob\""
    );
    assert_eq!(
        bob.post(&others, review("SubjectAccessReview", of_bob.clone()))
            .await
            .0,
        403
    );
    let local =
        |namespace: &str| format!("{ACCESS}/namespaces/{namespace}/localsubjectaccessreviews");
    let (code, answer) = world
        .admin
        .post(
            &local("default"),
            review("LocalSubjectAccessReview", of_bob.clone()),
        )
        .await;
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(true)));
    assert_eq!(
        world
            .admin
            .post(&local("other"), review("LocalSubjectAccessReview", of_bob))
            .await
            .0,
        400
    );

    let rules = format!("{ACCESS}/selfsubjectrulesreviews");
    let (_, answer) = bob
        .post(
            &rules,
            review("SelfSubjectRulesReview", json!({"namespace": "default"})),
        )
        .await;
    let resources = answer["status"]["resourceRules"].to_string();
    assert!(
        resources.contains("pods/log") && !resources.contains("secrets"),
        "{answer}"
    );
    assert!(
        answer["status"]["nonResourceRules"]
            .to_string()
            .contains("/openapi")
    );

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
async fn certificates_are_approved_and_signed_by_who_may() {
    let world = World::new().await;
    let request = |name: &str, signer: &str, group: &str| {
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {"request": testing::certificate_request("bob", group), "signerName": signer,
                "usages": ["client auth"]}})
    };
    let write = json!({"verbs": ["create", "get", "update"], "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"]});
    let example = json!({"verbs": ["approve", "sign"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
        "resourceNames": ["example.org/*"]});
    world.grant("alice", json!([write, example])).await;
    let alice = world.user("alice");
    let (code, made) = alice.post(CSRS, request("a", "example.org/x", "dev")).await;
    assert_eq!(
        (code, &made["spec"]["username"]),
        (201, &json!("alice")),
        "{made}"
    );
    let approved = |mut csr: Value| {
        csr["status"]["conditions"] =
            json!([{"type": "Approved", "status": "True", "reason": "Because"}]);
        csr
    };
    let (code, answer) = alice
        .put(&format!("{CSRS}/a/approval"), approved(made))
        .await;
    assert_eq!(
        (code, &answer["status"]["conditions"][0]["type"]),
        (200, &json!("Approved")),
        "{answer}"
    );
    let (_, made) = alice
        .post(
            CSRS,
            request("b", "kubernetes.io/kube-apiserver-client", "dev"),
        )
        .await;
    let (code, answer) = alice
        .put(&format!("{CSRS}/b/approval"), approved(made))
        .await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            403,
            "certificatesigningrequests.certificates.k8s.io \"b\" is forbidden: user not permitted to approve requests \
             with signerName \"kubernetes.io/kube-apiserver-client\""
        )
    );
    let masters = request("c", "kubernetes.io/kube-apiserver-client", "system:masters");
    let (code, answer) = world.admin.post(CSRS, masters).await;
    assert_eq!(code, 403, "{answer}");
    let unreadable = rcgen::DnValue::BmpString("system:masters".try_into().unwrap());
    let mut object = request("d", "kubernetes.io/kube-apiserver-client", "dev");
    object["spec"]["request"] = testing::certificate_request("bob", unreadable).into();
    let (code, answer) = world.admin.post(CSRS, object.clone()).await;
    assert_eq!(code, 403, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("failed to parse CSR"),
        "{answer}"
    );
    object["spec"]["signerName"] = "example.org/x".into();
    assert_eq!(
        world.admin.post(CSRS, object).await.0,
        201,
        "other signers read what they like"
    );
}

#[tokio::test]
async fn a_signer_alone_answers_pods_and_vouches_for_itself() {
    let world = World::new().await;
    let kinds = "/apis/certificates.k8s.io/v1";
    let write = json!({"verbs": ["create", "get", "update", "patch"], "apiGroups": ["certificates.k8s.io"],
        "resources": ["podcertificaterequests/status", "clustertrustbundles"]});
    let example = json!({"verbs": ["sign", "attest"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
        "resourceNames": ["example.org/x"]});
    world.grant("alice", json!([write.clone(), example])).await;
    world.grant("carol", json!([write])).await;
    let (alice, carol) = (world.user("alice"), world.user("carol"));

    let requests = format!("{kinds}/namespaces/default/podcertificaterequests");
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
        "metadata": {"name": "r"}, "spec": {"signerName": "example.org/x", "podName": "p", "podUID": "1",
            "serviceAccountName": "s", "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3",
            "stubPKCS10Request": "AAAA"}});
    let (code, answer) = world.admin.post(&requests, request).await;
    assert_eq!(code, 201, "{answer}");
    let path = format!("{requests}/r/status");
    let failed = json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "No",
        "message": "no", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let (code, answer) = carol.merge(&path, failed.clone()).await;
    let why = "PodCertificateRequest.certificates.k8s.io \"r\" is invalid: spec.signerName: Forbidden: User \"carol\" is not \
        permitted to \"sign\" for signer \"example.org/x\"";
    assert_eq!((code, &answer["message"]), (422, &json!(why)));
    assert_eq!(
        carol
            .merge(&path, json!({"metadata": {"labels": {"a": "b"}}}))
            .await
            .0,
        200
    );
    let (code, answer) = alice.merge(&path, failed).await;
    assert_eq!(code, 200, "{answer}");

    let bundles = format!("{kinds}/clustertrustbundles");
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let mut bundle = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "plain"}, "spec": {"trustBundle": pem}});
    assert_eq!(carol.post(&bundles, bundle.clone()).await.0, 201);
    bundle["metadata"]["name"] = "example.org:x:a".into();
    bundle["spec"]["signerName"] = "example.org/x".into();
    let (code, answer) = carol.post(&bundles, bundle.clone()).await;
    let why = "clustertrustbundles.certificates.k8s.io \"example.org:x:a\" is forbidden: user not permitted to attest for \
        signerName \"example.org/x\"";
    assert_eq!((code, &answer["message"]), (403, &json!(why)));
    let (code, answer) = alice.post(&bundles, bundle).await;
    assert_eq!(code, 201, "{answer}");
    let change = |metadata: Value| json!({"metadata": metadata});
    let path = format!("{bundles}/example.org:x:a");
    assert_eq!(
        carol
            .merge(&path, change(json!({"labels": {"a": "b"}})))
            .await
            .0,
        403
    );
    assert_eq!(
        carol
            .merge(&path, change(json!({"finalizers": ["example.org/f"]})))
            .await
            .0,
        200
    );
    assert_eq!(
        alice
            .merge(&path, change(json!({"labels": {"a": "b"}})))
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn nodes_write_their_own_objects_alone() {
    let world = World::new().await;
    let node = Raw::of(&world.server, UserInfo::node("n1"));
    let make = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    assert_eq!(node.post("/api/v1/nodes", make("n1")).await.0, 201);
    assert_eq!(node.post("/api/v1/nodes", make("n2")).await.0, 403);
    world.admin.post("/api/v1/nodes", make("n2")).await;
    let status = json!({"status": {"conditions": []}});
    assert_eq!(
        node.merge("/api/v1/nodes/n1/status", status.clone())
            .await
            .0,
        200
    );
    let (code, answer) = node.merge("/api/v1/nodes/n2/status", status).await;
    assert_eq!(code, 403);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("node \"n1\" is not allowed to modify node \"n2\""),
        "{answer}"
    );
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(node.post(leases, lease("n1")).await.0, 201);
    assert_eq!(node.post(leases, lease("n2")).await.0, 403);
    for (name, on) in [("mine", "n1"), ("other", "n2")] {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = on.into();
        assert_eq!(world.admin.post(PODS, pod).await.0, 201);
    }
    let phase = json!({"status": {"phase": "Running"}});
    assert_eq!(
        node.merge(&format!("{PODS}/mine/status"), phase.clone())
            .await
            .0,
        200
    );
    assert_eq!(
        node.merge(&format!("{PODS}/other/status"), phase).await.0,
        403
    );
    let now = json!({"gracePeriodSeconds": 0});
    assert_eq!(
        node.delete(&format!("{PODS}/mine"), now.clone()).await.0,
        200
    );
    assert_eq!(node.delete(&format!("{PODS}/other"), now).await.0, 403);
}
