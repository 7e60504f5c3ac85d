//! Which checks are in force when.

use serde_json::json;

use super::{
    super::{
        pod::Pod,
        standard::{in_force, violations},
    },
    asked, container, pod,
};

fn names(text: &str) -> Vec<&'static str> {
    in_force(asked(text)).map(|(id, _)| id).collect()
}

#[test]
fn a_level_has_the_checks_of_its_version_in_upstreams_order() {
    let oldest = [
        "appArmorProfile",
        "capabilities_baseline",
        "hostNamespaces",
        "hostPathVolumes",
        "hostPorts",
        "privileged",
        "procMount",
        "seLinuxOptions",
        "seccompProfile_baseline",
        "sysctls",
        "windowsHostProcess",
    ];
    assert_eq!(names("privileged:latest"), [""; 0]);
    assert_eq!(names("baseline:v1.0"), oldest);
    assert_eq!(names("baseline:v1.33"), oldest);
    let mut newest = oldest.to_vec();
    newest.insert(5, "hostProbesAndHostLifecycle");
    assert_eq!(names("baseline:v1.34"), newest);
    assert_eq!(names("baseline:latest"), newest);
    assert_eq!(names("baseline:v1.38"), newest);
    // What is stricter stands in the place of what is not.
    let restricted = [
        "appArmorProfile",
        "hostNamespaces",
        "hostPorts",
        "hostProbesAndHostLifecycle",
        "privileged",
        "seLinuxOptions",
        "sysctls",
        "windowsHostProcess",
        "allowPrivilegeEscalation",
        "capabilities_restricted",
        "procMount_restricted",
        "restrictedVolumes",
        "runAsNonRoot",
        "runAsUser",
        "seccompProfile_restricted",
    ];
    assert_eq!(names("restricted:latest"), restricted);
}

#[test]
fn what_is_stricter_comes_with_its_release_and_takes_the_place_of_what_is_not() {
    let check = |minor: u64, there: &[&str], gone: &[&str]| {
        let names = names(&format!("restricted:v1.{minor}"));
        for id in there {
            assert!(names.contains(id), "v1.{minor} has {id}: {names:?}");
        }
        for id in gone {
            assert!(!names.contains(id), "v1.{minor} has no {id}: {names:?}");
        }
    };
    check(
        0,
        &["runAsNonRoot", "restrictedVolumes"],
        &["hostPathVolumes"],
    );
    check(7, &[], &["allowPrivilegeEscalation"]);
    check(8, &["allowPrivilegeEscalation"], &[]);
    check(
        18,
        &["seccompProfile_baseline"],
        &["seccompProfile_restricted"],
    );
    check(
        19,
        &["seccompProfile_restricted"],
        &["seccompProfile_baseline"],
    );
    check(21, &["capabilities_baseline"], &["capabilities_restricted"]);
    check(22, &["capabilities_restricted"], &["capabilities_baseline"]);
    check(22, &[], &["runAsUser"]);
    check(23, &["runAsUser"], &[]);
    check(34, &["procMount"], &["procMount_restricted"]);
    check(35, &["procMount_restricted"], &["procMount"]);
}

#[test]
fn what_is_in_order_is_let_in_by_every_level_of_every_version() {
    let pod = pod(json!({}));
    for level in ["privileged", "baseline", "restricted"] {
        for minor in 0..=38 {
            let found = violations(asked(&format!("{level}:v1.{minor}")), Pod::of(&pod));
            assert_eq!(found, [], "{level} v1.{minor}");
        }
    }
}

#[test]
fn everything_is_found_at_once() {
    let bad = container(
        "c",
        json!({"privileged": true, "capabilities": {"add": ["NET_RAW"]}}),
    );
    let pod = pod(json!({"hostNetwork": true, "containers": [bad]}));
    let reasons = |text: &str| -> Vec<&str> {
        let found = violations(asked(text), Pod::of(&pod));
        found.iter().map(|violation| violation.reason).collect()
    };
    let baseline = ["non-default capabilities", "host namespaces", "privileged"];
    assert_eq!(reasons("baseline:latest"), baseline);
    let restricted = ["host namespaces", "privileged", "unrestricted capabilities"];
    assert_eq!(reasons("restricted:latest"), restricted);
    assert_eq!(reasons("privileged:latest"), [""; 0]);
}
