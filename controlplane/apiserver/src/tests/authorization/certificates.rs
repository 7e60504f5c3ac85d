//! Requests for certificates and bundles of them: who may approve, sign and vouch.

use super::*;

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request(name: &str, signer: &str, group: &str) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": testing::certificate_request("bob", group), "signerName": signer,
            "usages": ["client auth"]}})
}

#[tokio::test]
async fn certificates_are_approved_and_signed_by_who_may() {
    let world = World::new().await;
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
}

#[tokio::test]
async fn nobody_asks_for_a_certificate_of_masters() {
    let world = World::new().await;
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

const KINDS: &str = "/apis/certificates.k8s.io/v1";

/// Alice, who is a signer, and Carol, who writes the same objects and is none.
async fn signer() -> (World, Raw, Raw) {
    let world = World::new().await;
    let write = json!({"verbs": ["create", "get", "update", "patch"], "apiGroups": ["certificates.k8s.io"],
        "resources": ["podcertificaterequests/status", "clustertrustbundles"]});
    let example = json!({"verbs": ["sign", "attest"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
        "resourceNames": ["example.org/x"]});
    world.grant("alice", json!([write.clone(), example])).await;
    world.grant("carol", json!([write])).await;
    let (alice, carol) = (world.user("alice"), world.user("carol"));
    (world, alice, carol)
}

#[tokio::test]
async fn a_signer_alone_answers_pods() {
    let (world, alice, carol) = signer().await;
    let requests = format!("{KINDS}/namespaces/default/podcertificaterequests");
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
}

#[tokio::test]
async fn a_signer_alone_vouches_for_itself() {
    let (_world, alice, carol) = signer().await;
    let bundles = format!("{KINDS}/clustertrustbundles");
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
