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
fn a_pod_that_is_resized_uses_what_it_still_has() {
    let pod = |wanted: &str, has: &str, conditions: Value| {
        let resources = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
        json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": resources(wanted)}]}, "status": {
            "conditions": conditions,
            "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": {"cpu": has}, "resources": resources(has)}]}})
    };
    let infeasible =
        json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
    for (wanted, has, conditions, expect) in [
        ("1", "1", json!([]), "1"),
        ("1", "2", json!([]), "2"),
        ("3", "2", json!([]), "3"),
        ("3", "2", infeasible, "2"),
    ] {
        let expect =
            format!("count/pods=1,cpu={expect},limits.cpu={expect},pods=1,requests.cpu={expect}");
        assert_eq!(
            used("pods", pod(wanted, has, conditions)),
            expect,
            "{wanted} {has}"
        );
    }
}

#[test]
fn claims_use_the_devices_that_they_may_come_to_have() {
    let one = |class: &str, mode: &str, count: i64| json!({"deviceClassName": class, "allocationMode": mode, "count": count});
    let claim = json!({"spec": {"devices": {"requests": [
        {"name": "a", "exactly": one("gpu", "ExactCount", 2)},
        {"name": "b", "exactly": one("nic", "All", 0)},
        {"name": "c", "firstAvailable": [one("gpu", "ExactCount", 1), one("gpu", "ExactCount", 4), one("fpga", "x", 1)]},
    ]}}});
    let now = "2026-11-21T12:00:00Z".parse().expect("a time");
    let (group, plural) = ("resource.k8s.io", "resourceclaims");
    assert_eq!(
        print(&usage(group, plural, &claim, now)),
        "count/resourceclaims.resource.k8s.io=1,fpga.deviceclass.resource.k8s.io/devices=0,\
         gpu.deviceclass.resource.k8s.io/devices=6,nic.deviceclass.resource.k8s.io/devices=32"
    );
    let names = [
        "gpu.deviceclass.resource.k8s.io/devices",
        "pods",
        "count/resourceclaims.resource.k8s.io",
    ];
    assert_eq!(names_of(group, plural, names), [names[0], names[2]]);
}

#[test]
fn a_deadline_moves_a_pod_to_another_quota() {
    let (plain, ends) = (
        json!({"spec": {}}),
        json!({"spec": {"activeDeadlineSeconds": 5}}),
    );
    let changes = |subresource: &str, old: &Value, new: &Value| {
        changes_by_update(("", "pods"), subresource, (old, new))
    };
    assert!(changes("", &plain, &ends) && changes("", &ends, &plain));
    assert!(!changes("", &ends, &ends) && !changes("status", &plain, &ends));
    assert!(changes("resize", &plain, &plain));
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
    let claims = ("", "persistentvolumeclaims");
    assert!(changes_by_update(claims, "status", (&pod, &pod)));
}
