//! Pods and what makes them.

use super::*;

fn refused(name: &str, level: &str, details: &str) -> String {
    format!("pods \"{name}\" is forbidden: violates PodSecurity \"{level}\": {details}")
}

fn would(level: &str, details: &str) -> String {
    format!("would violate PodSecurity \"{level}\": {details}")
}

#[tokio::test]
async fn pods_are_held_to_the_level_of_their_namespace() {
    let raw = admin().await;
    namespace(&raw, "n", json!({ENFORCE: "restricted"})).await;
    let pods = pods("n");
    let answer = write(&raw, "POST", &pods, &privileged("p")).await;
    let message = refused("p", "restricted:latest", OF_RESTRICTED);
    assert_eq!((answer.code, answer.message()), (403, message.as_str()));
    assert_eq!(answer.body["reason"], "Forbidden");
    assert_eq!(answer.body["details"], json!({"name": "p", "kind": "pods"}));
    // Nobody is warned of what he is refused for.
    assert_eq!(answer.warnings, [""; 0]);
    let answer = write(&raw, "POST", &pods, &good("p")).await;
    assert_eq!(
        (answer.code, answer.warnings),
        (201, vec![]),
        "{}",
        answer.body
    );
    // As controllers name them.
    let mut generated = privileged("");
    generated["metadata"] = json!({"generateName": "web-"});
    let answer = write(&raw, "POST", &pods, &generated).await;
    let message = answer.message();
    assert!(
        message.starts_with("pods \"web-") && message.contains("violates PodSecurity"),
        "{message}"
    );
    let answer = write(
        &raw,
        "PATCH",
        &format!("{pods}/q?fieldManager=m"),
        &privileged("q"),
    )
    .await;
    assert_eq!(
        (answer.code, answer.message()),
        (403, &*refused("q", "restricted:latest", OF_RESTRICTED))
    );
}

#[tokio::test]
async fn labels_count_from_the_next_pod_on() {
    let raw = admin().await;
    namespace(&raw, "n", json!({})).await;
    let (pods, path) = (pods("n"), format!("{NAMESPACES}/n"));
    for (level, version, expect) in [
        (json!("baseline"), Value::Null, Err("baseline:latest")),
        (json!("baseline"), json!("v1.30"), Err("baseline:v1.30")),
        (json!("privileged"), json!("v1.30"), Ok(())),
        (json!("baseline"), json!("v1.99"), Err("baseline:v1.99")),
        (Value::Null, json!("latest"), Ok(())),
    ] {
        let labels = json!({"metadata": {"labels": {ENFORCE: level, format!("{ENFORCE}-version"): version}}});
        assert_eq!(raw.merge(&path, labels).await.0, 200);
        let answer = write(
            &raw,
            "POST",
            &format!("{pods}?dryRun=All"),
            &privileged("p"),
        )
        .await;
        match expect {
            Ok(()) => assert_eq!(answer.code, 201, "{}", answer.body),
            Err(level) => assert_eq!(answer.message(), refused("p", level, OF_BASELINE)),
        }
    }
}

#[tokio::test]
async fn a_pod_that_is_there_may_change_but_for_its_containers() {
    let raw = admin().await;
    namespace(&raw, "n", json!({})).await;
    let container = |image: &str, cpu: &str| {
        let context = json!({"privileged": true});
        json!([{"name": "c", "image": image, "securityContext": context, "resources": {"requests": {"cpu": cpu}}}])
    };
    let mut made = privileged("p");
    made["spec"] =
        json!({"containers": container("i:1", "1"), "automountServiceAccountToken": false});
    assert_eq!(raw.post(&pods("n"), made).await.0, 201);
    let label = json!({"metadata": {"labels": {ENFORCE: "baseline"}}});
    assert_eq!(raw.merge(&format!("{NAMESPACES}/n"), label).await.0, 200);
    let pod = format!("{}/p", pods("n"));
    let message = refused("p", "baseline:latest", OF_BASELINE);
    let bound = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n1"}});
    let debugging = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "d:1"}]}});
    let resized = json!({"spec": {"containers": container("i:1", "2")}});
    let other_image = json!({"spec": {"containers": container("i:2", "1")}});
    for (method, below, body, is_let_in) in [
        (
            "PATCH",
            "",
            json!({"metadata": {"labels": {"a": "b"}}}),
            true,
        ),
        (
            "PATCH",
            "",
            json!({"spec": {"activeDeadlineSeconds": 60}}),
            true,
        ),
        ("PATCH", "", other_image, false),
        ("PATCH", "/ephemeralcontainers", debugging, false),
        ("PATCH", "/resize", resized, true),
        (
            "PATCH",
            "/status",
            json!({"status": {"phase": "Running"}}),
            true,
        ),
        ("POST", "/binding", bound, true),
    ] {
        let answer = write(&raw, method, &format!("{pod}{below}"), &body).await;
        if is_let_in {
            assert!(answer.code < 300, "{below} {body}: {}", answer.body);
        } else {
            assert_eq!(
                (answer.code, answer.message()),
                (403, &*message),
                "{below} {body}"
            );
        }
        assert_eq!(answer.warnings, [""; 0], "{below} {body}");
    }
}

