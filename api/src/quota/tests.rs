use serde_json::json;

use super::*;

fn used(plural: &str, object: Value) -> String {
    let now = "2026-11-21T12:00:00Z".parse().expect("a time");
    print(&usage("", plural, &object, now))
}

#[test]
fn pods_use_what_their_containers_ask_for() {
    let container = |cpu: &str, limit: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": limit}}});
    for (pod, expect) in [
        (json!({"spec": {}}), "count/pods=1,pods=1"),
        (
            json!({"spec": {"containers": [container("100m", "1"), container("200m", "500m")]}}),
            "count/pods=1,cpu=300m,limits.cpu=1500m,pods=1,requests.cpu=300m",
        ),
        (
            json!({"spec": {"containers": [container("100m", "1")], "initContainers": [container("2", "2")]}}),
            "count/pods=1,cpu=2,limits.cpu=2,pods=1,requests.cpu=2",
        ),
        (
            json!({"spec": {"containers": [container("1", "1")]}, "status": {"phase": "Failed"}}),
            "count/pods=1",
        ),
        (
            json!({"spec": {}, "metadata": {"deletionTimestamp": "2026-11-21T11:00:00Z", "deletionGracePeriodSeconds": 30}}),
            "count/pods=1",
        ),
        (
            json!({"spec": {"containers": [{"resources": {"requests": {"example.com/gpu": "2", "memory": "1Gi"}}}]}}),
            "count/pods=1,memory=1Gi,pods=1,requests.example.com/gpu=2,requests.memory=1Gi",
        ),
    ] {
        assert_eq!(used("pods", pod.clone()), expect, "{pod}");
    }
}

#[test]
fn services_and_claims_use_ports_and_storage() {
    let service = |kind: &str| json!({"spec": {"type": kind, "ports": [{"port": 1}, {"port": 2}]}});
    assert_eq!(
        used("services", service("NodePort")),
        "count/services=1,services=1,services.loadbalancers=0,services.nodeports=2"
    );
    assert_eq!(
        used("services", service("LoadBalancer")),
        "count/services=1,services=1,services.loadbalancers=1,services.nodeports=2"
    );
    let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "3Gi"}}}});
    assert_eq!(
        used("persistentvolumeclaims", claim),
        "count/persistentvolumeclaims=1,fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
         fast.storageclass.storage.k8s.io/requests.storage=3Gi,persistentvolumeclaims=1,requests.storage=3Gi"
    );
    assert_eq!(used("secrets", json!({})), "count/secrets=1,secrets=1");
}

#[test]
fn a_quota_limits_only_what_it_names() {
    let names = [
        "pods",
        "limits.cpu",
        "secrets",
        "services.nodeports",
        "count/jobs.batch",
        "requests.example.com/gpu",
    ];
    assert_eq!(
        names_of("", "pods", names),
        ["pods", "limits.cpu", "requests.example.com/gpu"]
    );
    assert_eq!(names_of("", "services", names), ["services.nodeports"]);
    assert_eq!(names_of("batch", "jobs", names), ["count/jobs.batch"]);
    assert_eq!(names_of("", "secrets", names), ["secrets"]);
    assert!(names_of("apps", "deployments", names).is_empty());
}

#[test]
fn containers_must_say_what_a_quota_limits() {
    let pod = json!({"spec": {"containers": [
        {"name": "b"}, {"name": "a", "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Mi"}}}]}});
    assert_eq!(
        missing(
            &["limits.cpu", "requests.memory", "pods", "limits.memory"],
            &pod
        )
        .as_deref(),
        Some("must specify limits.cpu for: b; limits.memory for: a,b; requests.memory for: b")
    );
    assert_eq!(missing(&["pods", "requests.ephemeral-storage"], &pod), None);
}

#[test]
fn scopes_choose_pods() {
    let best_effort = json!({"spec": {"containers": [{"name": "a"}]}});
    let burst = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high",
        "containers": [{"resources": {"limits": {"memory": "1Mi"}}}]}});
    let classes = |operator: &str, values: Value| {
        json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values}]}})
    };
    for (spec, first, second) in [
        (json!({}), true, true),
        (json!({"scopes": ["BestEffort"]}), true, false),
        (json!({"scopes": ["NotBestEffort"]}), false, true),
        (json!({"scopes": ["Terminating"]}), false, true),
        (
            json!({"scopes": ["NotTerminating", "BestEffort"]}),
            true,
            false,
        ),
        (classes("In", json!(["high"])), false, true),
        (classes("NotIn", json!(["high"])), true, false),
        (classes("Exists", json!([])), false, true),
    ] {
        assert_eq!(in_scope(&spec, "", "pods", &best_effort), first, "{spec}");
        assert_eq!(in_scope(&spec, "", "pods", &burst), second, "{spec}");
    }
    assert!(!in_scope(
        &json!({"scopes": ["Terminating"]}),
        "",
        "services",
        &json!({})
    ));
}

#[test]
fn a_class_of_volume_attributes_chooses_claims() {
    let none = json!({"spec": {}});
    let gold = json!({"spec": {"volumeAttributesClassName": "gold"}});
    let turning = json!({"spec": {"volumeAttributesClassName": "gold"},
        "status": {"currentVolumeAttributesClassName": "silver"}});
    let target =
        json!({"status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold"}}});
    let classes = |operator: &str, values: Value| {
        json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "VolumeAttributesClass", "operator": operator, "values": values}]}})
    };
    for (spec, expect) in [
        (
            json!({"scopes": ["VolumeAttributesClass"]}),
            [false, true, true, true],
        ),
        (classes("In", json!(["gold"])), [false, true, true, true]),
        (
            classes("In", json!(["silver"])),
            [false, false, true, false],
        ),
        (
            classes("NotIn", json!(["gold"])),
            [true, false, true, false],
        ),
        (
            classes("DoesNotExist", json!([])),
            [true, false, false, false],
        ),
        (json!({"scopes": ["BestEffort"]}), [false; 4]),
    ] {
        let claims = [&none, &gold, &turning, &target];
        let found = claims.map(|claim| in_scope(&spec, "", "persistentvolumeclaims", claim));
        assert_eq!(found, expect, "{spec}");
    }
    let pod = json!({"spec": {"volumeAttributesClassName": "gold"}});
    let spec = json!({"scopes": ["VolumeAttributesClass"]});
    assert!(!in_scope(&spec, "", "pods", &pod));
    assert!(changes_by_update("", "persistentvolumeclaims", "status"));
}
