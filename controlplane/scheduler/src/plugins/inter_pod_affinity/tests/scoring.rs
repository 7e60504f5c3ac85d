//! What is wished for. After the cases of `scoring_test.go`.

use super::*;

fn wish(side: &str, weight: i64, app_name: &str) -> Value {
    let preferred = json!([{"weight": weight, "podAffinityTerm": term(ZONE, app(app_name))}]);
    json!({ side: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
}

/// A pod of this app that wishes for nothing.
fn plain(name: &str, app: &str) -> PodInfo {
    labelled(name, "default", &json!({"app": app}), &Value::Null)
}

/// How well each node suits a pod `web`, up to 100.
fn scores(affinity: &Value, cache: &Cache) -> Vec<i64> {
    let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
    let pod = labelled("p", "default", &json!({"app": "web"}), affinity);
    let feasible: Vec<&NodeInfo> = snapshot.nodes().iter().collect();
    let status = InterPodAffinity::default().pre_score(&mut cycle, &pod, &feasible, &snapshot);
    assert!(status.is_success(), "{affinity}");
    let score = |node: &&NodeInfo| InterPodAffinity::default().score(&cycle, &pod, node);
    let mut scores: Vec<i64> = feasible.iter().map(score).collect();
    InterPodAffinity::default().normalize(&pod, &feasible, &mut scores);
    scores
}

#[test]
fn what_the_pod_wishes_for_decides() {
    for (name, affinity, placed, expected) in [
        (
            "near db",
            wish("podAffinity", 5, "db"),
            vec![("db", "a1"), ("x", "b1")],
            [100, 100, 0, 0],
        ),
        (
            "apart from db",
            wish("podAntiAffinity", 5, "db"),
            vec![("db", "a1")],
            [0, 0, 100, 100],
        ),
        (
            "more is better",
            wish("podAffinity", 1, "db"),
            vec![("db", "a1"), ("db", "a2"), ("db", "b1")],
            [100, 100, 50, 0],
        ),
    ] {
        let placed = placed.iter().enumerate();
        let placed = placed.map(|(number, (app, node))| (plain(&number.to_string(), app), *node));
        let cache = cluster(placed.collect());
        assert_eq!(scores(&affinity, &cache), expected, "{name}");
    }
}

#[test]
fn what_others_wish_for_and_require_decides() {
    for (affinity, expected) in [
        (wish("podAffinity", 8, "web"), [0, 0, 100, 0]),
        (wish("podAntiAffinity", 8, "web"), [100, 100, 0, 100]),
        (near(json!([term(ZONE, app("web"))])), [0, 0, 100, 0]),
    ] {
        let other = labelled("1", "default", &json!({"app": "x"}), &affinity);
        let cache = cluster(vec![(other, "b1")]);
        assert_eq!(scores(&Value::Null, &cache), expected, "{affinity}");
    }
}

#[test]
fn without_wishes_there_is_nothing_to_score() {
    let cache = cluster(vec![(plain("1", "db"), "a1")]);
    let (mut cycle, pod) = (CycleState::default(), plain("p", "web"));
    let status = InterPodAffinity::default().pre_score(&mut cycle, &pod, &[], &cache.snapshot());
    assert_eq!(status.code(), Code::Skip);
}
