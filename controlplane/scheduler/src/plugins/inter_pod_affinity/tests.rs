mod cost;

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    cache::Cache,
    framework::{Code, PreScore, Score},
    pod_info::PodUid,
    testing::{node_of, pod_of},
};

const ZONE: &str = "zone";

fn labelled(name: &str, namespace: &str, labels: &Value, affinity: &Value) -> PodInfo {
    let metadata = json!({"name": name, "namespace": namespace, "uid": name, "labels": labels});
    pod_of(json!({"metadata": metadata, "spec": {"containers": [], "affinity": affinity}}))
}

/// Two nodes of one zone, one of another, one of none.
fn cluster(placed: Vec<(PodInfo, &str)>) -> Cache {
    let mut cache = Cache::default();
    for (name, zone) in [
        ("a1", Some("a")),
        ("a2", Some("a")),
        ("b1", Some("b")),
        ("bare", None),
    ] {
        let mut labels = json!({"kubernetes.io/hostname": name});
        if let Some(zone) = zone {
            labels[ZONE] = json!(zone);
        }
        cache.set_node(&node_of(name, labels));
    }
    for (namespace, team) in [("default", "blue"), ("other", "red")] {
        cache.set_namespace(namespace, [("team".to_owned(), team.to_owned())].into());
    }
    for (pod, node) in placed {
        cache.observe(Arc::new(pod), node);
    }
    cache
}

/// What is said of each node; nothing of those that are fine.
fn refused(pod: &PodInfo, cache: &Cache) -> Vec<(String, String)> {
    let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
    let (_, status) = InterPodAffinity.pre_filter(&mut cycle, pod, &snapshot);
    if status.code() == Code::Skip {
        return Vec::new();
    }
    let statuses = snapshot.nodes().iter().map(|node| {
        (
            node.name.clone(),
            InterPodAffinity.filter(&cycle, pod, node).message(),
        )
    });
    statuses
        .filter(|(_, message)| !message.is_empty())
        .collect()
}

fn term(key: &str, selector: Value) -> Value {
    json!({"labelSelector": selector, "topologyKey": key})
}

fn app(name: &str) -> Value {
    json!({"matchLabels": {"app": name}})
}

fn near(terms: Value) -> Value {
    json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}

fn apart(terms: Value) -> Value {
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}

fn expression(operator: &str, values: Value) -> Value {
    json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]})
}

