//! Which events are worth an attempt.

use super::*;

#[test]
fn only_what_changes_a_count_is_worth_an_attempt() {
    let spread = json!({"topologySpreadConstraints": [constraint(ZONE, 1, json!({}))]});
    let waiting = pod_in("default", "p", "web", spread);
    let (web, db) = (
        pod_in("default", "1", "web", json!({})),
        pod_in("default", "2", "db", json!({})),
    );
    let foreign = pod_in("other", "3", "web", json!({}));
    let (in_zone, bare) = (
        info(&node_of("n", json!({ZONE: "3"}))),
        info(&node_of("n", json!({}))),
    );
    for (event, expected) in [
        (ClusterEvent::AssignedPodAdded(&web), QueueingHint::Queue),
        (ClusterEvent::AssignedPodDeleted(&web), QueueingHint::Queue),
        (ClusterEvent::AssignedPodDeleted(&db), QueueingHint::Skip),
        (
            ClusterEvent::AssignedPodDeleted(&foreign),
            QueueingHint::Skip,
        ),
        (
            ClusterEvent::AssignedPodUpdated {
                old: &web,
                new: &db,
            },
            QueueingHint::Queue,
        ),
        (
            ClusterEvent::AssignedPodUpdated { old: &db, new: &db },
            QueueingHint::Skip,
        ),
        (ClusterEvent::NodeAdded(&in_zone), QueueingHint::Queue),
        (ClusterEvent::NodeAdded(&bare), QueueingHint::Skip),
        (ClusterEvent::NodeDeleted(&in_zone), QueueingHint::Queue),
        (
            ClusterEvent::NodeUpdated {
                old: &bare,
                new: &in_zone,
            },
            QueueingHint::Queue,
        ),
        (
            ClusterEvent::NodeUpdated {
                old: &in_zone,
                new: &in_zone,
            },
            QueueingHint::Skip,
        ),
    ] {
        assert_eq!(
            PodTopologySpread::default().hint(&waiting, &event),
            expected,
            "{event:?}"
        );
    }
}
