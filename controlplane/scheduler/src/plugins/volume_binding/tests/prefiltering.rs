//! What keeps a pod from all nodes.

use super::*;
use crate::framework::Code;

fn said(world: &World, pod: &PodInfo) -> (Code, String) {
    let (_, status) = pre_filter(world, pod);
    (status.code(), status.message())
}

fn refused(reason: &str) -> (Code, String) {
    (Code::UnschedulableAndUnresolvable, reason.to_owned())
}

#[test]
fn a_pod_without_claims_is_left_alone() {
    let world = World::default();
    let empty = json!({"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]});
    for pod in [pod("p", "1"), pod_with("p", empty)] {
        assert_eq!(said(&world, &pod), (Code::Skip, String::new()));
    }
}

#[test]
fn claims_that_no_node_helps_are_told_in_upstreams_words() {
    let world = World::default();
    world.waiting_class("waits", "p");
    world.class(json!({"metadata": {"name": "at-once"}, "provisioner": "p", "volumeBindingMode": "Immediate"}));
    world.class(json!({"metadata": {"name": "odd"}, "provisioner": "p"}));
    world.claim("immediate", "at-once", "1Gi");
    world.claim("classless", "", "1Gi");
    world.claim("unknown-class", "nothing", "1Gi");
    world.claim("odd", "odd", "1Gi");
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    world.claim_with("deleted", deleted, unbound("waits", "1Gi"));
    // A user has given it a volume, and the controller has not followed.
    let mut prebound = unbound("waits", "1Gi");
    prebound["volumeName"] = json!("v");
    world.claim_with("prebound", json!({}), prebound.clone());
    world.put(
        StorageObject::Claim,
        json!({"metadata": {"name": "lost", "namespace": "default"}, "spec": prebound, "status": {"phase": "Lost"}}),
    );
    let unbound = "pod has unbound immediate PersistentVolumeClaims";
    for (claim, expected) in [
        ("missing", "persistentvolumeclaim \"missing\" not found"),
        (
            "deleted",
            "persistentvolumeclaim \"deleted\" is being deleted",
        ),
        (
            "lost",
            "persistentvolumeclaim \"lost\" bound to non-existent persistentvolume \"v\"",
        ),
        ("immediate", unbound),
        ("classless", unbound),
        ("unknown-class", unbound),
        ("prebound", unbound),
    ] {
        assert_eq!(said(&world, &pod_using("p", &[claim])), refused(expected));
    }
    let error = "VolumeBindingMode not set for StorageClass \"odd\"".to_owned();
    assert_eq!(
        said(&world, &pod_using("p", &["odd"])),
        (Code::Error, error)
    );
}

#[test]
fn claims_that_wait_or_are_bound_go_on() {
    let world = World::default();
    world.waiting_class("waits", "p");
    world.claim("waiting", "waits", "1Gi");
    world.bound_claim("bound", "v");
    let pod = pod_using("p", &["waiting", "bound"]);
    assert_eq!(said(&world, &pod), (Code::Success, String::new()));
}

#[test]
fn a_claim_that_is_made_from_the_pod_has_to_be_the_pods() {
    let world = World::default();
    world.waiting_class("waits", "p");
    let ephemeral = json!({"name": "data", "ephemeral": {}});
    let pod = pod_with("p", json!({"containers": [], "volumes": [ephemeral]}));
    assert_eq!(
        said(&world, &pod),
        refused(
            "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-data\""
        )
    );
    world.claim("p-data", "waits", "1Gi");
    assert_eq!(
        said(&world, &pod),
        refused("PVC default/p-data was not created for pod default/p (pod is not owner)")
    );
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true});
    world.claim_with(
        "p-data",
        json!({"ownerReferences": [owner]}),
        unbound("waits", "1Gi"),
    );
    assert_eq!(said(&world, &pod).0, Code::Success);
}
