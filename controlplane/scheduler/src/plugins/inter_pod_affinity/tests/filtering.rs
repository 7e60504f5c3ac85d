//! What is required. After the cases of `filtering_test.go`.

use super::*;

const EVERYWHERE: &[&str] = &["a1", "a2", "b1", "bare"];
const HOST: &str = "kubernetes.io/hostname";

/// A claim, the affinity of the pod, and the nodes that are refused.
type Case = (&'static str, Value, &'static [&'static str]);

/// Checks which nodes are refused to a pod `web`, all with `message`, while `placed` is on `a1`.
fn check<const N: usize>(placed: &PodInfo, message: &str, cases: [Case; N]) {
    let labels = json!({"app": "web", "hash": "1"});
    let cache = cluster(vec![(placed.clone(), "a1")]);
    for (claim, affinity, expected) in cases {
        let pod = labelled("p", "default", &labels, &affinity);
        let expected: Vec<_> = expected
            .iter()
            .map(|node| ((*node).to_owned(), message.to_owned()))
            .collect();
        assert_eq!(refused(&pod, &cache), expected, "{claim}");
    }
}

/// A database in `namespace`.
fn db(namespace: &str) -> PodInfo {
    labelled("db", namespace, &json!({"app": "db"}), &Value::Null)
}

fn expression(operator: &str, values: Value) -> Value {
    json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]})
}

/// Near pods `db` of the same zone, with one more thing said.
fn near_db(key: &str, value: Value) -> Value {
    let mut term = term(ZONE, app("db"));
    term[key] = value;
    near(json!([term]))
}

#[test]
fn affinity_holds() {
    let by = |selector: Value| near(json!([term(ZONE, selector)]));
    let cases: [Case; 10] = [
        ("no terms", Value::Null, &[]),
        (
            "In",
            by(expression("In", json!(["db", "x"]))),
            &["b1", "bare"],
        ),
        (
            "NotIn",
            by(expression("NotIn", json!(["x"]))),
            &["b1", "bare"],
        ),
        ("none is meant", by(app("x")), EVERYWHERE),
        (
            "a null selector means nobody",
            near(json!([{"topologyKey": ZONE}])),
            EVERYWHERE,
        ),
        (
            "all terms have to mean the same pod",
            near(json!([term(ZONE, app("db")), term(HOST, app("x"))])),
            EVERYWHERE,
        ),
        (
            "each term has its place",
            near(json!([term(ZONE, app("db")), term(HOST, app("db"))])),
            &["a2", "b1", "bare"],
        ),
        ("the first of a series", by(app("web")), &["bare"]),
        (
            "the same value of a label",
            near_db("matchLabelKeys", json!(["hash"])),
            EVERYWHERE,
        ),
        (
            "another value of a label",
            near_db("mismatchLabelKeys", json!(["hash"])),
            &["b1", "bare"],
        ),
    ];
    check(&db("default"), AFFINITY, cases);
}

#[test]
fn terms_mean_pods_of_their_namespaces() {
    let of_team = |team: &str| near_db("namespaceSelector", json!({"matchLabels": {"team": team}}));
    let cases: [Case; 5] = [
        ("its own", near(json!([term(ZONE, app("db"))])), EVERYWHERE),
        (
            "by name",
            near_db("namespaces", json!(["other"])),
            &["b1", "bare"],
        ),
        ("by label", of_team("red"), &["b1", "bare"]),
        ("others by label", of_team("blue"), EVERYWHERE),
        (
            "all",
            near_db("namespaceSelector", json!({})),
            &["b1", "bare"],
        ),
    ];
    check(&db("other"), AFFINITY, cases);
}

#[test]
fn anti_affinity_holds() {
    let cases: [Case; 4] = [
        (
            "from a zone",
            apart(json!([term(ZONE, app("db"))])),
            &["a1", "a2"],
        ),
        (
            "from a node",
            apart(json!([term(HOST, app("db"))])),
            &["a1"],
        ),
        (
            "by any term",
            apart(json!([term(HOST, app("x")), term(ZONE, app("db"))])),
            &["a1", "a2"],
        ),
        ("from nobody", apart(json!([term(ZONE, app("x"))])), &[]),
    ];
    check(&db("default"), ANTI_AFFINITY, cases);
}

#[test]
fn anti_affinity_of_others_holds() {
    let cases: [(&str, &'static [&'static str]); 2] = [("web", &["a1", "a2"]), ("x", &[])];
    for (name, expected) in cases {
        let terms = apart(json!([term(ZONE, app(name))]));
        let shy = labelled("shy", "default", &json!({"app": "db"}), &terms);
        let case: Case = ("others keep apart", Value::Null, expected);
        check(&shy, EXISTING_ANTI_AFFINITY, [case]);
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
        InterPodAffinity::default().pre_filter(&mut cycle, &pod, &snapshot);
        let node = snapshot.node("a1").expect("a1");
        assert_eq!(
            InterPodAffinity::default()
                .filter(&cycle, &pod, node)
                .code(),
            expected,
            "{affinity}"
        );
    }
}
