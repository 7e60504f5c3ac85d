use serde_json::json;

use super::*;
use crate::testing::{create_errors, created, defaulted, update_errors, updated, with};

mod app_armor;
mod columns;
mod containers;
mod creation;
mod gated;
mod label_keys;
mod mirror;
mod os;
mod resources;
mod spec;

fn pod() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [{"name": "nginx", "image": "nginx"}]},
    })
}

fn check(pointer: &str, value: Value, expect: &str) {
    assert_eq!(
        create_errors(&Pod, with(&pod(), pointer, value.clone())),
        expect,
        "{pointer} = {value}"
    );
}

#[test]
fn a_minimal_pod_gets_upstreams_defaults() {
    let spec = created(&Pod, pod())["spec"].take();
    let container = &spec["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(container["terminationMessagePolicy"], "File");
    assert_eq!(container["resources"], json!({}));
    assert_eq!(spec["restartPolicy"], "Always");
    assert_eq!(spec["dnsPolicy"], "ClusterFirst");
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    assert_eq!(spec["schedulerName"], "default-scheduler");
    assert_eq!(spec["securityContext"], json!({}));
    assert_eq!(spec["enableServiceLinks"], true);
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["preemptionPolicy"], "PreemptLowerPriority");
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
}

#[test]
fn a_new_pod_is_pending_in_its_first_generation() {
    let pod = created(&Pod, with(&pod(), "/status", json!({"phase": "Running"})));
    assert_eq!(
        pod["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
    assert_eq!(pod["metadata"]["generation"], 1);
}

#[test]
fn defaults_are_idempotent() {
    let once = created(&Pod, pod());
    assert_eq!(defaulted(&Pod, once.clone()), once);
}

#[test]
fn pull_policy_follows_the_tag() {
    for (image, expect) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.25", "IfNotPresent"),
        ("localhost:5000/nginx", "Always"),
        ("localhost:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
        ("nginx:latest@sha256:abc", "Always"),
    ] {
        let pod = defaulted(&Pod, with(&pod(), "/spec/containers/0/image", json!(image)));
        assert_eq!(
            pod["spec"]["containers"][0]["imagePullPolicy"], expect,
            "{image}"
        );
    }
}

#[test]
fn parts_of_a_spec_get_their_defaults() {
    for (pointer, value, read, expect) in [
        (
            "/spec/containers/0/ports",
            json!([{"containerPort": 80}]),
            "/spec/containers/0/ports/0/protocol",
            json!("TCP"),
        ),
        (
            "/spec/containers/0/livenessProbe",
            json!({"httpGet": {"port": 80}}),
            "/spec/containers/0/livenessProbe",
            json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3}),
        ),
        (
            "/spec/containers/0/resources",
            json!({"limits": {"cpu": "1"}}),
            "/spec/containers/0/resources/requests",
            json!({"cpu": "1"}),
        ),
        (
            "/spec/containers/0/env",
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
            "/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion",
            json!("v1"),
        ),
        (
            "/spec/volumes",
            json!([{"name": "v"}]),
            "/spec/volumes/0/emptyDir",
            json!({}),
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "configMap": {"name": "c"}}]),
            "/spec/volumes/0/configMap/defaultMode",
            json!(420),
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "secret": {"secretName": "c"}}]),
            "/spec/volumes/0/secret/defaultMode",
            json!(420),
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "hostPath": {"path": "/x"}}]),
            "/spec/volumes/0/hostPath/type",
            json!(""),
        ),
        (
            "/spec/serviceAccount",
            json!("robot"),
            "/spec/serviceAccountName",
            json!("robot"),
        ),
    ] {
        let pod = defaulted(&Pod, with(&pod(), pointer, value));
        assert_eq!(pod.pointer(read), Some(&expect), "{read}");
    }
}

#[test]
fn host_network_opens_its_ports_on_the_host() {
    let pod = with(
        &pod(),
        "/spec/containers/0/ports",
        json!([{"containerPort": 80}]),
    );
    let pod = defaulted(&Pod, with(&pod, "/spec/hostNetwork", json!(true)));
    assert_eq!(pod["spec"]["containers"][0]["ports"][0]["hostPort"], 80);
}

