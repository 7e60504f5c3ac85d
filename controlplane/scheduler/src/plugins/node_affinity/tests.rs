use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    postings::work,
    testing::{Nodes, filtered, info, node, node_of, pod_with},
};

#[test]
fn preferences_that_a_node_meets_add_up() {
    let mut node = info(&node("n1", "4"));
    node.labels.insert("disk".to_owned(), "ssd".to_owned());
    let prefer = |weight: i32, disk: &str| {
        let requirement = json!({"key": "disk", "operator": "In", "values": [disk]});
        json!({"weight": weight, "preference": {"matchExpressions": [requirement]}})
    };
    let preferred = json!([prefer(3, "ssd"), prefer(5, "nvme"), prefer(7, "ssd")]);
    let affinity =
        json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    let pod = pod_with("p", json!({"containers": [], "affinity": affinity}));
    assert_eq!(
        NodeAffinity::default().score(&CycleState::default(), &pod, &node),
        10
    );
}

#[test]
fn a_node_selector_must_match_whole() {
    let node = info(&node("n1", "4"));
    for (selector, expect) in [
        (json!({"kubernetes.io/hostname": "n1"}), true),
        (json!({"kubernetes.io/hostname": "n1", "x": "y"}), false),
    ] {
        let pod = pod_with("p", json!({"containers": [], "nodeSelector": selector}));
        assert_eq!(
            filtered(&NodeAffinity::default(), &pod, &node).is_success(),
            expect,
            "{selector}"
        );
    }
}

#[test]
fn nodes_that_a_pod_names_are_the_only_ones_looked_at() {
    let field = |names: &[&str]| json!({"key": "metadata.name", "operator": "In", "values": names});
    let label = json!({"key": "disk", "operator": "Exists"});
    for (terms, expected) in [
        (
            json!([{"matchFields": [field(&["a"])]}, {"matchFields": [field(&["b"])]}]),
            Ok(Some(vec!["a", "b"])),
        ),
        (
            json!([{"matchFields": [field(&["a"])]}, {"matchExpressions": [label]}]),
            Ok(None),
        ),
        (
            json!([{"matchFields": [field(&["a", "b"]), field(&["b", "c"])]}]),
            Ok(Some(vec!["b"])),
        ),
        (
            json!([{"matchFields": [field(&["a"]), field(&["b"])]}]),
            Err("pod affinity terms conflict"),
        ),
    ] {
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let pod = pod_with(
            "p",
            json!({"containers": [], "affinity": {"nodeAffinity": required}}),
        );
        let nodes = Nodes::of(&[]);
        let (names, status) =
            NodeAffinity::default().pre_filter(&mut CycleState::default(), &pod, &nodes.snapshot());
        let message = status.message();
        let found = if status.is_success() {
            Ok(names)
        } else {
            Err(message.as_str())
        };
        let expected =
            expected.map(|names| names.map(|names| names.into_iter().map(str::to_owned).collect()));
        assert_eq!(found, expected, "{terms}");
    }
}

#[test]
fn only_a_node_that_matches_now_and_did_not_before_helps() {
    let pod = pod_with(
        "p",
        json!({"containers": [], "nodeSelector": {"disk": "ssd"}}),
    );
    let bare = info(&node("n1", "4"));
    let mut labelled = bare.clone();
    labelled.labels.insert("disk".to_owned(), "ssd".to_owned());
    for (event, expected) in [
        (ClusterEvent::NodeAdded(&labelled), QueueingHint::Queue),
        (ClusterEvent::NodeAdded(&bare), QueueingHint::Skip),
        (
            ClusterEvent::NodeUpdated {
                old: &bare,
                new: &labelled,
            },
            QueueingHint::Queue,
        ),
        (
            ClusterEvent::NodeUpdated {
                old: &labelled,
                new: &labelled,
            },
            QueueingHint::Skip,
        ),
    ] {
        assert_eq!(
            NodeAffinity::default().hint(&pod, &event),
            expected,
            "{event:?}"
        );
    }
}

fn requirement() -> impl Strategy<Value = Value> {
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    (0..6_usize, 0..2_usize, 0..4_usize, any::<bool>()).prop_map(
        move |(operator, key, value, is_right)| {
            let values = if matches!(operators[operator], "Exists" | "DoesNotExist") == is_right {
                json!([])
            } else {
                json!([value.to_string()])
            };
            let key = ["k", "l"][key];
            json!({"key": key, "operator": operators[operator], "values": values})
        },
    )
}

fn a_term() -> impl Strategy<Value = Value> {
    let field = (0..3_usize, any::<bool>()).prop_map(|(node, is_in)| {
        json!({"key": "metadata.name", "operator": if is_in { "In" } else { "NotIn" }, "values": [node.to_string()]})
    });
    (
        proptest::collection::vec(requirement(), 0..3),
        proptest::collection::vec(field, 0..2),
    )
        .prop_map(|(labels, fields)| json!({"matchExpressions": labels, "matchFields": fields}))
}

proptest! {
    /// However many terms there are, they say what each of them says.
    #[test]
    fn many_terms_decide_as_each_would(
        nodes in proptest::collection::vec([proptest::option::of(0..4_usize), proptest::option::of(0..4_usize)], 1..4),
        terms in proptest::collection::vec(a_term(), 1..5),
    ) {
        let nodes: Vec<NodeInfo> = nodes.iter().enumerate().map(|(number, values)| {
            let labels = ["k", "l"].iter().zip(values).filter_map(|(key, value)| {
                Some(((*key).to_owned(), json!(value.as_ref()?.to_string())))
            });
            info(&node_of(&number.to_string(), Value::Object(labels.collect())))
        }).collect();
        let preferred: Vec<Value> = terms.iter().map(|term| json!({"weight": 3, "preference": term})).collect();
        let affinity = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }});
        let pod = pod_with("p", json!({"containers": [], "affinity": affinity}));
        let many = many::Nodes::of(nodes.iter());
        let allowed: Vec<&str> =
            many.allowed(&pod.node_selector, pod.required_nodes().expect("terms")).iter().map(|node| node.name.as_str()).collect();
        let expected: Vec<&str> = nodes.iter().filter(|node| allows(&pod, node)).map(|node| node.name.as_str()).collect();
        prop_assert_eq!(allowed, expected);
        for (node, score) in many.scores(super::preferred(pod.affinity.as_deref())) {
            prop_assert_eq!(score, NodeAffinity::default().score(&CycleState::default(), &pod, node), "{}", node.name);
        }
    }
}

#[test]
fn ten_thousand_terms_are_asked_once_and_not_of_each_node() {
    let nodes: Vec<NodeInfo> = (0..500)
        .map(|number| info(&node(&format!("n{number}"), "4")))
        .collect();
    let nodes = Nodes::of(&nodes.iter().collect::<Vec<_>>());
    let expression =
        |number: usize| json!({"key": "disk", "operator": "In", "values": [number.to_string()]});
    let terms: Vec<Value> = (0..10_000)
        .map(|number| json!({"matchExpressions": [expression(number)]}))
        .collect();
    let required =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let pod = pod_with(
        "p",
        json!({"containers": [], "affinity": {"nodeAffinity": required}}),
    );
    let mut cycle = CycleState::default();
    work::taken();
    NodeAffinity::default().pre_filter(&mut cycle, &pod, &nodes.snapshot());
    assert!(nodes.snapshot().nodes().iter().all(|node| {
        !NodeAffinity::default()
            .filter(&cycle, &pod, node)
            .is_success()
    }));
    assert_eq!(
        work::taken(),
        20_000,
        "a requirement and its value, each once"
    );
    assert!(pod.asks_much);
}
