//! What a pod asks for as a whole, what it costs besides, and its claims.

use serde_json::{Value, json};

use super::{Pod, check, pod};
use crate::testing::create_errors;

/// A pod that asks for `whole`, of containers that ask for these.
fn errors(whole: Value, containers: &[Value]) -> String {
    let mut pod = pod();
    pod["spec"]["resources"] = whole;
    let one = |(index, resources): (usize, &Value)| json!({"name": format!("c{index}"), "image": "i", "resources": resources});
    pod["spec"]["containers"] = containers.iter().enumerate().map(one).collect();
    create_errors(&Pod, pod)
}

#[test]
fn a_pods_resources_are_amounts_of_what_pods_can_have() {
    for (whole, expected) in [
        (
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}),
            "",
        ),
        (
            json!({"requests": {"cpu": "-5"}}),
            "spec.resources.requests[cpu]: Invalid value: \"-5\": must be greater than or equal to 0",
        ),
        (
            json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "spec.resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            json!({"limits": {"example.com/gpu": "1"}}),
            "spec.resources.limits[example.com/gpu]: Unsupported value: \"example.com/gpu\": supported values: \"cpu\", \"hugepages-\", \"memory\"",
        ),
        (
            json!({"requests": {"ephemeral-storage": "1"}}),
            "spec.resources.requests[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \"cpu\", \"hugepages-\", \"memory\"",
        ),
        (
            json!({"claims": [], "limits": {"cpu": "1"}}),
            "spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level",
        ),
    ] {
        assert_eq!(errors(whole.clone(), &[json!({})]), expected, "{whole}");
    }
    let mut windows = pod();
    windows["spec"]["os"] = json!({"name": "windows"});
    windows["spec"]["resources"] = json!({"requests": {"cpu": "-1"}});
    assert_eq!(
        create_errors(&Pod, windows),
        "spec.resources: Forbidden: may not be set for a windows pod"
    );
}

#[test]
fn a_pod_asks_for_no_less_than_its_containers() {
    let asks = |cpu: &str| json!({"requests": {"cpu": cpu}});
    assert_eq!(errors(asks("1"), &[asks("400m"), asks("600m")]), "");
    assert_eq!(
        errors(asks("1"), &[asks("500m"), asks("600m")]),
        "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container requests of 1100m"
    );
    let may = |memory: &str| json!({"limits": {"memory": memory}, "requests": {"memory": "1"}});
    assert_eq!(
        errors(may("1Gi"), &[may("1Gi"), may("1Gi")])
            .matches("limits")
            .count(),
        0
    );
    assert_eq!(
        errors(
            json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}),
            &[may("1Gi"), may("2Gi")]
        ),
        "spec.resources.containers[1][memory].limits: Invalid value: \"2Gi\": must be less than or equal to pod limits of 1Gi"
    );
    let pages = |amount: &str| json!({"limits": {"cpu": "1", "hugepages-2Mi": amount}, "requests": {"cpu": "1m", "hugepages-2Mi": amount}});
    let told = errors(pages("4Mi"), &[pages("2Mi"), pages("4Mi")]);
    let expected = "spec.resources.limits[hugepages-2Mi]: Invalid value: \"4Mi\": must be greater than or equal to aggregate container limits of 6Mi";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn what_running_a_pod_costs_is_no_less_than_nothing() {
    check("/spec/overhead", json!({"cpu": "250m"}), "");
    check(
        "/spec/overhead",
        json!({"cpu": "-1"}),
        "spec.overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
    );
}

#[test]
fn resource_claims_are_named_once_and_of_one_source() {
    const AT: &str = "/spec/resourceClaims";
    let claim = |name: &str| json!({"name": name, "resourceClaimName": "gpu"});
    check(AT, json!([claim("a"), claim("b")]), "");
    check(
        AT,
        json!([claim("a"), claim("a")]),
        "spec.resourceClaims[1].name: Duplicate value: \"a\"",
    );
    check(
        AT,
        json!([{"resourceClaimName": "gpu"}]),
        "spec.resourceClaims[0].name: Required value",
    );
    check(
        AT,
        json!([{"name": "a"}]),
        "spec.resourceClaims[0]: Invalid value: {\"name\":\"a\"}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
    );
    check(
        AT,
        json!([{"name": "a", "resourceClaimName": "b", "resourceClaimTemplateName": "c"}]),
        "spec.resourceClaims[0]: Invalid value: {\"name\":\"a\",\"resourceClaimName\":\"b\",\"resourceClaimTemplateName\":\"c\"}: at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
    );
}

#[test]
fn containers_use_the_pods_claims() {
    let used = |claims: Value| {
        let mut pod = pod();
        pod["spec"]["resourceClaims"] = json!([{"name": "a", "resourceClaimName": "gpu"}]);
        pod["spec"]["containers"][0]["resources"] = json!({"claims": claims});
        create_errors(&Pod, pod)
    };
    const AT: &str = "spec.containers[0].resources.claims";
    for (claims, expected) in [
        (
            json!([{"name": "a", "request": "x"}, {"name": "a", "request": "y"}]),
            String::new(),
        ),
        (json!([{}]), format!("{AT}[0]: Required value")),
        (
            json!([{"name": "a"}, {"name": "a", "request": "x"}]),
            format!("{AT}[1]: Duplicate value: \"a\""),
        ),
        (
            json!([{"name": "a", "request": "x"}, {"name": "a"}]),
            format!("{AT}[1]: Duplicate value: \"a\""),
        ),
        (
            json!([{"name": "a", "request": "x"}, {"name": "a", "request": "x"}]),
            format!("{AT}[1]: Duplicate value: \"a/x\""),
        ),
        (
            json!([{"name": "b"}]),
            format!(
                "{AT}[0]: Not found: \"b\": must be one of the names in pod.spec.resourceClaims: a"
            ),
        ),
    ] {
        assert_eq!(used(claims.clone()), expected, "{claims}");
    }
    check(
        "/spec/containers/0/resources",
        json!({"claims": [{"name": "b"}]}),
        "spec.containers[0].resources.claims[0]: Not found: \"b\": must be one of the names in pod.spec.resourceClaims which is empty",
    );
}