/// After the cases of `filtering_test.go`.
#[test]
fn what_is_required_holds() {
    const EVERYWHERE: &[&str] = &["a1", "a2", "b1", "bare"];
    let db = || {
        vec![(
            labelled("db", "default", &json!({"app": "db"}), &Value::Null),
            "a1",
        )]
    };
    let elsewhere = || {
        vec![(
            labelled("db", "other", &json!({"app": "db"}), &Value::Null),
            "a1",
        )]
    };
    let keeps_apart = |term: Value| {
        vec![(
            labelled(
                "shy",
                "default",
                &json!({"app": "db"}),
                &apart(json!([term])),
            ),
            "a1",
        )]
    };
    let with = |mut term: Value, key: &str, value: Value| {
        term[key] = value;
        term
    };
    let host = "kubernetes.io/hostname";
    type Case = (
        &'static str,
        Value,
        Vec<(PodInfo, &'static str)>,
        &'static str,
        &'static [&'static str],
    );
    let cases: [Case; 21] = [
        ("no terms", Value::Null, db(), AFFINITY, &[]),
        (
            "In",
            near(json!([term(ZONE, expression("In", json!(["db", "x"])))])),
            db(),
            AFFINITY,
            &["b1", "bare"],
        ),
        (
            "NotIn",
            near(json!([term(ZONE, expression("NotIn", json!(["x"])))])),
            db(),
            AFFINITY,
            &["b1", "bare"],
        ),
        (
            "none is meant",
            near(json!([term(ZONE, app("x"))])),
            db(),
            AFFINITY,
            EVERYWHERE,
        ),
        (
            "a null selector means nobody",
            near(json!([{"topologyKey": ZONE}])),
            db(),
            AFFINITY,
            EVERYWHERE,
        ),
        (
            "all terms have to mean the same pod",
            near(json!([term(ZONE, app("db")), term(host, app("x"))])),
            db(),
            AFFINITY,
            EVERYWHERE,
        ),
        (
            "each term has its place",
            near(json!([term(ZONE, app("db")), term(host, app("db"))])),
            db(),
            AFFINITY,
            &["a2", "b1", "bare"],
        ),
        (
            "another namespace",
            near(json!([term(ZONE, app("db"))])),
            elsewhere(),
            AFFINITY,
            EVERYWHERE,
        ),
        (
            "a namespace by name",
            near(json!([with(
                term(ZONE, app("db")),
                "namespaces",
                json!(["other"])
            )])),
            elsewhere(),
            AFFINITY,
            &["b1", "bare"],
        ),
        (
            "namespaces by label",
            near(json!([with(
                term(ZONE, app("db")),
                "namespaceSelector",
                json!({"matchLabels": {"team": "red"}})
            )])),
            elsewhere(),
            AFFINITY,
            &["b1", "bare"],
        ),
        (
            "other namespaces by label",
            near(json!([with(
                term(ZONE, app("db")),
                "namespaceSelector",
                json!({"matchLabels": {"team": "blue"}})
            )])),
            elsewhere(),
            AFFINITY,
            EVERYWHERE,
        ),
        (
            "all namespaces",
            near(json!([with(
                term(ZONE, app("db")),
                "namespaceSelector",
                json!({})
            )])),
            elsewhere(),
            AFFINITY,
            &["b1", "bare"],
        ),
        (
            "the first of a series",
            near(json!([term(ZONE, app("web"))])),
            db(),
            AFFINITY,
            &["bare"],
        ),
        (
            "apart from a zone",
            apart(json!([term(ZONE, app("db"))])),
            db(),
            ANTI_AFFINITY,
            &["a1", "a2"],
        ),
        (
            "apart from a node",
            apart(json!([term(host, app("db"))])),
            db(),
            ANTI_AFFINITY,
            &["a1"],
        ),
        (
            "apart by any term",
            apart(json!([term(host, app("x")), term(ZONE, app("db"))])),
            db(),
            ANTI_AFFINITY,
            &["a1", "a2"],
        ),
        (
            "apart from nobody",
            apart(json!([term(ZONE, app("x"))])),
            db(),
            ANTI_AFFINITY,
            &[],
        ),
        (
            "others keep apart",
            Value::Null,
            keeps_apart(term(ZONE, app("web"))),
            EXISTING_ANTI_AFFINITY,
            &["a1", "a2"],
        ),
        (
            "others keep apart from others",
            Value::Null,
            keeps_apart(term(ZONE, app("x"))),
            EXISTING_ANTI_AFFINITY,
            &[],
        ),
        (
            "the same value of a label",
            near(json!([with(
                term(ZONE, app("db")),
                "matchLabelKeys",
                json!(["hash"])
            )])),
            db(),
            AFFINITY,
            EVERYWHERE,
        ),
        (
            "another value of a label",
            near(json!([with(
                term(ZONE, app("db")),
                "mismatchLabelKeys",
                json!(["hash"])
            )])),
            db(),
            AFFINITY,
            &["b1", "bare"],
        ),
    ];
    for (name, affinity, placed, message, expected) in cases {
        let pod = labelled(
            "p",
            "default",
            &json!({"app": "web", "hash": "1"}),
            &affinity,
        );
        let expected: Vec<_> = expected
            .iter()
            .map(|node| ((*node).to_owned(), message.to_owned()))
            .collect();
        assert_eq!(refused(&pod, &cluster(placed)), expected, "{name}");
    }
}

#[test]
fn without_a_pod_it_would_have_to_be_near_no_end_of_a_pod_helps() {
    let cache = cluster(vec![(
        labelled("db", "default", &json!({"app": "db"}), &Value::Null),
        "a1",
    )]);
    for (affinity, expected) in [
        (
            near(json!([term(ZONE, app("x"))])),
            Code::UnschedulableAndUnresolvable,
        ),
        (apart(json!([term(ZONE, app("db"))])), Code::Unschedulable),
    ] {
        let pod = labelled("p", "default", &json!({"app": "web"}), &affinity);
        let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
        InterPodAffinity.pre_filter(&mut cycle, &pod, &snapshot);
        let node = snapshot.node("a1").expect("a1");
        assert_eq!(
            InterPodAffinity.filter(&cycle, &pod, node).code(),
            expected,
            "{affinity}"
        );
    }
}

