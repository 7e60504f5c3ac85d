//! Whom events may help.

use super::*;

fn hint(pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
    let world = World::default();
    plugin(&world).hint(pod, event) == QueueingHint::Queue
}

fn changed(pod: &PodInfo, old: Option<&StorageObject>, new: &StorageObject) -> bool {
    hint(pod, &ClusterEvent::StorageApplied { old, new })
}

#[test]
fn a_claim_helps_the_pods_that_use_it() {
    let world = World::default();
    let claim = |namespace: &str, name: &str| {
        let metadata = json!({"namespace": namespace, "name": name});
        world.object(StorageObject::Claim, json!({"metadata": metadata}))
    };
    let ephemeral = json!({"containers": [], "volumes": [{"name": "data", "ephemeral": {}}]});
    let (pod, owner) = (pod_using("p", &["c"]), pod_with("p", ephemeral));
    assert!(changed(&pod, None, &claim("default", "c")));
    assert!(!changed(&pod, None, &claim("default", "d")));
    assert!(!changed(&pod, None, &claim("elsewhere", "c")));
    assert!(changed(&owner, None, &claim("default", "p-data")));
}

#[test]
fn a_class_helps_if_it_is_new_or_allows_other_nodes() {
    let world = World::default();
    let class = |topologies| {
        world.object(
            StorageObject::Class,
            json!({"metadata": {"name": "c"}, "provisioner": "p", "allowedTopologies": topologies}),
        )
    };
    let zone = |zone: &str| json!([{"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}]);
    let pod = pod_using("p", &["c"]);
    assert!(changed(&pod, None, &class(zone("a"))));
    assert!(changed(&pod, Some(&class(zone("a"))), &class(zone("b"))));
    assert!(!changed(&pod, Some(&class(zone("a"))), &class(zone("a"))));
}

#[test]
fn room_helps_if_there_is_more_of_it() {
    let world = World::default();
    let room = |capacity: &str, largest: Option<&str>| {
        let object = json!({"metadata": {"name": "c"}, "storageClassName": "c", "capacity": capacity,
            "maximumVolumeSize": largest});
        world.object(StorageObject::Capacity, object)
    };
    let pod = pod_using("p", &["c"]);
    for (old, new, expected) in [
        (None, ("1Gi", None), true),
        (Some(("1Gi", None)), ("2Gi", None), true),
        (Some(("2Gi", None)), ("1Gi", None), false),
        (Some(("2Gi", Some("1Gi"))), ("3Gi", Some("1Gi")), false),
    ] {
        let old = old.map(|(capacity, largest)| room(capacity, largest));
        let new = room(new.0, new.1);
        assert_eq!(changed(&pod, old.as_ref(), &new), expected, "{new:?}");
    }
}

#[test]
fn a_volume_that_was_assumed_in_vain_helps() {
    let waiting = pod_using("p", &["c"]);
    let mut gone = pod_using("q", &["d"]);
    assert!(hint(&waiting, &ClusterEvent::AssignedPodDeleted(&gone)));
    // Its claim stays bound to its volume.
    gone.node_name = Some(std::sync::Arc::new("n".to_owned()));
    assert!(!hint(&waiting, &ClusterEvent::AssignedPodDeleted(&gone)));
    assert!(!hint(
        &waiting,
        &ClusterEvent::AssignedPodDeleted(&pod("r", "1"))
    ));
}
