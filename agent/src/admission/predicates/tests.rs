use serde_json::{Value, json};

use super::{
    super::{
        admit,
        listening::{Listeners, Socket},
        sysctl::AllowList,
    },
    *,
};

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec}))
        .expect("pod")
}

fn asking(requests: Value) -> Value {
    json!({"containers": [{"name": "a", "resources": {"requests": requests}}]})
}

fn node() -> NodeInfo {
    let allocatable = [
        ("cpu", 2000),
        ("memory", 1 << 30),
        ("ephemeral-storage", 1000),
        ("pods", 3),
        ("a.test/x", 2),
    ];
    NodeInfo {
        name: "n1".to_owned(),
        labels: [
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("size".to_owned(), "7".to_owned()),
        ]
        .into(),
        taints: Vec::new(),
        allocatable: allocatable
            .into_iter()
            .map(|(name, amount)| (name.to_owned(), amount))
            .collect(),
        sysctls: AllowList::default(),
        apparmor: || None,
        listeners: Listeners::new(|| {
            let (all, one) = ([0; 4].into(), [192, 0, 2, 1].into());
            vec![Socket::listener(all, 6443), Socket::listener(one, 53)]
        }),
    }
}

fn judge(spec: Value, others: &[Value]) -> Option<(String, String)> {
    let others: Vec<Pod> = others.iter().map(|spec| pod(spec.clone())).collect();
    admit(&pod(spec), &node(), &others.iter().collect::<Vec<_>>())
        .err()
        .map(|why| (why.reason, why.message))
}

#[test]
fn too_much_is_refused_in_upstreams_words() {
    let one = asking(json!({"cpu": "1", "a.test/x": "1"}));
    let none = json!({"containers": [{"name": "a"}]});
    let cases = [
        (asking(json!({"cpu": "2"})), vec![], None),
        (
            asking(json!({"cpu": "1001m"})),
            vec![one.clone()],
            Some((
                "OutOfcpu",
                "cpu, requested: 1001, used: 1000, capacity: 2000",
            )),
        ),
        (
            asking(json!({"memory": "2Gi"})),
            vec![],
            Some((
                "OutOfmemory",
                "memory, requested: 2147483648, used: 0, capacity: 1073741824",
            )),
        ),
        (
            asking(json!({"ephemeral-storage": "1001"})),
            vec![],
            Some((
                "OutOfephemeral-storage",
                "ephemeral-storage, requested: 1001, used: 0, capacity: 1000",
            )),
        ),
        (
            none.clone(),
            vec![none.clone(), none.clone(), none.clone()],
            Some(("OutOfpods", "pods, requested: 1, used: 3, capacity: 3")),
        ),
        (
            asking(json!({"a.test/x": "2"})),
            vec![one],
            Some((
                "OutOfa.test/x",
                "a.test/x, requested: 2, used: 1, capacity: 2",
            )),
        ),
        // Not this node's to hand out.
        (asking(json!({"b.test/y": "5"})), vec![], None),
        (
            asking(json!({"hugepages-2Mi": "2Mi"})),
            vec![],
            Some((
                "OutOfhugepages-2Mi",
                "hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
            )),
        ),
    ];
    for (spec, others, expected) in cases {
        let expected = expected.map(|(reason, text)| {
            (
                reason.to_owned(),
                format!("Node didn't have enough resource: {text}"),
            )
        });
        assert_eq!(judge(spec.clone(), &others), expected, "{spec}");
    }
}

#[test]
fn a_host_port_is_taken_once() {
    let with = |port: Value| json!({"containers": [{"name": "a", "ports": [port]}]});
    let web = with(json!({"containerPort": 80, "hostPort": 80}));
    let cases = [
        (with(json!({"containerPort": 8080, "hostPort": 80})), true),
        (
            with(json!({"containerPort": 80, "hostPort": 80, "hostIP": "127.0.0.1"})),
            true,
        ),
        (
            with(json!({"containerPort": 80, "hostPort": 80, "protocol": "UDP"})),
            false,
        ),
        (with(json!({"containerPort": 80, "hostPort": 81})), false),
        (with(json!({"containerPort": 80})), false),
    ];
    for (spec, refused) in cases {
        let found = judge(spec.clone(), std::slice::from_ref(&web));
        let expected = refused.then(|| {
            let text = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
            ("NodePorts".to_owned(), text.to_owned())
        });
        assert_eq!(found, expected, "{spec}");
    }
    let (local, other) = (
        json!({"containerPort": 1, "hostPort": 1, "hostIP": "127.0.0.1"}),
        "127.0.0.2",
    );
    assert_eq!(
        judge(
            with(json!({"containerPort": 1, "hostPort": 1, "hostIP": other})),
            &[with(local)]
        ),
        None
    );
}

