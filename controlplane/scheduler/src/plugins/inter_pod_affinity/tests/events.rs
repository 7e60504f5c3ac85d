//! Which events are worth an attempt.

use super::*;
use crate::testing::info;

/// Whether the pod `p`, of the app `web` and with this affinity, is worth an attempt after `event`.
fn is_worth(affinity: &Value, event: &ClusterEvent<'_>) -> bool {
    let pod = labelled("p", "default", &json!({"app": "web"}), affinity);
    InterPodAffinity::default().hint(&pod, event) == QueueingHint::Queue
}

fn pod(name: &str, namespace: &str, app: &str) -> PodInfo {
    labelled(name, namespace, &json!({"app": app}), &Value::Null)
}

#[test]
fn only_pods_that_terms_mean_are_worth_an_attempt() {
    let (db, x) = (pod("1", "default", "db"), pod("2", "default", "x"));
    let foreign = pod("3", "other", "db");
    let shy_terms = apart(json!([term(ZONE, app("web"))]));
    let shy = labelled("4", "default", &json!({"app": "x"}), &shy_terms);
    let wants = near(json!([term(ZONE, app("db"))]));
    let avoids = apart(json!([term(ZONE, app("db"))]));
    let added = |pod| ClusterEvent::AssignedPodAdded(pod);
    let deleted = |pod| ClusterEvent::AssignedPodDeleted(pod);
    let updated = |old, new| ClusterEvent::AssignedPodUpdated { old, new };
    for (number, (waiting, event, expected)) in [
        (&wants, added(&db), true),
        (&wants, added(&x), false),
        (&wants, added(&foreign), false),
        (&wants, deleted(&db), false),
        (&wants, updated(&x, &db), true),
        (&avoids, added(&db), false),
        (&avoids, deleted(&db), true),
        (&avoids, deleted(&x), false),
        (&avoids, updated(&db, &x), true),
        (&wants, deleted(&shy), true),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(is_worth(waiting, &event), expected, "{number}: {event:?}");
    }
}

#[test]
fn only_nodes_that_have_the_place_are_worth_an_attempt() {
    let wants = near(json!([term(ZONE, app("db"))]));
    let in_zone = info(&node_of("n", json!({ZONE: "a"})));
    let bare = info(&node_of("n", json!({})));
    let (old, new) = (&bare, &in_zone);
    for (event, expected) in [
        (ClusterEvent::NodeAdded(&in_zone), true),
        (ClusterEvent::NodeAdded(&bare), false),
        (ClusterEvent::NodeUpdated { old, new }, true),
    ] {
        assert_eq!(is_worth(&wants, &event), expected, "{event:?}");
    }
}
