//! What a pod shares with its node.

use serde_json::{Value, json};

use super::{super::container, Check, baseline, three};

#[test]
fn host_namespaces() {
    let check = baseline("hostNamespaces", "host namespaces");
    check.spec(
        json!({"hostNetwork": false, "hostPID": false, "hostIPC": false}),
        "",
    );
    check.spec(json!({"hostNetwork": true}), "hostNetwork=true");
    check.spec(json!({"hostPID": true}), "hostPID=true");
    check.spec(
        json!({"hostNetwork": true, "hostPID": true, "hostIPC": true}),
        "hostNetwork=true, hostPID=true, hostIPC=true",
    );
}

#[test]
fn host_ports() {
    let check = baseline("hostPorts", "hostPort");
    let with = |name: &str, ports: &[u16]| {
        let ports: Vec<Value> = ports
            .iter()
            .map(|port| json!({"containerPort": 1, "hostPort": port}))
            .collect();
        json!({"name": name, "ports": ports})
    };
    check.spec(
        json!({"containers": [with("a", &[0]), {"name": "b", "ports": [{"containerPort": 80}]}]}),
        "",
    );
    check.spec(
        json!({"containers": [with("a", &[80])]}),
        "container \"a\" uses hostPort 80",
    );
    check.spec(
        json!({"initContainers": [with("i", &[9])], "containers": [with("a", &[80, 0]), with("b", &[0]), with("c", &[12, 80])]}),
        "containers \"i\", \"a\", \"c\" use hostPorts 12, 80, 9",
    );
}

#[test]
fn hosts_of_probes_and_handlers() {
    let check = Check {
        minors: &[34, 37],
        ..baseline("hostProbesAndHostLifecycle", "probe or lifecycle host")
    };
    let http = |host: &str| json!({"httpGet": {"port": 80, "host": host}});
    let tcp = |host: &str| json!({"tcpSocket": {"port": 80, "host": host}});
    let good = json!({"name": "g", "livenessProbe": http(""), "readinessProbe": {"tcpSocket": {"port": 1}},
        "startupProbe": {"exec": {"command": ["x"]}}, "lifecycle": {"preStop": http("")}});
    check.spec(json!({"containers": [good]}), "");
    let one = "container \"c\" uses probe or lifecycle host \"127.0.0.1\"";
    for (field, handler) in [
        ("livenessProbe", http("127.0.0.1")),
        ("readinessProbe", tcp("127.0.0.1")),
        ("startupProbe", http("127.0.0.1")),
        ("lifecycle", json!({"postStart": http("127.0.0.1")})),
        ("lifecycle", json!({"preStop": tcp("127.0.0.1")})),
    ] {
        check.spec(json!({"containers": [{"name": "c", field: handler}]}), one);
    }
    check.spec(
        json!({"containers": [{"name": "b", "livenessProbe": http("y"), "readinessProbe": tcp("x")},
            {"name": "a", "lifecycle": {"postStart": http("x")}}], "initContainers": [{"name": "i", "startupProbe": tcp("z")}]}),
        "containers \"a\", \"b\", \"i\" use probe or lifecycle hosts \"x\", \"y\", \"z\"",
    );
}

#[test]
fn host_processes() {
    let check = baseline("windowsHostProcess", "hostProcess");
    let set = |value: bool| json!({"windowsOptions": {"hostProcess": value}});
    check.spec(json!({"securityContext": set(false)}), "");
    check.context(set(false), "");
    let not = "must not set securityContext.windowsOptions.hostProcess=true";
    check.spec(json!({"securityContext": set(true)}), &format!("pod {not}"));
    check.spec(
        three(set(true)),
        &format!("containers \"i\", \"c\", \"e\" {not}"),
    );
    check.spec(
        json!({"securityContext": set(true), "containers": [container("c", set(true))]}),
        &format!("pod and container \"c\" {not}"),
    );
}
