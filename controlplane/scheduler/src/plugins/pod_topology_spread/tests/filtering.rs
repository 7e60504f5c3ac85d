//! Who may take one pod more. After the cases of `filtering_test.go`.

use super::*;

/// A claim, the pods on each node, the constraints, and the nodes that are refused.
type Case = (&'static str, [usize; 4], Value, &'static [&'static str]);

fn check<const N: usize>(app: &str, affinity: Value, cases: [Case; N]) {
    for (claim, pods, constraints, expected) in cases {
        let spec = json!({"topologySpreadConstraints": constraints, "affinity": affinity});
        let pod = pod_in("default", "p", app, spec);
        assert_eq!(refused(&pod, &cluster(pods)), expected, "{claim}");
    }
}

fn zones(more: Value) -> Value {
    json!([constraint(ZONE, 1, more)])
}

fn hosts(skew: i32) -> Value {
    json!([constraint(HOST, skew, json!({}))])
}

#[test]
fn no_place_gets_more_than_it_may() {
    let both = json!([
        constraint(ZONE, 1, json!({})),
        constraint(HOST, 1, json!({}))
    ]);
    let cases: [Case; 7] = [
        ("no constraint", [9, 0, 0, 0], json!([]), &[]),
        ("no pods", [0, 0, 0, 0], zones(json!({})), &[]),
        ("3/3", [2, 1, 0, 3], zones(json!({})), &[]),
        ("3/2", [2, 1, 1, 1], zones(json!({})), &["a", "b"]),
        ("2/1/0/3", [2, 1, 0, 3], hosts(1), &["a", "b", "y"]),
        ("2/1/0/3 by two", [2, 1, 0, 3], hosts(2), &["a", "y"]),
        ("two constraints", [2, 1, 0, 2], both, &["a", "b", "y"]),
    ];
    check("web", Value::Null, cases);
    let case: Case = ("not of its kind", [2, 1, 0, 3], hosts(1), &["a", "y"]);
    check("db", Value::Null, [case]);
}

#[test]
fn only_places_where_the_pod_may_be_count() {
    let expression = json!({"key": HOST, "operator": "In", "values": ["a", "y"]});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
    let everywhere = json!([constraint(HOST, 1, json!({"nodeAffinityPolicy": "Ignore"}))]);
    let cases: [Case; 2] = [
        ("by default", [2, 1, 0, 3], hosts(1), &["y"]),
        ("ignored", [2, 1, 0, 3], everywhere, &["a", "b", "y"]),
    ];
    check("web", json!({"nodeAffinity": required}), cases);
}

#[test]
fn places_that_are_still_to_come_are_empty() {
    let at_least = |places: i32| zones(json!({"minDomains": places}));
    let cases: [Case; 2] = [
        ("too few", [1, 0, 1, 0], at_least(3), &["a", "b", "x", "y"]),
        ("enough", [1, 0, 1, 0], at_least(2), &[]),
    ];
    check("web", Value::Null, cases);
}
