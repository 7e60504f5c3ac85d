//! In upstream's cases.

use serde_json::{Value, json};

use super::*;
use crate::{
    framework::Code,
    testing::{
        filtered, info, node_of, pod, reasons,
        volumes::{World, free, pod_using},
    },
};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

fn plugin(world: &World) -> VolumeZone {
    VolumeZone::new(world.storage.clone())
}

fn labelled(world: &World, name: &str, labels: &Value) {
    world.put(
        StorageObject::Volume,
        json!({"metadata": {"name": name, "labels": labels}, "spec": free("k", "1Gi", None)}),
    );
}

#[test]
fn a_volume_is_used_in_its_zone() {
    let conflict: &[&str] = &["node(s) had no available volume zone"];
    for (of_volume, of_node, expected) in [
        (json!({ZONE: "a"}), json!({ZONE: "a"}), &[][..]),
        (json!({ZONE: "a"}), json!({ZONE: "b"}), conflict),
        (json!({ZONE: "a__b"}), json!({ZONE: "b"}), &[]),
        (json!({ZONE: "a__b"}), json!({ZONE: "c"}), conflict),
        // Where nothing is said of zones there is only one.
        (json!({ZONE: "a"}), json!({}), &[]),
        (json!({ZONE: "a"}), json!({REGION: "r"}), conflict),
        (
            json!({ZONE: "a", REGION: "r"}),
            json!({ZONE: "a", REGION: "s"}),
            conflict,
        ),
        (json!({BETA_ZONE: "a"}), json!({BETA_ZONE: "a"}), &[]),
        (json!({BETA_ZONE: "a"}), json!({ZONE: "a"}), &[]),
        (json!({BETA_ZONE: "a"}), json!({ZONE: "b"}), conflict),
        (json!({ZONE: "a"}), json!({BETA_ZONE: "a"}), conflict),
        (json!({ZONE: "a____b"}), json!({ZONE: "c"}), &[]),
        (json!({"other": "a"}), json!({ZONE: "a"}), &[]),
    ] {
        let world = World::default();
        labelled(&world, "v", &of_volume);
        world.bound_claim("c", "v");
        let node = info(&node_of("n", of_node.clone()));
        let status = filtered(&plugin(&world), &pod_using("p", &["c"]), &node);
        assert_eq!(reasons(&status), expected, "{of_volume} {of_node}");
    }
}

#[test]
fn claims_that_have_no_volume_are_told_in_upstreams_words() {
    let world = World::default();
    world.waiting_class("waits", "p");
    world.class(json!({"metadata": {"name": "at-once"}, "provisioner": "p", "volumeBindingMode": "Immediate"}));
    world.class(json!({"metadata": {"name": "odd"}, "provisioner": "p"}));
    world.claim("waits", "waits", "1Gi");
    world.claim("immediate", "at-once", "1Gi");
    world.claim("odd", "odd", "1Gi");
    world.claim("classless", "", "1Gi");
    world.claim("unknown", "nothing", "1Gi");
    world.bound_claim("lost", "gone");
    let node = info(&node_of("n", json!({ZONE: "a"})));
    for (claim, expected) in [
        ("waits", ""),
        ("immediate", "PersistentVolume had no name"),
        ("odd", "VolumeBindingMode not set for StorageClass \"odd\""),
        (
            "classless",
            "PersistentVolumeClaim had no pv name and storageClass name",
        ),
        (
            "unknown",
            "storageclass.storage.k8s.io \"nothing\" not found",
        ),
        ("lost", "persistentvolume \"gone\" not found"),
        ("missing", "persistentvolumeclaim \"missing\" not found"),
    ] {
        let status = filtered(&plugin(&world), &pod_using("p", &[claim]), &node);
        let code = match expected {
            "" => Code::Skip,
            _ => Code::UnschedulableAndUnresolvable,
        };
        assert_eq!(
            (status.code(), status.message()),
            (code, expected.to_owned())
        );
    }
    let status = filtered(&plugin(&world), &pod("p", "1"), &node);
    assert_eq!(status.code(), Code::Skip);
}

#[test]
fn a_volume_helps_if_it_is_new_or_elsewhere() {
    let world = World::default();
    let volume = |zone: &str| {
        let metadata = json!({"name": "v", "labels": {ZONE: zone}});
        world.object(StorageObject::Volume, json!({"metadata": metadata}))
    };
    let pod = pod_using("p", &["c"]);
    let hint = |old: Option<&StorageObject>, new: &StorageObject| {
        plugin(&world).hint(&pod, &ClusterEvent::StorageApplied { old, new })
    };
    assert_eq!(hint(None, &volume("a")), QueueingHint::Queue);
    assert_eq!(hint(Some(&volume("a")), &volume("b")), QueueingHint::Queue);
    assert_eq!(hint(Some(&volume("a")), &volume("a")), QueueingHint::Skip);
}
