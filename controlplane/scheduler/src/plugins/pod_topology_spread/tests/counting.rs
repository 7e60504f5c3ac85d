//! Which pods and nodes count.

use super::*;

#[test]
fn pods_that_do_not_count_are_not_counted() {
    let mut cache = cluster([0, 0, 0, 0]);
    cache.observe(Arc::new(pod_in("other", "1", "web", json!({}))), "a");
    cache.observe(Arc::new(pod_in("default", "2", "db", json!({}))), "a");
    let mut ending = pod_in("default", "3", "web", json!({}));
    ending.terminating = true;
    cache.observe(Arc::new(ending), "a");
    let spread = |more| json!({"topologySpreadConstraints": [constraint(HOST, 1, more)]});
    assert!(refused(&pod_in("default", "p", "web", spread(json!({}))), &cache).is_empty());
    cache.observe(Arc::new(pod_in("default", "4", "web", json!({}))), "a");
    assert_eq!(
        refused(&pod_in("default", "p", "web", spread(json!({}))), &cache),
        ["a"]
    );
    // Of another revision.
    let of_revision = |name: &str, hash: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": "default", "uid": name, "labels": {"app": "web", "hash": hash}});
        pod_of(json!({"metadata": metadata, "spec": spec}))
    };
    let mut spec = spread(json!({"matchLabelKeys": ["hash"]}));
    spec["containers"] = json!([]);
    assert!(refused(&of_revision("p", "2", spec), &cache).is_empty());
}

#[test]
fn nodes_without_a_place_and_those_that_do_not_count() {
    let mut cache = cluster([1, 0, 0, 0]);
    cache.set_node(&node_of("bare", json!({HOST: "bare"})));
    let zones = json!({"topologySpreadConstraints": [constraint(ZONE, 1, json!({}))]});
    let said: Vec<_> = statuses(&pod_in("default", "p", "web", zones), &cache)
        .into_iter()
        .filter(|(_, status)| !status.is_success())
        .map(|(name, status)| (name, status.code(), status.message()))
        .collect();
    assert_eq!(
        said,
        [
            ("a".to_owned(), Code::Unschedulable, NOT_MATCHED.to_owned()),
            ("b".to_owned(), Code::Unschedulable, NOT_MATCHED.to_owned()),
            (
                "bare".to_owned(),
                Code::UnschedulableAndUnresolvable,
                LABEL_MISSING.to_owned()
            ),
        ]
    );
    // x and y are empty and tainted: they count, unless taints do.
    let mut cache = cluster([1, 1, 0, 0]);
    for name in ["x", "y"] {
        let mut node = node_of(name, json!({ZONE: "2", HOST: name}));
        let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        node.spec = Some(serde_json::from_value(taint).expect("a spec"));
        cache.set_node(&node);
    }
    for (policy, expected) in [("Ignore", vec!["a", "b"]), ("Honor", vec![])] {
        let spread = json!({"topologySpreadConstraints": [constraint(HOST, 1, json!({"nodeTaintsPolicy": policy}))]});
        assert_eq!(
            refused(&pod_in("default", "p", "web", spread), &cache),
            expected,
            "{policy}"
        );
    }
}
