use serde_json::json;

use super::{Pod, check, pod};
use crate::{
    strategy::Strategy,
    testing::{create_errors, created, with},
};

#[test]
fn containers_are_checked() {
    let at = |field: &str| format!("/spec/containers/0/{field}");
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
        &at("restartPolicy"),
        json!("Perhaps"),
        "spec.containers[0].restartPolicy: Unsupported value: \"Perhaps\": supported values: \"Always\", \"Never\", \"OnFailure\"",
    );
}

#[test]
fn ports_of_containers_are_checked() {
    let at = |field: &str| format!("/spec/containers/0/{field}");
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
}

#[test]
fn environments_and_mounts_of_containers_are_checked() {
    let at = |field: &str| format!("/spec/containers/0/{field}");
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
fn rules_for_starting_again_are_checked() {
    let at = "spec.containers[0]";
    let rule =
        |action: &str, codes: serde_json::Value| json!({"action": action, "exitCodes": codes});
    let good = || json!({"operator": "In", "values": [1]});
    let checked = |policy: serde_json::Value, rules: Vec<serde_json::Value>, expect: &str| {
        let container = json!({"name": "c", "image": "i", "restartPolicy": policy, "restartPolicyRules": rules});
        check("/spec/containers/0", container.clone(), expect);
        let init = expect.replace("spec.containers", "spec.initContainers");
        check("/spec/initContainers", json!([container]), &init);
    };
    checked(json!("Never"), vec![rule("Restart", good())], "");
    checked(
        json!("Never"),
        vec![rule("RestartAllContainers", good())],
        "",
    );
    checked(
        json!(null),
        vec![rule("Restart", good())],
        &format!(
            "{at}.restartPolicy: Required value: must specify restartPolicy when restart rules are used"
        ),
    );
    checked(
        json!("Never"),
        vec![rule("Stop", good())],
        &format!(
            "{at}.restartPolicyRules[0].action: Unsupported value: \"Stop\": supported values: \"Restart\", \"RestartAllContainers\""
        ),
    );
    checked(
        json!("Never"),
        vec![json!({"action": "Restart"})],
        &format!("{at}.restartPolicyRules[0].exitCodes: Required value: must be specified"),
    );
    checked(
        json!("Never"),
        vec![rule("Restart", json!({"operator": "Is", "values": [1]}))],
        &format!(
            "{at}.restartPolicyRules[0].exitCodes.operator: Unsupported value: \"Is\": supported values: \"In\", \"NotIn\""
        ),
    );
    checked(
        json!("Never"),
        vec![rule(
            "Restart",
            json!({"operator": "In", "values": vec![1; 256]}),
        )],
        &format!(
            "{at}.restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items"
        ),
    );
    checked(
        json!("Never"),
        vec![rule("Restart", good()); 21],
        &format!("{at}.restartPolicyRules: Too many: 21: must have at most 20 items"),
    );
}

#[test]
fn what_a_resize_does_is_said_once_of_a_resource() {
    let r = "/spec/containers/0/resizePolicy";
    let one = |name: &str, restart: &str| json!({"resourceName": name, "restartPolicy": restart});
    check(
        r,
        json!([one("cpu", "NotRequired"), one("memory", "RestartContainer")]),
        "",
    );
    check(
        r,
        json!([one("cpu", "NotRequired"), one("cpu", "NotRequired")]),
        "spec.containers[0].resizePolicy[1]: Duplicate value: \"cpu\"",
    );
    check(
        r,
        json!([one("disk", "Always")]),
        "[spec.containers[0].resizePolicy: Unsupported value: \"disk\": supported values: \"cpu\", \"memory\", spec.containers[0].resizePolicy: Unsupported value: \"Always\": supported values: \"NotRequired\", \"RestartContainer\"]",
    );
    let mut once = with(&pod(), "/spec/restartPolicy", json!("Never"));
    once["spec"]["containers"][0]["resizePolicy"] = json!([one("cpu", "RestartContainer")]);
    assert_eq!(
        create_errors(&Pod, once),
        "spec.containers[0].resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is 'Never'"
    );
}

#[test]
fn nobody_relies_on_an_ephemeral_container() {
    let refusal = "Forbidden: cannot be set for an Ephemeral Container";
    for (field, value, at) in [
        (
            "ports",
            json!([{"containerPort": 1, "protocol": "TCP"}]),
            "ports",
        ),
        ("restartPolicy", json!("Never"), "restartPolicy"),
        ("restartPolicyRules", json!([]), "restartPolicyRules"),
        (
            "volumeMounts",
            json!([{"name": "v", "mountPath": "/x", "subPath": "a"}]),
            "volumeMounts[0].subPath",
        ),
        (
            "volumeMounts",
            json!([{"name": "v", "mountPath": "/x", "subPathExpr": "a"}]),
            "volumeMounts[0].subPathExpr",
        ),
    ] {
        let mut container = json!({"name": "debug", "image": "busybox"});
        container[field] = value;
        let mut pod = with(&pod(), "/spec/volumes", json!([{"name": "v"}]));
        pod["spec"]["ephemeralContainers"] = json!([container]);
        let errors = Pod.validate(&created(&Pod, pod)).to_string();
        assert_eq!(
            errors,
            format!("spec.ephemeralContainers[0].{at}: {refusal}")
        );
    }
}