fn wish(side: &str, weight: i64, app_name: &str) -> Value {
    let preferred = json!([{"weight": weight, "podAffinityTerm": term(ZONE, app(app_name))}]);
    json!({ side: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
}

/// After the cases of `scoring_test.go`.
#[test]
fn what_is_wished_for_by_either_side_decides() {
    let plain = |name: &str, app: &str, node| {
        (
            labelled(name, "default", &json!({"app": app}), &Value::Null),
            node,
        )
    };
    let wishing = |name: &str, affinity: Value, node| {
        (
            labelled(name, "default", &json!({"app": "x"}), &affinity),
            node,
        )
    };
    let cases = [
        (
            "near db",
            wish("podAffinity", 5, "db"),
            vec![plain("1", "db", "a1"), plain("2", "x", "b1")],
            [100, 100, 0, 0],
        ),
        (
            "apart from db",
            wish("podAntiAffinity", 5, "db"),
            vec![plain("1", "db", "a1")],
            [0, 0, 100, 100],
        ),
        (
            "more is better",
            wish("podAffinity", 1, "db"),
            vec![
                plain("1", "db", "a1"),
                plain("2", "db", "a2"),
                plain("3", "db", "b1"),
            ],
            [100, 100, 50, 0],
        ),
        (
            "others want it",
            Value::Null,
            vec![wishing("1", wish("podAffinity", 8, "web"), "b1")],
            [0, 0, 100, 0],
        ),
        (
            "others do not",
            Value::Null,
            vec![wishing("1", wish("podAntiAffinity", 8, "web"), "b1")],
            [100, 100, 0, 100],
        ),
        (
            "others require it",
            Value::Null,
            vec![wishing("1", near(json!([term(ZONE, app("web"))])), "b1")],
            [0, 0, 100, 0],
        ),
    ];
    for (name, affinity, placed, expected) in cases {
        let cache = cluster(placed);
        let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
        let pod = labelled("p", "default", &json!({"app": "web"}), &affinity);
        let feasible: Vec<&NodeInfo> = snapshot.nodes().iter().collect();
        let status = InterPodAffinity.pre_score(&mut cycle, &pod, &feasible, &snapshot);
        assert!(status.is_success(), "{name}");
        let mut scores: Vec<i64> = feasible
            .iter()
            .map(|node| InterPodAffinity.score(&cycle, &pod, node))
            .collect();
        InterPodAffinity.normalize(&pod, &feasible, &mut scores);
        assert_eq!(scores, expected, "{name}");
    }
    let cache = cluster(vec![plain("1", "db", "a1")]);
    let (mut cycle, pod) = (
        CycleState::default(),
        labelled("p", "default", &json!({}), &Value::Null),
    );
    let status = InterPodAffinity.pre_score(&mut cycle, &pod, &[], &cache.snapshot());
    assert_eq!(status.code(), Code::Skip, "nobody wishes for anything");
}

#[test]
fn only_pods_that_terms_mean_are_worth_an_attempt() {
    let pod = |name: &str, namespace: &str, app: &str| {
        labelled(name, namespace, &json!({"app": app}), &Value::Null)
    };
    let (db, x, foreign) = (
        pod("1", "default", "db"),
        pod("2", "default", "x"),
        pod("3", "other", "db"),
    );
    let shy = labelled(
        "4",
        "default",
        &json!({"app": "x"}),
        &apart(json!([term(ZONE, app("web"))])),
    );
    let wants = labelled(
        "p",
        "default",
        &json!({"app": "web"}),
        &near(json!([term(ZONE, app("db"))])),
    );
    let avoids = labelled(
        "p",
        "default",
        &json!({"app": "web"}),
        &apart(json!([term(ZONE, app("db"))])),
    );
    let (in_zone, bare) = (
        crate::testing::info(&node_of("n", json!({ZONE: "a"}))),
        crate::testing::info(&node_of("n", json!({}))),
    );
    for (number, (waiting, event, expected)) in [
        (
            &wants,
            ClusterEvent::AssignedPodAdded(&db),
            QueueingHint::Queue,
        ),
        (
            &wants,
            ClusterEvent::AssignedPodAdded(&x),
            QueueingHint::Skip,
        ),
        (
            &wants,
            ClusterEvent::AssignedPodAdded(&foreign),
            QueueingHint::Skip,
        ),
        (
            &wants,
            ClusterEvent::AssignedPodDeleted(&db),
            QueueingHint::Skip,
        ),
        (
            &wants,
            ClusterEvent::AssignedPodUpdated { old: &x, new: &db },
            QueueingHint::Queue,
        ),
        (
            &wants,
            ClusterEvent::NodeAdded(&in_zone),
            QueueingHint::Queue,
        ),
        (&wants, ClusterEvent::NodeAdded(&bare), QueueingHint::Skip),
        (
            &wants,
            ClusterEvent::NodeUpdated {
                old: &bare,
                new: &in_zone,
            },
            QueueingHint::Queue,
        ),
        (
            &avoids,
            ClusterEvent::AssignedPodAdded(&db),
            QueueingHint::Skip,
        ),
        (
            &avoids,
            ClusterEvent::AssignedPodDeleted(&db),
            QueueingHint::Queue,
        ),
        (
            &avoids,
            ClusterEvent::AssignedPodDeleted(&x),
            QueueingHint::Skip,
        ),
        (
            &avoids,
            ClusterEvent::AssignedPodUpdated { old: &db, new: &x },
            QueueingHint::Queue,
        ),
        (
            &wants,
            ClusterEvent::AssignedPodDeleted(&shy),
            QueueingHint::Queue,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(
            InterPodAffinity.hint(waiting, &event),
            expected,
            "{number}: {event:?}"
        );
    }
}

/// A pod of the property test: its namespace, its app, and the apps that it requires near and
/// apart, by which key, in which namespace.
#[derive(Debug, Clone)]
struct Simple {
    namespace: usize,
    app: usize,
    near: Vec<(usize, usize, usize)>,
    apart: Vec<(usize, usize, usize)>,
}

const NAMESPACES: [&str; 2] = ["default", "other"];
const APPS: [&str; 3] = ["x", "y", "z"];
const KEYS: [&str; 2] = [ZONE, "rack"];

impl Simple {
    fn pod(&self, name: &str) -> PodInfo {
        let terms = |terms: &[(usize, usize, usize)]| {
            let terms = terms.iter().map(|(namespace, app_of, key)| {
                let mut one = term(KEYS[*key], app(APPS[*app_of]));
                one["namespaces"] = json!([NAMESPACES[*namespace]]);
                one
            });
            terms.collect::<Vec<_>>()
        };
        let affinity = json!({
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms(&self.near)},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms(&self.apart)},
        });
        labelled(
            name,
            NAMESPACES[self.namespace],
            &json!({"app": APPS[self.app]}),
            &affinity,
        )
    }

    fn is_meant(&self, (namespace, app, _): &(usize, usize, usize)) -> bool {
        self.namespace == *namespace && self.app == *app
    }
}

/// The pod with a hundred more terms that mean nobody.
fn with_many_terms(pod: &PodInfo) -> PodInfo {
    let nobodys = (0..100).map(|number| term(KEYS[number % 2], app(&format!("nobodys-{number}"))));
    let wishes = nobodys
        .clone()
        .map(|term| json!({"weight": 1, "podAffinityTerm": term}));
    let more = labelled(
        "more",
        &pod.namespace,
        &json!({}),
        &json!({"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": nobodys.collect::<Vec<_>>(),
            "preferredDuringSchedulingIgnoredDuringExecution": wishes.collect::<Vec<_>>(),
        }}),
    );
    PodInfo {
        terms: Arc::new(pod.terms.with(&more.terms)),
        ..pod.clone()
    }
}

