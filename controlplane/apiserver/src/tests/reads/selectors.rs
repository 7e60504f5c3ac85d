//! What selectors choose, also for deletecollection.

use super::*;

#[tokio::test]
async fn label_selectors_know_sets() {
    let raw = admin().await;
    for (name, labels) in [
        ("a", json!({"tier": "web", "v": "1"})),
        ("b", json!({"tier": "db"})),
        ("c", json!({})),
    ] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = labels;
        assert_eq!(raw.post(CONFIG_MAPS, object).await.0, 201);
    }
    for (selector, expect) in [
        ("tier+in+(web,db)", vec!["a", "b"]),
        ("tier+notin+(web)", vec!["b", "c"]),
        ("tier", vec!["a", "b"]),
        ("!tier", vec!["c"]),
        ("tier%3Dweb,v+in+(1,2)", vec!["a"]),
        ("tier!%3Dweb", vec!["b", "c"]),
        ("tier%3D%3Ddb", vec!["b"]),
        ("v%3E0", vec!["a"]),
        ("v%3C1", vec![]),
        ("", vec!["a", "b", "c"]),
    ] {
        let (code, list) = raw
            .get(&format!("{CONFIG_MAPS}?labelSelector={selector}"))
            .await;
        assert_eq!((code, names(&list)), (200, expect), "{selector}");
    }
}

/// A server with two objects of each of some kinds, which differ in a field.
async fn selectable() -> Raw {
    let raw = admin().await;
    let core = "/api/v1/namespaces/default";
    let mut bound = pod("bound");
    bound["spec"]["nodeName"] = json!("n1");
    bound["spec"]["restartPolicy"] = json!("Never");
    let event = |name: &str, reason: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"}, "type": "Normal",
            "reason": reason, "involvedObject": {"kind": "Pod", "name": name, "namespace": "default", "uid": "u"}})
    };
    let secret = |name: &str, kind: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "data": {}});
    let node = |name: &str, unschedulable: bool| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"unschedulable": unschedulable}});
    for (path, object) in [
        (PODS.to_owned(), pod("free")),
        (PODS.to_owned(), bound),
        (format!("{core}/events"), event("one", "Pulled")),
        (format!("{core}/events"), event("two", "Killed")),
        (format!("{core}/secrets"), secret("plain", "Opaque")),
        (format!("{core}/secrets"), secret("other", "example.com/x")),
        ("/api/v1/nodes".to_owned(), node("n1", false)),
        ("/api/v1/nodes".to_owned(), node("n2", true)),
    ] {
        let (code, answer) = raw.post(&path, object).await;
        assert_eq!(code, 201, "{path}: {answer}");
    }
    raw
}

#[tokio::test]
async fn fields_of_each_kind_select() {
    let raw = selectable().await;
    for (path, selector, expect) in [
        (PODS, "spec.nodeName=n1", vec!["bound"]),
        (PODS, "spec.nodeName=", vec!["free"]),
        (PODS, "spec.nodeName!=n1", vec!["free"]),
        (PODS, "status.phase=Pending", vec!["bound", "free"]),
        (PODS, "status.phase=Running", vec![]),
        (PODS, "spec.restartPolicy=Never", vec!["bound"]),
        (
            PODS,
            "spec.schedulerName=default-scheduler,metadata.name=free",
            vec!["free"],
        ),
        (
            PODS,
            "spec.serviceAccountName=default,spec.nodeName=n1",
            vec!["bound"],
        ),
        (PODS, "metadata.namespace=other", vec![]),
        (
            "/api/v1/pods",
            "metadata.namespace=default,metadata.name=free",
            vec!["free"],
        ),
        (
            "/api/v1/namespaces/default/events",
            "involvedObject.name=one",
            vec!["one"],
        ),
        (
            "/api/v1/namespaces/default/events",
            "reason=Killed,type=Normal",
            vec!["two"],
        ),
        (
            "/api/v1/namespaces/default/events",
            "involvedObject.kind=Pod,involvedObject.uid=u",
            vec!["one", "two"],
        ),
        (
            "/apis/events.k8s.io/v1/namespaces/default/events",
            "regarding.name=one",
            vec!["one"],
        ),
        (
            "/api/v1/namespaces/default/secrets",
            "type=example.com/x",
            vec!["other"],
        ),
        ("/api/v1/nodes", "spec.unschedulable=true", vec!["n2"]),
        ("/api/v1/nodes", "metadata.name=n1", vec!["n1"]),
        ("/api/v1/namespaces", "status.phase=Terminating", vec![]),
    ] {
        let encoded = selector.replace('=', "%3D").replace(',', "%2C");
        let (code, list) = raw.get(&format!("{path}?fieldSelector={encoded}")).await;
        assert_eq!((code, names(&list)), (200, expect), "{path} {selector}");
    }
}

#[tokio::test]
async fn fields_that_a_kind_does_not_name_are_refused() {
    let raw = admin().await;
    for (path, selector) in [(PODS, "spec.image=x"), ("/api/v1/nodes", "status.phase=x")] {
        let (code, status) = raw
            .get(&format!(
                "{path}?fieldSelector={}",
                selector.replace('=', "%3D")
            ))
            .await;
        assert_eq!(
            (code, &status["message"]),
            (
                400,
                &json!(format!(
                    "field label not supported: {}",
                    selector.trim_end_matches("=x")
                ))
            )
        );
    }
}

#[tokio::test]
async fn deletecollection_deletes_what_a_list_would_show() {
    let raw = admin().await;
    for name in ["a", "b", "c", "d"] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"keep": (name > "b").to_string()});
        raw.post(CONFIG_MAPS, object).await;
    }
    let (code, gone) = raw
        .delete(
            &format!("{CONFIG_MAPS}?labelSelector=keep%3Dfalse&dryRun=All"),
            json!({}),
        )
        .await;
    assert_eq!(
        (
            code,
            names(&gone),
            names(&raw.get(CONFIG_MAPS).await.1).len()
        ),
        (200, vec!["a", "b"], 4)
    );
    let (code, gone) = raw
        .delete(
            &format!("{CONFIG_MAPS}?labelSelector=keep%3Dfalse"),
            json!({}),
        )
        .await;
    assert_eq!(
        (code, &gone["kind"], names(&gone)),
        (200, &json!("ConfigMapList"), vec!["a", "b"])
    );
    let (_, gone) = raw
        .delete(
            &format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dc"),
            json!({}),
        )
        .await;
    assert_eq!(
        (names(&gone), names(&raw.get(CONFIG_MAPS).await.1)),
        (vec!["c"], vec!["d"])
    );
    let (_, gone) = raw.delete(CONFIG_MAPS, json!({})).await;
    assert_eq!(
        (names(&gone), names(&raw.get(CONFIG_MAPS).await.1).len()),
        (vec!["d"], 0)
    );
}
