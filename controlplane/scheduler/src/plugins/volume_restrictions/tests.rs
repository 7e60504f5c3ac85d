//! In upstream's cases.

use serde_json::{Value, json};

use super::*;
use crate::{
    framework::Code,
    testing::{
        Nodes, filtered, info, node, pod, pod_with, reasons,
        volumes::{World, pod_using, unbound},
    },
};

fn plugin(world: &World) -> VolumeRestrictions {
    VolumeRestrictions::new(world.storage.clone())
}

fn with_disk(name: &str, disk: &Value) -> PodInfo {
    let mut volume = disk.clone();
    volume["name"] = json!("v");
    pod_with(name, json!({"containers": [], "volumes": [volume]}))
}

fn rbd(monitors: &[&str], image: &str, read_only: bool) -> Value {
    json!({"rbd": {"monitors": monitors, "pool": "p", "image": image, "readOnly": read_only}})
}

#[test]
fn a_disk_is_for_one_pod_of_a_node_unless_all_only_read() {
    let gce = |name: &str, read_only| json!({"gcePersistentDisk": {"pdName": name, "readOnly": read_only}});
    let ebs = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id, "readOnly": true}});
    let iscsi = |iqn: &str, read_only| json!({"iscsi": {"targetPortal": "127.0.0.1:3260", "iqn": iqn, "lun": 0, "readOnly": read_only}});
    let world = World::default();
    for (one, other, conflict) in [
        (gce("a", false), gce("a", false), true),
        (gce("a", true), gce("a", false), true),
        (gce("a", true), gce("a", true), false),
        (gce("a", false), gce("b", false), false),
        (ebs("a"), ebs("a"), true),
        (ebs("a"), ebs("b"), false),
        (iscsi("a", false), iscsi("a", true), true),
        (iscsi("a", true), iscsi("a", true), false),
        (iscsi("a", false), iscsi("b", false), false),
        (
            rbd(&["a", "b"], "i", false),
            rbd(&["b", "c"], "i", false),
            true,
        ),
        (rbd(&["a"], "i", false), rbd(&["b"], "i", false), false),
        (rbd(&["a"], "i", false), rbd(&["a"], "j", false), false),
        (rbd(&["a"], "i", true), rbd(&["a"], "i", true), false),
        (gce("a", false), ebs("a"), false),
    ] {
        let mut node = info(&node("n", "4"));
        node.add_pod(Arc::new(with_disk("placed", &other)));
        let waiting = with_disk("waiting", &one);
        let status = filtered(&plugin(&world), &waiting, &node);
        let expected: &[&str] = match conflict {
            true => &["node(s) had no available disk"],
            false => &[],
        };
        assert_eq!(reasons(&status), expected, "{one} {other}");
        let gone = with_disk("gone", &other);
        let event = ClusterEvent::AssignedPodDeleted(&gone);
        assert_eq!(plugin(&world).hint(&waiting, &event), conflict.into());
    }
}

/// What PreFilter and Filter say of a pod that uses the claim `c`, on a node without pods, while
/// another pod uses the claim somewhere.
fn said(world: &World, used: &str) -> (Code, String) {
    let node = info(&node("n", "4"));
    let mut nodes = Nodes::of(&[&node]);
    nodes
        .around()
        .count(&pod_using("placed", &[used]), "elsewhere");
    let (pod, mut cycle) = (pod_using("p", &["c"]), CycleState::default());
    let (_, status) = plugin(world).pre_filter(&mut cycle, &pod, &nodes.snapshot());
    let status = match status.is_success() {
        true => plugin(world).filter(&cycle, &pod, &node),
        false => status,
    };
    (status.code(), status.message())
}

#[test]
fn a_claim_for_one_pod_keeps_the_next_from_all_nodes() {
    let world = World::default();
    let missing = "persistentvolumeclaim \"c\" not found".to_owned();
    assert_eq!(
        said(&world, "c"),
        (Code::UnschedulableAndUnresolvable, missing)
    );
    world.claim("c", "k", "1Gi");
    assert_eq!(said(&world, "c"), (Code::Skip, String::new()));
    let mut spec = unbound("k", "1Gi");
    spec["accessModes"] = json!(["ReadWriteOncePod"]);
    world.claim_with("c", json!({}), spec);
    let in_use = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another \
                  pod";
    assert_eq!(said(&world, "c"), (Code::Unschedulable, in_use.to_owned()));
    assert_eq!(said(&world, "d"), (Code::Skip, String::new()));
}

#[test]
fn the_end_of_a_pod_helps_those_that_use_its_claims() {
    let world = World::default();
    let hint = |gone: &PodInfo| {
        let event = ClusterEvent::AssignedPodDeleted(gone);
        plugin(&world).hint(&pod_using("p", &["c"]), &event)
    };
    assert_eq!(hint(&pod_using("q", &["c"])), QueueingHint::Queue);
    assert_eq!(hint(&pod_using("q", &["d"])), QueueingHint::Skip);
    assert_eq!(hint(&pod("q", "1")), QueueingHint::Skip);
    let mut elsewhere = pod_using("q", &["c"]);
    elsewhere.namespace = "elsewhere".to_owned();
    assert_eq!(hint(&elsewhere), QueueingHint::Skip);
}
