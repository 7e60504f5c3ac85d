use serde_json::json;

use super::*;
use crate::quantity::Quantity;

fn written(amounts: &Amounts) -> String {
    amounts
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn container(name: &str, requests: &Value) -> Value {
    json!({"name": name, "resources": {"requests": requests, "limits": requests}})
}

fn sidecar(name: &str, requests: &Value) -> Value {
    let mut sidecar = container(name, requests);
    sidecar["restartPolicy"] = json!("Always");
    sidecar
}

/// Typed and as JSON the answer is the same, and so it is for a pod that nothing has happened to
/// yet.
fn check(spec: Value, expect: &str) {
    let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
    assert_eq!(
        written(&pod_requests(pod.spec.as_ref().expect("spec"))),
        expect,
        "typed: {spec}"
    );
    assert_eq!(
        written(&pod_requests_in_force(&pod, &Amounts::new())),
        expect,
        "in force: {spec}"
    );
    assert_eq!(
        written(&pod_requests_of_json(&spec)),
        expect,
        "as JSON: {spec}"
    );
}

#[test]
fn a_pod_asks_for_what_it_needs_at_its_largest() {
    let cpu = |cpu: &str| json!({"cpu": cpu});
    check(json!({"containers": []}), "");
    check(
        json!({"containers": [container("a", &cpu("1")), container("b", &cpu("500m"))]}),
        "cpu=1500m",
    );
    check(
        json!({"initContainers": [container("i", &cpu("3"))], "containers": [container("a", &cpu("1"))]}),
        "cpu=3",
    );
    // Every resource has its own moment, and what only init containers ask for counts as well.
    let init = json!({"cpu": "100m", "memory": "2Gi", "example.org/gpu": "5"});
    let main = json!({"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"});
    check(
        json!({"initContainers": [container("i", &init)], "containers": [container("a", &main)]}),
        "cpu=1 example.org/gpu=5 hugepages-2Mi=4Mi memory=2Gi",
    );
}

#[test]
fn sidecars_run_beside_all_that_starts_after_them() {
    let cpu = |cpu: &str| json!({"cpu": cpu});
    let containers = json!([container("a", &cpu("1")), container("b", &cpu("1"))]);
    for (init, expect) in [
        // Beside the containers: 2.5.
        (json!([sidecar("s", &cpu("500m"))]), "cpu=2500m"),
        // Before a sidecar an init container is alone, after it not.
        (
            json!([container("i", &cpu("3")), sidecar("s", &cpu("500m"))]),
            "cpu=3",
        ),
        (
            json!([sidecar("s", &cpu("500m")), container("i", &cpu("2700m"))]),
            "cpu=3200m",
        ),
        (
            json!([
                sidecar("s", &cpu("1")),
                sidecar("t", &cpu("1")),
                container("i", &cpu("1"))
            ]),
            "cpu=4",
        ),
    ] {
        check(
            json!({"initContainers": init, "containers": containers}),
            expect,
        );
    }
}

#[test]
fn what_the_pod_asks_for_as_a_whole_counts_instead() {
    let main = container("a", &json!({"cpu": "1", "memory": "1Gi"}));
    check(
        json!({"containers": [main], "resources": {"requests": {"cpu": "4", "hugepages-2Mi": "2Mi"}},
            "overhead": {"cpu": "100m", "memory": "64Mi"}}),
        "cpu=4100m hugepages-2Mi=2Mi memory=1088Mi",
    );
    // Less than the containers is what was said, too; of other resources nothing can be said for
    // the whole.
    check(
        json!({"containers": [main],
            "resources": {"requests": {"cpu": "500m", "ephemeral-storage": "1Gi", "example.org/gpu": "9"}}}),
        "cpu=500m memory=1Gi",
    );
}

#[test]
fn amounts_are_summed_before_they_are_rounded() {
    let tiny = json!({"cpu": "100u"});
    let spec = json!({"containers": [container("a", &tiny), container("b", &tiny), container("c", &tiny)]});
    assert_eq!(pod_requests_of_json(&spec)["cpu"].milli_value(), 1);
}

#[test]
fn overhead_raises_only_limits_that_exist() {
    let mut spec = json!({"containers": [container("a", &json!({"cpu": "1", "memory": "0"}))],
        "overhead": {"cpu": "250m", "memory": "64Mi", "ephemeral-storage": "1Gi"}});
    assert_eq!(written(&pod_limits_of_json(&spec)), "cpu=1250m memory=0");
    spec["resources"] = json!({"limits": {"memory": "1Gi", "example.org/gpu": "1"}});
    assert_eq!(
        written(&pod_limits_of_json(&spec)),
        "cpu=1250m memory=1088Mi"
    );
}

/// Containers `a` and `b` that want, were granted and have an amount of cpu each.
fn resized(amounts: [(&str, &str, &str); 2]) -> Value {
    let named = || ["a", "b"].into_iter().zip(amounts);
    let containers: Vec<Value> = named()
        .map(|(name, (wants, ..))| container(name, &json!({"cpu": wants})))
        .collect();
    let status = |(name, (_, granted, has)): (&str, (&str, &str, &str))| {
        json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": {"cpu": granted}, "resources": {"requests": {"cpu": has}}})
    };
    json!({"spec": {"containers": containers}, "status": {"containerStatuses": named().map(status).collect::<Vec<_>>()}})
}

fn in_force(pod: &Value, unsaid: &Amounts) -> String {
    written(&pod_requests_in_force(
        &serde_json::from_value(pod.clone()).expect("a pod"),
        unsaid,
    ))
}

#[test]
fn a_pod_that_is_resized_counts_with_the_larger_total() {
    let still = ("1", "1", "1");
    for (amounts, expect) in [
        ([still, still], "cpu=2"),
        ([("2", "1", "1"), still], "cpu=3"),
        ([("1", "1", "3"), still], "cpu=4"),
        ([("1", "2", "1"), still], "cpu=3"),
        // One grows by what the other gives back: the pod as a whole never has more.
        ([("2", "1", "1"), ("1", "2", "2")], "cpu=3"),
    ] {
        assert_eq!(
            in_force(&resized(amounts), &Amounts::new()),
            expect,
            "{amounts:?}"
        );
    }
}

#[test]
fn a_resize_that_is_refused_counts_for_nothing() {
    let mut pod = resized([("64", "1", "1"), ("1", "1", "1")]);
    let condition =
        |reason: &str| json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    pod["status"]["conditions"] = condition("Deferred");
    assert_eq!(in_force(&pod, &Amounts::new()), "cpu=65");
    pod["status"]["conditions"] = condition("Infeasible");
    assert_eq!(in_force(&pod, &Amounts::new()), "cpu=2");
}

#[test]
fn what_is_left_unsaid_counts_with_the_given_amount() {
    let parse = |text| Quantity::parse(text).expect("a quantity");
    let unsaid = Amounts::from([
        ("cpu".to_owned(), parse("100m")),
        ("memory".to_owned(), parse("200Mi")),
    ]);
    for (spec, expect) in [
        (
            json!({"containers": [{"name": "a"}]}),
            "cpu=100m memory=200Mi",
        ),
        (
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            "cpu=200m memory=400Mi",
        ),
        // Nothing is said as well.
        (
            json!({"containers": [container("a", &json!({"cpu": "0"}))]}),
            "cpu=0 memory=200Mi",
        ),
        (
            json!({"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "2"}}}),
            "cpu=2 memory=200Mi",
        ),
    ] {
        assert_eq!(in_force(&json!({"spec": spec}), &unsaid), expect, "{spec}");
    }
}
