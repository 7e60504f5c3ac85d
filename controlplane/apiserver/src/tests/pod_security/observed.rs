//! What is counted, and what is kept for an audit.

use coracle_admission::{Operation, Request, Told};
use coracle_registry::store::WriteOptions;

use super::*;

#[tokio::test]
async fn what_comes_of_pods_is_counted_under_upstreams_names() {
    let server = told("exemptions: {namespaces: [free]}").await;
    let raw = of(&server, "admin");
    namespace(&raw, "plain", json!({})).await;
    namespace(&raw, "free", json!({})).await;
    let labels = json!({ENFORCE: "baseline", format!("{ENFORCE}-version"): "v1.30",
        "pod-security.kubernetes.io/audit": "restricted", "pod-security.kubernetes.io/warn": "restricted",
        "pod-security.kubernetes.io/warn-version": "v1.99"});
    namespace(&raw, "n", labels).await;
    let mut plain = good("q");
    plain["spec"]["securityContext"] = json!({});
    for (namespace, pod) in [
        ("plain", privileged("p")),
        ("free", privileged("p")),
        ("n", privileged("p")),
        ("n", plain),
        ("n", good("g")),
    ] {
        write(&raw, "POST", &pods(namespace), &pod).await;
    }
    let image = json!({"spec": {"containers": [{"name": "c", "image": "i:2"}]}});
    let strategic = "application/strategic-merge-patch+json";
    let path = format!("{}/g", pods("n"));
    assert_eq!(
        raw.send("PATCH", &path, strategic, image.to_string())
            .await
            .0,
        200
    );
    let text = server.metrics().text();
    let of_pods = |decision: &str, mode: &str, level: &str, version: &str, operation: &str| {
        format!(
            "pod_security_evaluations_total{{decision=\"{decision}\",mode=\"{mode}\",policy_level=\"{level}\",policy_version=\"{version}\",\
            request_operation=\"{operation}\",resource=\"pod\",subresource=\"\"}}"
        )
    };
    for (counted, count) in [
        (of_pods("allow", "enforce", "privileged", "latest", "create"), 1),
        (of_pods("deny", "enforce", "baseline", "v1.30", "create"), 1),
        (of_pods("allow", "enforce", "baseline", "v1.30", "create"), 2),
        (of_pods("allow", "enforce", "baseline", "v1.30", "update"), 1),
        // The one that was refused is put on record, and its writer not warned.
        (of_pods("deny", "audit", "restricted", "latest", "create"), 2),
        (of_pods("deny", "warn", "restricted", "future", "create"), 1),
        ("pod_security_exemptions_total{request_operation=\"create\",resource=\"pod\",subresource=\"\"}".to_owned(), 1),
    ] {
        let line = format!("{counted} {count}");
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with("pod_security")).collect();
        assert!(found.contains(&&*line), "no {line} in {found:#?}");
    }
}

#[tokio::test]
async fn what_an_audit_is_to_know_comes_with_the_write() {
    let server = testing::server().await;
    let raw = of(&server, "admin");
    let labels = json!({"pod-security.kubernetes.io/audit": "baseline"});
    namespace(&raw, "n", labels).await;
    let resource = server.state.registry.core("pods").unwrap();
    let user = UserInfo::new("admin", &[GROUP_MASTERS]);
    let request = Request {
        user: &user,
        operation: Operation::Create,
        resource: &resource.info,
        subresource: "",
        namespace: "n",
        name: "p",
        options: WriteOptions::default(),
        told: Told::default(),
    };
    let mut pod = privileged("p");
    let seen = server
        .state
        .validated(request.about(&mut pod, None))
        .await
        .unwrap();
    let kept: Vec<(&str, &str)> = seen
        .audit
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect();
    let would = format!("would violate PodSecurity \"baseline:latest\": {OF_BASELINE}");
    let expect = [
        ("pod-security.kubernetes.io/audit-violations", &*would),
        (
            "pod-security.kubernetes.io/enforce-policy",
            "privileged:latest",
        ),
    ];
    assert_eq!(kept, expect);
}