/// What PreScore and Score say of each node.
fn scores(pod: &PodInfo, cache: &Cache) -> Vec<i64> {
    let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
    InterPodAffinity.pre_score(&mut cycle, pod, &[], &snapshot);
    snapshot
        .nodes()
        .iter()
        .map(|node| InterPodAffinity.score(&cycle, pod, node))
        .collect()
}

/// The values of a node's labels, if it has them.
type SimpleNode = [Option<usize>; 2];

/// Word for word what the API promises, without any count.
fn allows(
    pod: &Simple,
    node: &SimpleNode,
    nodes: &[SimpleNode],
    placed: &[(Simple, usize)],
) -> bool {
    let together = |other: usize, key: usize| node[key].is_some() && node[key] == nodes[other][key];
    let meant_by_all = |other: &Simple| pod.near.iter().all(|term| other.is_meant(term));
    let has_company = |term: &(usize, usize, usize)| {
        placed
            .iter()
            .any(|(other, place)| meant_by_all(other) && together(*place, term.2))
    };
    let in_places = pod.near.iter().all(|term| node[term.2].is_some());
    let is_first = !placed.iter().any(|(other, place)| {
        meant_by_all(other) && pod.near.iter().any(|term| nodes[*place][term.2].is_some())
    });
    let near = in_places && (pod.near.iter().all(has_company) || is_first && meant_by_all(pod));
    let apart = placed.iter().all(|(other, place)| {
        let by_own = pod
            .apart
            .iter()
            .any(|term| other.is_meant(term) && together(*place, term.2));
        let by_other = other
            .apart
            .iter()
            .any(|term| pod.is_meant(term) && together(*place, term.2));
        !by_own && !by_other
    });
    near && apart
}

