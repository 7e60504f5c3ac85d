//! Which volumes a claim may have.

use serde_json::json;

use super::*;
use crate::{
    node_info::NodeInfo,
    pod_info::PodUid,
    testing::volumes::{World, free},
};

/// By name, those that the claim `c` of the class `k` may have.
fn volumes(world: &World) -> Vec<String> {
    let storage = world.storage.lock();
    let volumes = storage.volumes_for(&Key::new("default", "c"), "k");
    volumes.iter().map(|volume| volume.name_any()).collect()
}

#[test]
fn a_claim_may_have_what_is_kept_for_it_and_what_is_nobodys() {
    let world = World::default();
    let kept = |claim: &str, class: &str| {
        let mut spec = free(class, "1Gi", None);
        spec["claimRef"] = json!({"namespace": "default", "name": claim});
        spec
    };
    world.volume("b", "k", "1Gi", None);
    world.volume("a", "k", "1Gi", None);
    world.volume("of-another-class", "l", "1Gi", None);
    world.volume_with("z-kept", kept("c", "k"));
    world.volume_with("kept-of-another-class", kept("c", "l"));
    world.volume_with("taken", kept("d", "k"));
    assert_eq!(volumes(&world), ["z-kept", "a", "b"]);
    // They change hands and classes, and go.
    world.volume_with("a", kept("d", "k"));
    world.volume("of-another-class", "k", "1Gi", None);
    let gone = world.object(StorageObject::Volume, json!({"metadata": {"name": "b"}}));
    world.storage.change(|storage| storage.remove(&gone));
    assert_eq!(volumes(&world), ["z-kept", "of-another-class"]);
}

#[test]
fn only_who_waits_hears_of_pods_and_nodes() {
    let (world, pod) = (World::default(), PodUid("p".into()));
    let changes = world.storage.changes();
    let node = NodeInfo {
        name: "n".to_owned(),
        ..NodeInfo::default()
    };
    let tell = |tell: &dyn Fn(&mut Bindings) -> bool| {
        let mut changes = changes.clone();
        changes.borrow_and_update();
        world.storage.tell_if_asked(tell);
        changes.has_changed().expect("it is open")
    };
    let of_pod = |bindings: &mut Bindings| bindings.pod_gone(&pod);
    let of_node = |bindings: &mut Bindings| bindings.node_changed("n", None);
    assert_eq!((tell(&of_pod), tell(&of_node)), (false, false));
    world.storage.lock().bindings.begin(&pod, &node);
    assert_eq!((tell(&of_pod), tell(&of_node)), (true, true));
    world.storage.lock().bindings.end(&pod);
    assert_eq!((tell(&of_pod), tell(&of_node)), (false, false));
}

#[test]
fn attachments_are_known_by_node() {
    let world = World::default();
    let attachment = |name: &str, node: &str| {
        world.object(
            StorageObject::Attachment,
            json!({"metadata": {"name": name}, "spec": {"attacher": "d", "nodeName": node, "source": {}}}),
        )
    };
    for (name, node) in [("1", "a"), ("2", "a"), ("3", "b")] {
        let object = attachment(name, node);
        world.storage.change(|storage| storage.apply(&object));
    }
    world
        .storage
        .change(|storage| storage.remove(&attachment("1", "a")));
    let storage = world.storage.lock();
    let names: Vec<String> = storage.attachments("a").map(|one| one.name_any()).collect();
    assert_eq!(names, ["2"]);
}
