//! Which nodes will do.

use super::*;
use crate::framework::Code;

const AFFINITY: &str = "node(s) didn't match PersistentVolume's node affinity";
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const NO_ROOM: &str = "node(s) did not have enough free storage";
const GONE: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

fn world() -> World {
    let world = World::default();
    world.waiting_class("static", "kubernetes.io/no-provisioner");
    world.waiting_class("dynamic", "example.org/p");
    world
}

fn check(world: &World, claims: &[&str], node: &str, expected: &[&str]) {
    let status = filter(world, &pod_using("p", claims), node);
    assert_eq!(reasons(&status), expected, "{claims:?} on {node}");
}

#[test]
fn a_bound_claim_keeps_its_pod_where_its_volume_is() {
    let world = world();
    world.bound_claim("c", "v");
    world.bound_claim("gone", "nothing");
    world.volume("v", "static", "1Gi", Some("a"));
    check(&world, &["c"], "a", &[]);
    check(&world, &["c"], "b", &[AFFINITY]);
    check(&world, &["gone"], "a", &[GONE]);
    world.claim("u", "static", "1Gi");
    check(&world, &["c", "u"], "b", &[AFFINITY, NO_VOLUME]);
    check(&world, &["gone", "u"], "b", &[NO_VOLUME, GONE]);
}

#[test]
fn a_claim_that_waits_needs_a_volume_that_fits() {
    let world = world();
    world.claim("c", "static", "2Gi");
    check(&world, &["c"], "a", &[NO_VOLUME]);
    world.volume("small", "static", "1Gi", Some("a"));
    world.volume("of-another-class", "dynamic", "2Gi", Some("a"));
    let mut taken = free("static", "2Gi", Some("a"));
    taken["claimRef"] = json!({"namespace": "default", "name": "other", "uid": "u"});
    world.volume_with("taken", taken);
    let mut shared = free("static", "2Gi", Some("a"));
    shared["accessModes"] = json!(["ReadOnlyMany"]);
    world.volume_with("shared", shared);
    check(&world, &["c"], "a", &[NO_VOLUME]);
    world.volume("large", "static", "2Gi", Some("a"));
    check(&world, &["c"], "a", &[]);
    check(&world, &["c"], "b", &[NO_VOLUME]);
}

#[test]
fn two_claims_of_a_pod_need_two_volumes() {
    let world = world();
    world.claim("large", "static", "2Gi");
    world.claim("small", "static", "1Gi");
    world.volume("v", "static", "2Gi", Some("a"));
    check(&world, &["large", "small"], "a", &[NO_VOLUME]);
    world.volume("w", "static", "1Gi", Some("a"));
    // The small claim does not take the large volume, in whichever order they are asked for.
    check(&world, &["large", "small"], "a", &[]);
    check(&world, &["small", "large"], "a", &[]);
}

#[test]
fn a_volume_that_is_kept_for_the_claim_is_the_only_one() {
    let world = world();
    world.claim("c", "static", "1Gi");
    world.volume("free", "static", "1Gi", Some("b"));
    let mut kept = free("static", "1Gi", Some("a"));
    kept["claimRef"] = json!({"namespace": "default", "name": "c"});
    world.volume_with("kept", kept);
    check(&world, &["c"], "a", &[]);
    check(&world, &["c"], "b", &[NO_VOLUME]);
}

#[test]
fn a_volume_is_made_where_its_class_allows() {
    let world = world();
    world.claim("anywhere", "dynamic", "1Gi");
    check(&world, &["anywhere"], "a", &[]);
    let on_a = json!({"key": "kubernetes.io/hostname", "values": ["a"]});
    world.class(json!({
        "metadata": {"name": "on-a"},
        "provisioner": "example.org/p",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": []}, {"matchLabelExpressions": [on_a]}],
    }));
    world.claim("there", "on-a", "1Gi");
    check(&world, &["there"], "a", &[]);
    check(&world, &["there"], "b", &[NO_VOLUME]);
}

#[test]
fn a_claim_stays_with_the_node_for_which_its_volume_is_made() {
    let world = world();
    let selected = json!({"annotations": {"volume.kubernetes.io/selected-node": "a"}});
    world.claim_with("c", selected, unbound("dynamic", "1Gi"));
    // It would fit, but is not looked at any more.
    world.volume("v", "dynamic", "1Gi", Some("b"));
    check(&world, &["c"], "a", &[]);
    check(&world, &["c"], "b", &[NO_VOLUME]);
}

#[test]
fn room_for_a_volume_is_asked_for_if_its_driver_tells() {
    let world = world();
    world.claim("c", "dynamic", "2Gi");
    let driver =
        |tells| json!({"metadata": {"name": "example.org/p"}, "spec": {"storageCapacity": tells}});
    world.put(StorageObject::CsiDriver, driver(false));
    check(&world, &["c"], "a", &[]);
    world.put(StorageObject::CsiDriver, driver(true));
    check(&world, &["c"], "a", &[NO_ROOM]);
    let room = |name: &str, node: &str, sizes: [&str; 2]| {
        let topology = json!({"matchLabels": {"kubernetes.io/hostname": node}});
        let metadata = json!({"name": name, "namespace": "kube-system"});
        world.put(
            StorageObject::Capacity,
            json!({"metadata": metadata, "storageClassName": "dynamic", "nodeTopology": topology,
                "capacity": sizes[0], "maximumVolumeSize": sizes[1]}),
        );
    };
    room("a", "a", ["10Gi", "1Gi"]);
    check(&world, &["c"], "a", &[NO_ROOM]);
    room("a", "a", ["10Gi", "2Gi"]);
    check(&world, &["c"], "a", &[]);
    check(&world, &["c"], "b", &[NO_ROOM]);
}

#[test]
fn what_makes_no_sense_ends_the_attempt() {
    let world = world();
    let mut spec = unbound("static", "1Gi");
    spec["selector"] = json!({"matchExpressions": [{"key": "a", "operator": "Odd"}]});
    world.claim_with("odd", json!({}), spec);
    let status = filter(&world, &pod_using("p", &["odd"]), "a");
    assert_eq!(
        (status.code(), &*status.message()),
        (
            Code::Error,
            "error creating internal label selector for claim default/odd: \"Odd\" is not a valid label selector operator"
        )
    );
}
