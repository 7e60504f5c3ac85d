use serde_json::json;

use super::*;
use crate::testing::{create_errors, created, defaulted, update_errors, updated, with};

mod columns;
mod gated;
mod mirror;

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
fn containers_are_checked() {
    let c = "/spec/containers/0";
    let at = |field: &str| format!("{c}/{field}");
    check(
        "/spec/containers",
        json!([]),
        "spec.containers: Required value",
    );
    check(
        &at("image"),
        json!(""),
        "spec.containers[0].image: Required value",
    );
    check(
        &at("image"),
        json!(" a"),
        "spec.containers[0].image: Invalid value: \" a\": must not have leading or trailing whitespace",
    );
    check(
        &at("name"),
        json!(""),
        "spec.containers[0].name: Required value",
    );
    check(
        &at("name"),
        json!("A"),
        "spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    );
    check(
        "/spec/containers/1",
        json!({"name": "nginx", "image": "b"}),
        "spec.containers[1].name: Duplicate value: \"nginx\"",
    );
    check(
        &at("imagePullPolicy"),
        json!("Sometimes"),
        "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
    );
    check(
        &at("ports"),
        json!([{"containerPort": 70000}]),
        "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
    );
    check(
        &at("ports"),
        json!([{"name": "a"}]),
        "spec.containers[0].ports[0].containerPort: Required value",
    );
    check(
        &at("ports"),
        json!([{"containerPort": 1, "protocol": "X"}]),
        "spec.containers[0].ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
    );
    check(
        &at("ports"),
        json!([{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
        "spec.containers[0].ports[1].name: Duplicate value: \"a\"",
    );
    check(
        &at("ports"),
        json!([{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]),
        "spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//9\"",
    );
    check(
        &at("env"),
        json!([{"value": "x"}]),
        "spec.containers[0].env[0].name: Required value",
    );
    check(
        &at("env"),
        json!([{"name": "A", "value": "x", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]),
        "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
    );
    check(
        &at("env"),
        json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.wrong"}}}]),
        "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.wrong\": error converting fieldPath: field label not supported: spec.wrong",
    );
    check(
        &at("envFrom"),
        json!([{}]),
        "spec.containers[0].envFrom[0]: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
    );
    check(
        &at("volumeMounts"),
        json!([{"name": "no", "mountPath": "/x"}]),
        "spec.containers[0].volumeMounts[0].name: Not found: \"no\"",
    );
    check(
        &at("restartPolicy"),
        json!("Perhaps"),
        "spec.containers[0].restartPolicy: Unsupported value: \"Perhaps\": supported values: \"Always\", \"Never\", \"OnFailure\"",
    );
}

#[test]
fn resources_are_checked() {
    let r = "/spec/containers/0/resources";
    check(
        r,
        json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
    );
    check(
        r,
        json!({"limits": {"memory": "-1"}}),
        "[spec.containers[0].resources.limits[memory]: Invalid value: \"-1\": must be greater than or equal to 0, spec.containers[0].resources.requests[memory]: Invalid value: \"-1\": must be greater than or equal to 0]",
    );
    check(
        r,
        json!({"requests": {"disk": "1"}}),
        "spec.containers[0].resources.requests[disk]: Invalid value: \"disk\": must be a standard resource for containers",
    );
    check(
        r,
        json!({"requests": {"example.com/gpu": "1"}}),
        "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
    );
    check(
        r,
        json!({"limits": {"hugepages-2Mi": "2Mi"}}),
        "spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
    );
}

#[test]
fn probes_and_hooks_are_checked() {
    let p = "/spec/containers/0/livenessProbe";
    check(
        p,
        json!({}),
        "spec.containers[0].livenessProbe: Required value: must specify a handler type",
    );
    check(
        p,
        json!({"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}),
        "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
    );
    check(
        p,
        json!({"exec": {}}),
        "spec.containers[0].livenessProbe.exec.command: Required value",
    );
    check(
        p,
        json!({"tcpSocket": {"port": 0}}),
        "spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive",
    );
    check(
        p,
        json!({"tcpSocket": {"port": 1}, "successThreshold": 2}),
        "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
    );
    check(
        p,
        json!({"tcpSocket": {"port": 1}, "periodSeconds": -1}),
        "spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
    );
    check(
        "/spec/containers/0/readinessProbe",
        json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 5}),
        "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
    );
    check(
        "/spec/containers/0/lifecycle",
        json!({"preStop": {}}),
        "spec.containers[0].lifecycle.preStop: Required value: must specify a handler type",
    );
    check(
        "/spec/containers/0/lifecycle",
        json!({"preStop": {"sleep": {"seconds": 60}}}),
        "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 60: must be non-negative and less than terminationGracePeriodSeconds (30)",
    );
}

#[test]
fn volumes_and_mounts_are_checked() {
    let v = "/spec/volumes";
    check(
        v,
        json!([{"name": "a"}, {"name": "a"}]),
        "spec.volumes[1].name: Duplicate value: \"a\"",
    );
    check(
        v,
        json!([{"emptyDir": {}}]),
        "spec.volumes[0].name: Required value",
    );
    check(
        v,
        json!([{"name": "a", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
        "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
    );
    check(
        v,
        json!([{"name": "a", "hostPath": {"path": "/../x"}}]),
        "spec.volumes[0].hostPath.path: Invalid value: \"/../x\": must not contain '..'",
    );
    check(
        v,
        json!([{"name": "a", "secret": {}}]),
        "spec.volumes[0].secret.secretName: Required value",
    );
    check(
        v,
        json!([{"name": "a", "configMap": {"name": "c", "defaultMode": 4096}}]),
        "spec.volumes[0].configMap.defaultMode: Invalid value: 4096: must be a number between 0 and 0777 (octal), both inclusive",
    );
    check(
        v,
        json!([{"name": "a", "configMap": {"name": "c", "items": [{"key": "k"}]}}]),
        "spec.volumes[0].configMap.items[0].path: Required value",
    );
    let base = with(&pod(), v, json!([{"name": "a", "emptyDir": {}}]));
    for (mounts, expect) in [
        (
            json!([{"name": "a", "mountPath": ""}]),
            "spec.containers[0].volumeMounts[0].mountPath: Required value",
        ),
        (
            json!([{"name": "a", "mountPath": "/x"}, {"name": "a", "mountPath": "/x"}]),
            "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/x\": must be unique",
        ),
        (
            json!([{"name": "a", "mountPath": "/x", "subPath": "/y"}]),
            "spec.containers[0].volumeMounts.subPath: Invalid value: \"/y\": must be a relative path",
        ),
        (
            json!([{"name": "a", "mountPath": "/x", "mountPropagation": "Bidirectional"}]),
            "spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
        ),
    ] {
        assert_eq!(
            create_errors(&Pod, with(&base, "/spec/containers/0/volumeMounts", mounts)),
            expect
        );
    }
}

#[test]
fn init_containers_are_checked() {
    let i = "/spec/initContainers";
    check(
        i,
        json!([{"name": "nginx", "image": "a"}]),
        "spec.initContainers[0].name: Duplicate value: \"nginx\"",
    );
    let probe = json!({"tcpSocket": {"port": 1}});
    check(
        i,
        json!([{"name": "a", "image": "a", "readinessProbe": probe}]),
        "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
    );
    check(
        i,
        json!([{"name": "a", "image": "a", "readinessProbe": probe, "restartPolicy": "Always"}]),
        "",
    );
}

#[test]
fn search_domains_are_checked() {
    const NO_DOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
    let searches = |searches: &[&str]| json!({"searches": searches});
    check(
        "/spec/dnsConfig",
        searches(&[".", "example.com.", "_sip._tcp.ex_ample"]),
        "",
    );
    let inject = "a\nnameserver 192.0.2.6";
    let expect = format!("spec.dnsConfig.searches[0]: Invalid value: {inject:?}: {NO_DOMAIN}");
    check("/spec/dnsConfig", searches(&[inject]), &expect);
    let long = "a".repeat(63);
    check("/spec/dnsConfig", searches(&[long.as_str(); 32]), "");
    let longer = format!("{long}.{long}");
    let told = create_errors(
        &Pod,
        with(&pod(), "/spec/dnsConfig", searches(&[longer.as_str(); 17])),
    );
    assert!(
        told.ends_with(
            "must not have more than 2048 characters (including spaces) in the search list"
        ),
        "{told}"
    );
}

#[test]
fn the_pod_itself_is_checked() {
    check(
        "/spec/restartPolicy",
        json!("Maybe"),
        "spec.restartPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\"",
    );
    check(
        "/spec/dnsPolicy",
        json!("X"),
        "spec.dnsPolicy: Unsupported value: \"X\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\"",
    );
    check(
        "/spec/dnsPolicy",
        json!("None"),
        "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
    );
    check(
        "/spec/activeDeadlineSeconds",
        json!(0),
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
    );
    check(
        "/spec/nodeSelector",
        json!({"a": "b c"}),
        "spec.nodeSelector: Invalid value: \"b c\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    );
    check(
        "/spec/tolerations",
        json!([{"operator": "Equal", "key": "", "effect": "NoExecute"}]),
        "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
    );
    check(
        "/spec/affinity",
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term",
    );
    check(
        "/spec/topologySpreadConstraints",
        json!([{"maxSkew": 0, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}]),
        "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
    );
    check(
        "/spec/securityContext",
        json!({"runAsUser": -1}),
        "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
    );
    check(
        "/spec/containers/0/securityContext",
        json!({"seccompProfile": {"type": "Localhost"}}),
        "spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
    );
    check("/spec/hostNetwork", json!(true), "");
}

#[test]
fn several_errors_are_listed_in_upstreams_order() {
    let mut pod = with(&pod(), "/spec/containers/0/image", json!(""));
    pod["spec"]["restartPolicy"] = json!("No");
    assert_eq!(
        create_errors(&Pod, pod),
        "[spec.containers[0].image: Required value, spec.restartPolicy: Unsupported value: \"No\": supported values: \"Always\", \"OnFailure\", \"Never\"]"
    );
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