#[tokio::test]
async fn a_container_for_debugging_is_held_to_it_too() {
    let raw = admin().await;
    namespace(&raw, "n", json!({ENFORCE: "restricted"})).await;
    assert_eq!(raw.post(&pods("n"), good("p")).await.0, 201);
    let path = format!("{}/p/ephemeralcontainers", pods("n"));
    let debugging = |context: Value| json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "d:1", "securityContext": context}]}});
    let bad = json!({"capabilities": {"add": ["SYS_PTRACE"], "drop": ["ALL"]}});
    let answer = write(&raw, "PATCH", &path, &debugging(bad)).await;
    let details = "allowPrivilegeEscalation != false (container \"d\" must set securityContext.allowPrivilegeEscalation=false), \
        unrestricted capabilities (container \"d\" must not include \"SYS_PTRACE\" in securityContext.capabilities.add)";
    assert_eq!(answer.message(), refused("p", "restricted:latest", details));
    let good = json!({"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false});
    let answer = write(&raw, "PATCH", &path, &debugging(good)).await;
    assert_eq!(
        (answer.code, answer.warnings),
        (200, vec![]),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn who_makes_what_makes_pods_is_warned() {
    let raw = admin().await;
    namespace(&raw, "n", json!({ENFORCE: "baseline"})).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": privileged("")["spec"]});
    let selector = json!({"matchLabels": {"a": "b"}});
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let core = || "/api/v1".to_owned();
    let (apps, batch) = ("apps/v1", "batch/v1");
    let group = |group: &str| format!("/apis/{group}");
    let run = json!({"template": once});
    for (root, version, plural, kind, spec) in [
        (
            core(),
            "v1",
            "replicationcontrollers",
            "ReplicationController",
            json!({"selector": {"a": "b"}, "template": template}),
        ),
        (
            group(apps),
            apps,
            "deployments",
            "Deployment",
            json!({"selector": selector, "template": template}),
        ),
        (
            group(apps),
            apps,
            "replicasets",
            "ReplicaSet",
            json!({"selector": selector, "template": template}),
        ),
        (
            group(apps),
            apps,
            "statefulsets",
            "StatefulSet",
            json!({"selector": selector, "template": template, "serviceName": "s"}),
        ),
        (
            group(apps),
            apps,
            "daemonsets",
            "DaemonSet",
            json!({"selector": selector, "template": template}),
        ),
        (group(batch), batch, "jobs", "Job", run.clone()),
        (
            group(batch),
            batch,
            "cronjobs",
            "CronJob",
            json!({"schedule": "1 1 1 1 1", "jobTemplate": {"spec": run}}),
        ),
        (core(), "v1", "podtemplates", "PodTemplate", Value::Null),
    ] {
        let path = format!("{root}/namespaces/n/{plural}");
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}});
        if spec.is_null() {
            object["template"] = template.clone();
        } else {
            object["spec"] = spec;
        }
        let expect = [would("baseline:latest", OF_BASELINE)];
        let answer = write(&raw, "POST", &path, &object).await;
        assert_eq!(
            (answer.code, &*answer.warnings),
            (201, &expect[..]),
            "{plural}: {}",
            answer.body
        );
        let change = json!({"metadata": {"annotations": {"a": "b"}}});
        let answer = write(&raw, "PATCH", &format!("{path}/x"), &change).await;
        assert_eq!(
            (answer.code, &*answer.warnings),
            (200, &expect[..]),
            "{plural}: {}",
            answer.body
        );
    }
    let status = json!({"status": {"replicas": 0}});
    let answer = write(
        &raw,
        "PATCH",
        "/apis/apps/v1/namespaces/n/deployments/x/status",
        &status,
    )
    .await;
    assert_eq!(
        (answer.code, answer.warnings),
        (200, vec![]),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn each_mode_has_its_own_level() {
    let raw = admin().await;
    let labels = json!({ENFORCE: "privileged", "pod-security.kubernetes.io/warn": "baseline",
        "pod-security.kubernetes.io/warn-version": "v1.20", "pod-security.kubernetes.io/audit": "restricted"});
    assert_eq!(namespace(&raw, "n", labels).await.warnings, [""; 0]);
    let answer = write(&raw, "POST", &pods("n"), &privileged("p")).await;
    let expect = [would("baseline:v1.20", OF_BASELINE)];
    assert_eq!((answer.code, &*answer.warnings), (201, &expect[..]));
    let answer = write(&raw, "POST", &pods("n"), &good("q")).await;
    assert_eq!((answer.code, answer.warnings), (201, vec![]));
}