#[test]
fn no_port_is_published_over_a_listener_of_the_node() {
    let with = |port: Value| json!({"containers": [{"name": "a", "ports": [port]}]});
    for (port, refused) in [
        (json!({"containerPort": 80, "hostPort": 6443}), true),
        (
            json!({"containerPort": 80, "hostPort": 6443, "hostIP": "192.0.2.1"}),
            true,
        ),
        (json!({"containerPort": 80, "hostPort": 53}), true),
        (
            json!({"containerPort": 80, "hostPort": 53, "hostIP": "192.0.2.2"}),
            false,
        ),
        (
            json!({"containerPort": 80, "hostPort": 6443, "protocol": "UDP"}),
            false,
        ),
        (json!({"containerPort": 6443}), false),
    ] {
        let reason = judge(with(port.clone()), &[]).map(|(reason, _)| reason);
        assert_eq!(reason.as_deref(), refused.then_some("NodePorts"), "{port}");
    }
    let port = json!({"containerPort": 80, "hostPort": 53});
    let (_, said) = judge(with(port), &[]).unwrap();
    let who =
        "the node itself listens at 192.0.2.1, TCP port 53; choose another hostPort, or a hostIP";
    assert!(said.contains(who), "{said}");
    // It listens itself, or fails in its own container: nothing is taken away.
    let mut own = with(json!({"containerPort": 6443, "hostPort": 6443}));
    own["hostNetwork"] = json!(true);
    assert_eq!(judge(own, &[]), None);
}

#[test]
fn a_pod_for_another_node_is_refused() {
    let term = |expression: Value| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [expression]}}})
    };
    let cases = [
        (json!({"nodeSelector": {"size": "7"}}), None),
        (json!({"nodeSelector": {"size": "8"}}), Some("NodeAffinity")),
        (
            json!({"affinity": term(json!({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["6"]}]}))}),
            None,
        ),
        (
            json!({"affinity": term(json!({"matchExpressions": [{"key": "size", "operator": "DoesNotExist"}]}))}),
            Some("NodeAffinity"),
        ),
        (
            json!({"affinity": term(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}))}),
            None,
        ),
        (json!({"affinity": term(json!({}))}), Some("NodeAffinity")),
    ];
    for (spec, expected) in cases {
        let mut full = spec.clone();
        full["containers"] = json!([]);
        assert_eq!(
            judge(full, &[]).map(|(reason, _)| reason).as_deref(),
            expected,
            "{spec}"
        );
    }
}

#[test]
fn only_taints_that_end_pods_keep_them_out() {
    let judge = |effect: &str, tolerations: Value| {
        let taint = json!({"key": "k", "value": "v", "effect": effect});
        let node = NodeInfo {
            taints: vec![serde_json::from_value(taint).expect("taint")],
            ..node()
        };
        admit(
            &pod(json!({"containers": [], "tolerations": tolerations})),
            &node,
            &[],
        )
        .err()
        .map(|why| why.reason)
    };
    assert_eq!(judge("NoSchedule", json!([])), None);
    assert_eq!(
        judge("NoExecute", json!([])).as_deref(),
        Some("TaintToleration")
    );
    assert_eq!(
        judge(
            "NoExecute",
            json!([{"key": "k", "operator": "Equal", "value": "v"}])
        ),
        None
    );
    assert_eq!(
        judge(
            "NoExecute",
            json!([{"operator": "Exists", "effect": "NoExecute"}])
        ),
        None
    );
    assert_eq!(
        judge("NoExecute", json!([{"key": "other", "operator": "Exists"}])).as_deref(),
        Some("TaintToleration")
    );
}
