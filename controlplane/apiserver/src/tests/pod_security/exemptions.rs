//! What the configuration says: defaults, and who is not looked at.

use super::*;

const EXEMPT: &str =
    "exemptions: {usernames: [trusted], namespaces: [free], runtimeClasses: [kata]}";

#[tokio::test]
async fn namespaces_that_say_nothing_are_held_to_the_default() {
    let server =
        told("defaults: {enforce: baseline, enforce-version: v1.30, warn: restricted}").await;
    let raw = of(&server, "admin");
    namespace(&raw, "n", json!({})).await;
    let answer = write(&raw, "POST", &pods("n"), &privileged("p")).await;
    let expect = format!("violates PodSecurity \"baseline:v1.30\": {OF_BASELINE}");
    assert!(answer.message().ends_with(&expect), "{}", answer.message());
    let mut plain = good("q");
    plain["spec"]["securityContext"] = json!({});
    let answer = write(&raw, "POST", &pods("n"), &plain).await;
    let expect = "would violate PodSecurity \"restricted:latest\": runAsNonRoot != true (";
    assert!(
        answer.code == 201 && answer.warnings[0].starts_with(expect),
        "{:?}",
        answer.warnings
    );
    namespace(&raw, "own", json!({ENFORCE: "privileged"})).await;
    let answer = write(&raw, "POST", &pods("own"), &privileged("p")).await;
    assert!(
        answer.code == 201 && answer.warnings.len() == 1,
        "{:?}",
        answer.warnings
    );
}

#[tokio::test]
async fn who_is_exempt_is_not_looked_at() {
    let server = told(EXEMPT).await;
    let (raw, trusted) = (of(&server, "admin"), of(&server, "trusted"));
    for name in ["free", "n"] {
        namespace(&raw, name, json!({ENFORCE: "restricted"})).await;
    }
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "runc"});
    assert_eq!(
        raw.post("/apis/node.k8s.io/v1/runtimeclasses", class)
            .await
            .0,
        201
    );
    let mut kata = privileged("kata");
    kata["spec"]["runtimeClassName"] = json!("kata");
    for (raw, namespace, pod, code) in [
        (&raw, "free", privileged("a"), 201),
        (&trusted, "n", privileged("b"), 201),
        (&raw, "n", kata, 201),
        (&raw, "n", privileged("c"), 403),
    ] {
        let answer = write(raw, "POST", &pods(namespace), &pod).await;
        assert_eq!(answer.code, code, "{}", answer.body);
        assert_eq!(answer.warnings, [""; 0]);
    }
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": privileged("")["spec"]}}});
    for (raw, namespace, warnings) in [(&raw, "free", 0), (&trusted, "n", 0), (&raw, "n", 1)] {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments?dryRun=All");
        let answer = write(raw, "POST", &path, &deployment).await;
        assert_eq!(
            (answer.code, answer.warnings.len()),
            (201, warnings),
            "{namespace}: {:?}",
            answer.warnings
        );
    }
    // Nor is a pod that is there, when more is asked.
    let labels = |level: &str| json!({"metadata": {"labels": {ENFORCE: level}}});
    let path = format!("{NAMESPACES}/n");
    assert_eq!(raw.merge(&path, labels("privileged")).await.0, 200);
    let answer = write(&raw, "PATCH", &path, &labels("baseline")).await;
    assert_eq!(answer.warnings.last().unwrap(), "b: privileged");
}

#[tokio::test]
async fn who_labels_an_exempt_namespace_is_told_that_nobody_goes_by_it() {
    let server = told(EXEMPT).await;
    let raw = of(&server, "admin");
    let ignored = |policy: &str| {
        format!(
            "namespace \"free\" is exempt from Pod Security, and the policy ({policy}) will be ignored"
        )
    };
    let labels = json!({ENFORCE: "restricted", "pod-security.kubernetes.io/audit": "baseline", "pod-security.kubernetes.io/warn": "privileged"});
    let answer = namespace(&raw, "free", labels).await;
    assert_eq!(
        answer.warnings,
        [ignored("enforce=restricted:latest, audit=baseline:latest")]
    );
    let path = format!("{NAMESPACES}/free");
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let answer = write(&raw, "PATCH", &path, &labels(json!({ENFORCE: "baseline"}))).await;
    assert_eq!(answer.warnings, [""; 0]);
    let answer = write(
        &raw,
        "PATCH",
        &path,
        &labels(json!({ENFORCE: "restricted", format!("{ENFORCE}-version"): "v1.30"})),
    )
    .await;
    assert_eq!(
        answer.warnings,
        [ignored("enforce=restricted:v1.30, audit=baseline:latest")]
    );
}
