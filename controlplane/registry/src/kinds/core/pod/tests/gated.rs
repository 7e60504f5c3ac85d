//! What an update may change of where a gated pod may go.

use serde_json::{Value, json};

use super::{Pod, pod};
use crate::testing::{created, update_errors, with};

const TERMS: &str =
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";

fn gated(fields: Value) -> Value {
    let mut pod = pod();
    pod["spec"]["schedulingGates"] = json!([{"name": "example.org/queue"}]);
    for (field, value) in fields
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, value)| !value.is_null())
    {
        pod["spec"][field] = value.clone();
    }
    created(&Pod, pod)
}

fn affinity(terms: Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn key(key: &str) -> Value {
    json!({"key": key, "operator": "Exists"})
}

#[test]
fn a_gated_pods_node_selector_grows_only() {
    let check = |old: Value, new: Value, expect: &str| {
        let old = gated(json!({"nodeSelector": old}));
        assert_eq!(
            update_errors(&Pod, with(&old, "/spec/nodeSelector", new), &old),
            expect
        );
    };
    check(json!({"a": "1"}), json!({"a": "1", "b": "2"}), "");
    check(Value::Null, json!({"b": "2"}), "");
    for (new, shown) in [
        (json!({"a": "2"}), "{\"a\":\"2\"}"),
        (json!({"b": "1"}), "{\"b\":\"1\"}"),
    ] {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        check(
            json!({"a": "1"}),
            new,
            &format!("spec.nodeSelector: Invalid value: {shown}: {why}"),
        );
    }
}

#[test]
fn a_gated_pods_node_affinity_is_narrowed_only() {
    let term = |keys: &[&str]| json!({"matchExpressions": keys.iter().map(|one| key(one)).collect::<Vec<_>>()});
    let check = |old: &Value, new: &Value, expect: &str| {
        let old = gated(json!({"affinity": old}));
        let errors = update_errors(&Pod, with(&old, "/spec/affinity", new.clone()), &old);
        assert!(
            errors.contains(expect) && errors.is_empty() == expect.is_empty(),
            "{new}: {errors}"
        );
    };
    let one = affinity(json!([term(&["a"])]));
    check(&Value::Null, &one, "");
    check(&one, &affinity(json!([term(&["a", "b"])])), "");
    let additions = format!("{TERMS}[0]: Invalid value: ");
    check(&one, &affinity(json!([term(&["b"])])), &additions);
    check(&one, &affinity(json!([term(&["b", "a"])])), &additions);
    check(
        &affinity(json!([{}])),
        &affinity(json!([term(&["a"])])),
        &additions,
    );
    let count = format!("{TERMS}: Invalid value: ");
    check(&one, &affinity(json!([term(&["a"]), term(&["b"])])), &count);
    check(&one, &Value::Null, &count);
    let mut preferring = one.clone();
    preferring["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
        json!([{"weight": 1, "preference": term(&["b"])}]);
    check(&one, &preferring, "");
    let mut apart = one.clone();
    apart["podAntiAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}]});
    check(
        &one,
        &apart,
        "spec: Forbidden: pod updates may not change fields other than",
    );
    check(
        &Value::Null,
        &apart,
        "spec: Forbidden: pod updates may not change fields other than",
    );
}

#[test]
fn without_a_gate_nothing_of_it_changes() {
    let old = created(&Pod, pod());
    let errors = update_errors(
        &Pod,
        with(&old, "/spec/nodeSelector", json!({"a": "b"})),
        &old,
    );
    assert!(
        errors.starts_with("spec: Forbidden: pod updates may not change fields"),
        "{errors}"
    );
}