fn simple() -> impl Strategy<Value = Simple> {
    let terms = || proptest::collection::vec((0..2_usize, 0..3_usize, 0..2_usize), 0..3);
    (0..2_usize, 0..3_usize, terms(), terms()).prop_map(|(namespace, app, near, apart)| Simple {
        namespace,
        app,
        near,
        apart,
    })
}

proptest! {
    #[test]
    fn counts_decide_as_the_rules_say(
        nodes in proptest::collection::vec([proptest::option::of(0..2_usize), proptest::option::of(0..2_usize)], 1..5),
        placed in proptest::collection::vec((simple(), 0..4_usize), 0..8),
        pod in simple(),
    ) {
        let placed: Vec<_> = placed.into_iter().map(|(pod, place)| (pod, place % nodes.len())).collect();
        let mut cache = Cache::default();
        for (number, labels) in nodes.iter().enumerate() {
            let known = KEYS.iter().zip(labels).filter_map(|(key, value)| Some(((*key).to_owned(), json!(value.as_ref()?.to_string()))));
            cache.set_node(&node_of(&number.to_string(), Value::Object(known.collect())));
        }
        for (number, (pod, place)) in placed.iter().enumerate() {
            cache.observe(Arc::new(pod.pod(&number.to_string())), &place.to_string());
        }
        let few = pod.pod("p");
        let refused = refused(&few, &cache);
        // However much is said beside that means nobody.
        let many = with_many_terms(&few);
        prop_assert_eq!(&self::refused(&many, &cache), &refused);
        prop_assert_eq!(scores(&many, &cache), scores(&few, &cache));
        for (number, node) in nodes.iter().enumerate() {
            let is_refused = refused.iter().any(|(name, _)| *name == number.to_string());
            prop_assert_eq!(!is_refused, allows(&pod, node, &nodes, &placed), "node {}: {:?}", number, refused);
        }
        for number in 0..placed.len() {
            cache.remove_pod(&PodUid(number.to_string().into()));
        }
        prop_assert!(cache.snapshot().declared().is_empty() && cache.snapshot().likes().is_empty());
    }

    /// An event after which the pod fits where it did not must not be taken for one that does not
    /// help.
    #[test]
    fn no_event_that_helps_is_missed(
        nodes in proptest::collection::vec([proptest::option::of(0..2_usize), proptest::option::of(0..2_usize)], 1..4),
        placed in proptest::collection::vec((simple(), 0..4_usize), 0..5),
        changing in (simple(), 0..4_usize),
        pod in simple(),
    ) {
        let cluster = |placed: &[&(Simple, usize)]| {
            let mut cache = Cache::default();
            for (number, labels) in nodes.iter().enumerate() {
                let known = KEYS.iter().zip(labels).filter_map(|(key, value)| {
                    Some(((*key).to_owned(), json!(value.as_ref()?.to_string())))
                });
                cache.set_node(&node_of(&number.to_string(), Value::Object(known.collect())));
            }
            for (number, (pod, place)) in placed.iter().enumerate() {
                cache.observe(Arc::new(pod.pod(&number.to_string())), &(place % nodes.len()).to_string());
            }
            cache
        };
        let waiting = pod.pod("p");
        let fits = |cache: &Cache| refused(&waiting, cache).len() < nodes.len();
        let without: Vec<_> = placed.iter().collect();
        let with: Vec<_> = placed.iter().chain([&changing]).collect();
        let (without, with) = (fits(&cluster(&without)), fits(&cluster(&with)));
        let other = changing.0.pod("other");
        if with && !without {
            prop_assert_eq!(InterPodAffinity.hint(&waiting, &ClusterEvent::AssignedPodAdded(&other)), QueueingHint::Queue);
        }
        if without && !with {
            prop_assert_eq!(InterPodAffinity.hint(&waiting, &ClusterEvent::AssignedPodDeleted(&other)), QueueingHint::Queue);
        }
    }
}
