//! What is told of pods that are there.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    super::existing::{LIMITS, Limits, Stored, warnings},
    asked, container, pod,
};

impl Stored for Value {
    fn pod(&self) -> Option<Value> {
        Some(self.clone()).filter(Value::is_object)
    }
}

const VIOLATE: &str = "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"";

fn named(name: &str, context: Value) -> Value {
    let mut pod = pod(json!({"containers": [container("c", context)]}));
    pod["metadata"]["name"] = name.into();
    pod
}

fn bad(name: &str) -> Value {
    named(name, json!({"privileged": true}))
}

fn owned(name: &str, owner: &str) -> Value {
    let mut pod = bad(name);
    pod["metadata"]["ownerReferences"] = json!([{"uid": owner, "controller": true}]);
    pod
}

fn told(pods: &[impl Stored], limits: Limits) -> Vec<String> {
    warnings(
        "n",
        asked("baseline:latest"),
        pods,
        |class| class == "kata",
        limits,
    )
}

#[test]
fn pods_that_are_alike_are_told_of_by_the_first_of_them() {
    let worse = json!({"privileged": true, "capabilities": {"add": ["NET_RAW"]}});
    let pods = [
        bad("z"),
        named("y", json!({})),
        named("m", worse),
        bad("b"),
        bad("q"),
        named("k", json!({"procMount": "Unmasked"})),
        named("j", json!({"procMount": "Unmasked"})),
    ];
    let expect = [
        VIOLATE,
        "b (and 2 other pods): privileged",
        "j (and 1 other pod): procMount",
        "m: non-default capabilities, privileged",
    ];
    assert_eq!(told(&pods, LIMITS), expect);
    assert_eq!(told(&[named("y", json!({}))], LIMITS), [""; 0]);
    assert_eq!(told(&[] as &[Value], LIMITS), [""; 0]);
}

#[test]
fn so_many_are_looked_at_and_of_each_controller_one_before_its_others() {
    let mut exempt = bad("e");
    exempt["spec"]["runtimeClassName"] = json!("kata");
    let pods = [
        owned("a1", "a"),
        owned("a2", "a"),
        exempt,
        owned("a3", "a"),
        owned("b1", "b"),
        bad("c"),
    ];
    let limited = |pods: usize| Limits { pods, ..LIMITS };
    let first = |checked: usize| {
        format!(
            "new PodSecurity enforce level only checked against the first {checked} of 5 existing pods"
        )
    };
    let told = |at_most: usize| told(&pods, limited(at_most));
    assert_eq!(
        told(3),
        [&first(3), VIOLATE, "a1 (and 2 other pods): privileged"]
    );
    assert_eq!(
        told(4),
        [&first(4), VIOLATE, "a1 (and 3 other pods): privileged"]
    );
    assert_eq!(told(5), [VIOLATE, "a1 (and 4 other pods): privileged"]);
}

/// A pod that takes a while to be read.
struct Slow<'a>(&'a AtomicUsize);

impl Stored for Slow<'_> {
    fn pod(&self) -> Option<Value> {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::thread::park_timeout(Duration::from_millis(20));
        Some(owned("p", "one"))
    }
}

#[test]
fn so_long_are_they_looked_at_and_read() {
    let reads = AtomicUsize::new(0);
    let pods: Vec<Slow<'_>> = (0..500).map(|_| Slow(&reads)).collect();
    let limits = Limits {
        time: Duration::from_millis(30),
        ..LIMITS
    };
    let expect = [
        "new PodSecurity enforce level only checked against the first 1 of 500 existing pods",
        VIOLATE,
        "p: privileged",
    ];
    assert_eq!(told(&pods, limits), expect);
    // Those of one controller are read to be put off, and that has its end, too.
    assert!(reads.load(Ordering::Relaxed) < 10, "{reads:?}");
}

#[test]
fn what_cannot_be_read_is_no_pod() {
    assert_eq!(
        told(&[Value::Null, bad("b")], LIMITS),
        [VIOLATE, "b: privileged"]
    );
}
