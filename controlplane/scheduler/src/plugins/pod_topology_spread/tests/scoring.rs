//! Which place is the better.

use super::*;

/// After the cases of `scoring_test.go`.
#[test]
fn the_emptier_place_is_the_better() {
    let soft = |key, skew| constraint(key, skew, json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    for (name, pods, constraints, expected) in [
        (
            "hosts",
            [2, 1, 0, 3],
            json!([soft(HOST, 1)]),
            [20, 60, 100, 0],
        ),
        (
            "no pods",
            [0, 0, 0, 0],
            json!([soft(HOST, 1)]),
            [100, 100, 100, 100],
        ),
        (
            "zones",
            [2, 1, 0, 1],
            json!([soft(ZONE, 1)]),
            [25, 25, 100, 100],
        ),
    ] {
        let cache = cluster(pods);
        let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
        let pod = pod_in(
            "default",
            "p",
            "web",
            json!({"topologySpreadConstraints": constraints}),
        );
        let feasible: Vec<&NodeInfo> = snapshot.nodes().iter().collect();
        assert!(
            PodTopologySpread::default()
                .pre_score(&mut cycle, &pod, &feasible, &snapshot)
                .is_success()
        );
        let mut scores: Vec<i64> = feasible
            .iter()
            .map(|node| PodTopologySpread::default().score(&cycle, &pod, node))
            .collect();
        PodTopologySpread::default().normalize(&pod, &feasible, &mut scores);
        assert_eq!(scores, expected, "{name}");
    }
}