#[test]
fn updates_may_change_images_only() {
    let old = created(&Pod, pod());
    assert_eq!(
        update_errors(
            &Pod,
            with(&old, "/spec/containers/0/image", json!("nginx:2")),
            &old
        ),
        ""
    );
    let errors = update_errors(&Pod, with(&old, "/spec/hostname", json!("h")), &old);
    assert!(errors.starts_with("spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"), "{errors}");
    assert!(errors.contains("+ spec.hostname: \"h\""), "{errors}");
    let more = with(
        &old,
        "/spec/containers/1",
        json!({"name": "b", "image": "b"}),
    );
    assert_eq!(
        update_errors(&Pod, more, &old),
        "spec.containers: Forbidden: pod updates may not add or remove containers"
    );
    let errors = update_errors(&Pod, with(&old, "/spec/tolerations", json!([])), &old);
    assert!(
        errors.contains(
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
        )
    );
}

#[test]
fn updates_count_generations_and_keep_status() {
    let mut old = created(&Pod, pod());
    old["status"]["phase"] = json!("Running");
    let new = updated(&Pod, with(&old, "/status/phase", json!("Failed")), &old);
    assert_eq!(
        (&new["status"]["phase"], &new["metadata"]["generation"]),
        (&json!("Running"), &json!(1))
    );
    let new = updated(
        &Pod,
        with(&old, "/spec/containers/0/image", json!("b")),
        &old,
    );
    assert_eq!(new["metadata"]["generation"], 2);
}

#[test]
fn one_address_and_the_list_stay_in_step() {
    let old = created(&Pod, pod());
    let mut new = with(&old, "/status/podIP", json!("10.0.0.5"));
    Pod.prepare_for_status_update(&mut new, &old);
    assert_eq!(new["status"]["podIPs"], json!([{"ip": "10.0.0.5"}]));
    let mut new = with(&old, "/status/podIPs", json!([{"ip": "10.0.0.6"}]));
    Pod.prepare_for_status_update(&mut new, &old);
    assert_eq!(new["status"]["podIP"], "10.0.0.6");
}

#[test]
fn a_pod_from_before_a_check_can_be_let_go() {
    let mut old = created(&Pod, pod());
    old["spec"]["overhead"] = json!({"cpu": "-1"});
    old["metadata"]["finalizers"] = json!(["example.org/a"]);
    let freed = with(&old, "/metadata/finalizers", json!([]));
    assert_eq!(update_errors(&Pod, freed, &old), "");
    let changed = with(&old, "/spec/containers/0/image", json!("b"));
    assert!(update_errors(&Pod, changed, &old).contains("spec.overhead.limits[cpu]"));
}

#[test]
fn field_selectors_read_spec_and_status() {
    let pod =
        json!({"spec": {"nodeName": "n", "hostNetwork": true}, "status": {"phase": "Running"}});
    for (path, expect) in [
        ("spec.nodeName", "n"),
        ("spec.hostNetwork", "true"),
        ("status.phase", "Running"),
        ("status.podIP", ""),
    ] {
        assert_eq!(Pod.field(&pod, path), expect, "{path}");
    }
    assert_eq!(Pod.field(&json!({}), "spec.hostNetwork"), "false");
}

#[test]
fn deletion_waits_for_the_node_that_runs_it() {
    let on_node = |extra: Value| {
        let mut pod = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 7}, "status": {"phase": "Running"}});
        for (key, value) in extra.as_object().unwrap() {
            pod[key] = value.clone();
        }
        pod
    };
    assert_eq!(
        Pod.deletion(&on_node(json!({})), None),
        Deletion::Graceful(7)
    );
    assert_eq!(
        Pod.deletion(&on_node(json!({})), Some(3)),
        Deletion::Graceful(3)
    );
    assert_eq!(
        Pod.deletion(&on_node(json!({})), Some(0)),
        Deletion::Immediate
    );
    assert_eq!(
        Pod.deletion(&on_node(json!({"status": {"phase": "Failed"}})), None),
        Deletion::Immediate
    );
    assert_eq!(
        Pod.deletion(&json!({"spec": {}}), None),
        Deletion::Immediate
    );
}
