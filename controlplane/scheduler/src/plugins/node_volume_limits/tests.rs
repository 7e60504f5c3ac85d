//! In upstream's cases.

use serde_json::{Value, json};

use super::*;
use crate::{
    framework::Code,
    testing::{
        Nodes, filtered, info, node, pod, reasons,
        volumes::{World, free, pod_using},
    },
};

const FULL: &[&str] = &["node(s) exceed max volume count"];

fn plugin(world: &World) -> NodeVolumeLimits {
    NodeVolumeLimits::new(world.storage.clone())
}

/// The node `n` can have this many volumes of the driver `d`.
fn limit(world: &World, count: Option<i32>) {
    world.put(StorageObject::CsiNode, csi_node("n", &[("d", count)]));
}

fn csi_node(name: &str, drivers: &[(&str, Option<i32>)]) -> Value {
    let driver = |(name, count): &(&str, Option<i32>)| json!({"name": name, "nodeID": "i", "allocatable": {"count": count}});
    let drivers: Vec<Value> = drivers.iter().map(driver).collect();
    json!({"metadata": {"name": name}, "spec": {"drivers": drivers}})
}

/// A claim with a volume of the driver `d`, both of this name.
fn attachable(world: &World, name: &str) {
    world.bound_claim(name, name);
    let mut spec = free("", "1Gi", None);
    spec["csi"] = json!({"driver": "d", "volumeHandle": format!("handle-{name}")});
    world.volume_with(name, spec);
}

fn world() -> World {
    let world = World::default();
    for name in ["a", "b", "c"] {
        attachable(&world, name);
    }
    world.waiting_class("dynamic", "d");
    world.claim("new", "dynamic", "1Gi");
    world.claim("newer", "dynamic", "1Gi");
    world
}

/// Of a pod with `claims`, on a node where pods with `placed` are.
fn check(world: &World, claims: &[&str], placed: &[&[&str]], expected: &[&str]) {
    let mut node = info(&node("n", "4"));
    for (number, claims) in placed.iter().enumerate() {
        let pod = pod_using(&format!("placed-{number}"), claims);
        node.add_pod(Arc::new(pod));
    }
    let status = filtered(&plugin(world), &pod_using("p", claims), &node);
    assert_eq!(reasons(&status), expected, "{claims:?} beside {placed:?}");
}

#[test]
fn a_node_has_no_more_volumes_than_its_driver_allows() {
    let world = world();
    limit(&world, Some(2));
    check(&world, &["a", "b"], &[], &[]);
    check(&world, &["a", "b", "c"], &[], FULL);
    check(&world, &["c"], &[&["a"]], &[]);
    check(&world, &["c"], &[&["a"], &["b"]], FULL);
    // One volume takes one place, however many use it.
    check(&world, &["c"], &[&["a"], &["a"]], &[]);
    check(&world, &["b"], &[&["a", "b"]], &[]);
    limit(&world, None);
    check(&world, &["a", "b", "c"], &[], &[]);
}

#[test]
fn volumes_that_are_still_to_be_made_count() {
    let world = world();
    limit(&world, Some(2));
    check(&world, &["new"], &[&["a"]], &[]);
    check(&world, &["new"], &[&["a", "newer"]], FULL);
    check(&world, &["new"], &[&["a", "new"]], &[]);
}

#[test]
fn volumes_of_other_drivers_do_not_count() {
    let world = world();
    let drivers = [("d", Some(1)), ("other", Some(0))];
    world.put(StorageObject::CsiNode, csi_node("n", &drivers));
    world.bound_claim("local", "local");
    world.volume("local", "", "1Gi", None);
    check(&world, &["a", "local"], &[&["local"]], &[]);
}

#[test]
fn a_volume_that_is_attached_for_no_pod_takes_its_place() {
    let world = world();
    limit(&world, Some(2));
    let source = json!({"persistentVolumeName": "b"});
    world.put(
        StorageObject::Attachment,
        json!({"metadata": {"name": "x"}, "spec": {"attacher": "d", "nodeName": "n", "source": source}}),
    );
    check(&world, &["c"], &[], &[]);
    check(&world, &["c"], &[&["a"]], FULL);
    check(&world, &["c"], &[&["b"]], &[]);
}

#[test]
fn a_driver_may_be_required_to_be_there() {
    let world = world();
    let spec = json!({"preventPodSchedulingIfMissing": true});
    world.put(
        StorageObject::CsiDriver,
        json!({"metadata": {"name": "d"}, "spec": spec}),
    );
    let missing = &["d CSI driver is not installed on the node"];
    check(&world, &["a"], &[], missing);
    world.put(StorageObject::CsiNode, csi_node("n", &[("other", None)]));
    check(&world, &["a"], &[], missing);
    limit(&world, None);
    check(&world, &["a"], &[], &[]);
}

#[test]
fn nodes_without_drivers_are_not_looked_at() {
    let world = world();
    let (nodes, mut cycle) = (Nodes::of(&[]), CycleState::default());
    let mut said = |world: &World, pod: &PodInfo| {
        let (_, status) = plugin(world).pre_filter(&mut cycle, pod, &nodes.snapshot());
        status.code()
    };
    assert_eq!(said(&world, &pod_using("p", &["a"])), Code::Skip);
    limit(&world, Some(2));
    assert_eq!(said(&world, &pod_using("p", &["a"])), Code::Success);
    assert_eq!(said(&world, &pod("p", "1")), Code::Skip);
}

#[test]
fn a_higher_limit_and_a_place_that_is_free_help() {
    let world = world();
    let on_node = |count| world.object(StorageObject::CsiNode, csi_node("n", &[("d", count)]));
    let waiting = pod_using("p", &["a"]);
    let applied = |old: Option<&StorageObject>, new: &StorageObject| {
        plugin(&world).hint(&waiting, &ClusterEvent::StorageApplied { old, new })
    };
    let (one, two) = (on_node(Some(1)), on_node(Some(2)));
    assert_eq!(applied(None, &one), QueueingHint::Queue);
    assert_eq!(applied(Some(&one), &two), QueueingHint::Queue);
    assert_eq!(applied(Some(&two), &one), QueueingHint::Skip);
    let ended =
        |gone: &PodInfo| plugin(&world).hint(&waiting, &ClusterEvent::AssignedPodDeleted(gone));
    assert_eq!(ended(&pod_using("q", &["b"])), QueueingHint::Queue);
    assert_eq!(ended(&pod("q", "1")), QueueingHint::Skip);
}
