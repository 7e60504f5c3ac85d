//! What goes with one operating system alone, and what the pod calls itself.

use serde_json::{Value, json};

use super::{Pod, check, pod};
use crate::testing::create_errors;

fn of(os: &str, spec: Value) -> String {
    let mut pod = pod();
    pod["spec"]["os"] = json!({"name": os});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    create_errors(&Pod, pod)
}

#[test]
fn an_operating_system_excludes_the_fields_of_the_other() {
    check("/spec/os", json!({}), "spec.os.name: Required value");
    check(
        "/spec/os",
        json!({"name": "plan9"}),
        "spec.os: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\"",
    );
    let options = json!({"windowsOptions": {"runAsUserName": "me"}});
    let linux = "Forbidden: windows options cannot be set for a linux pod";
    assert_eq!(
        of("linux", json!({"securityContext": options})),
        format!("spec.securityContext.windowsOptions: {linux}")
    );
    let containers = json!([{"name": "a", "image": "a", "securityContext": options}]);
    assert_eq!(
        of("linux", json!({"containers": containers})),
        format!("spec.containers[0].securityContext.windowsOptions: {linux}")
    );
    assert_eq!(of("windows", json!({"containers": containers})), "");
    let windows = "Forbidden: cannot be set for a windows pod";
    for (spec, path) in [
        (json!({"hostPID": true}), "hostPID"),
        (
            json!({"shareProcessNamespace": false}),
            "shareProcessNamespace",
        ),
        (
            json!({"securityContext": {"runAsUser": 1}}),
            "securityContext.runAsUser",
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "kernel.sem", "value": "1"}]}}),
            "securityContext.sysctls",
        ),
        (
            json!({"containers": [{"name": "a", "image": "a", "securityContext": {"privileged": false}}]}),
            "containers[0].securityContext.privileged",
        ),
    ] {
        assert_eq!(of("windows", spec), format!("spec.{path}: {windows}"));
    }
    assert_eq!(of("windows", json!({"hostPID": false})), "");
}

#[test]
fn processes_of_a_windows_host_are_all_of_a_pod_and_in_its_network() {
    let of_host = |is: bool| json!({"windowsOptions": {"hostProcess": is}});
    let containers = |own: &[Option<bool>]| -> Value {
        let one = |(index, own): (usize, &Option<bool>)| {
            let mut container = json!({"name": format!("c{index}"), "image": "i"});
            if let Some(own) = own {
                container["securityContext"] = of_host(*own);
            }
            container
        };
        own.iter().enumerate().map(one).collect()
    };
    for (whole, own, network, expected) in [
        (Some(true), &[None, None][..], true, ""),
        (
            Some(true),
            &[None],
            false,
            "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers",
        ),
        (
            None,
            &[Some(true), None],
            true,
            "spec: Invalid value: \"\": If pod contains any hostProcess containers then all containers must be HostProcess containers",
        ),
        (
            Some(false),
            &[Some(true)],
            true,
            "spec.containers[0].securityContext.windowsOptions.hostProcess: Invalid value: true: pod hostProcess value must be identical if both are specified, was false",
        ),
    ] {
        let mut spec = json!({"containers": containers(own), "hostNetwork": network});
        if let Some(whole) = whole {
            spec["securityContext"] = of_host(whole);
        }
        assert_eq!(of("windows", spec), expected, "{whole:?} {own:?}");
    }
}

#[test]
fn a_pods_own_host_name_is_one_of_the_kernel() {
    let mut pod = pod();
    let mut check = |field: &str, value: Value, expected: &str| {
        pod["spec"][field] = value;
        assert_eq!(create_errors(&Pod, pod.clone()), expected, "{field}");
    };
    check("hostnameOverride", json!("a.example"), "");
    let long = "a".repeat(65);
    check(
        "hostnameOverride",
        json!(long),
        "spec.hostnameOverride: Too long: may not be more than 64 bytes",
    );
    check("hostnameOverride", json!("a"), "");
    let forbidden = "spec.hostnameOverride: Forbidden: may not be specified when";
    check(
        "setHostnameAsFQDN",
        json!(true),
        &format!("{forbidden} setHostnameAsFQDN is true"),
    );
    check("setHostnameAsFQDN", json!(false), "");
    check(
        "hostNetwork",
        json!(true),
        &format!("{forbidden} hostNetwork is true"),
    );
}
