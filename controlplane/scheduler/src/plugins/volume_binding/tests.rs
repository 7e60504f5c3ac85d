//! By extension point, mostly in upstream's cases.

mod binding;
mod events;
mod filtering;
mod model;
mod prefiltering;

use serde_json::json;

use super::*;
use crate::{
    testing::volumes::{World, free, pod_using, unbound},
    testing::{Nodes, info, node, pod, pod_with, reasons},
};

fn plugin(world: &World) -> VolumeBinding {
    VolumeBinding::new(world.storage.clone())
}

/// What PreFilter says of a pod.
fn pre_filter(world: &World, pod: &PodInfo) -> (CycleState, Status) {
    let (mut cycle, nodes) = (CycleState::default(), Nodes::of(&[]));
    let (_, status) = plugin(world).pre_filter(&mut cycle, pod, &nodes.snapshot());
    (cycle, status)
}

/// What Filter says of a pod on a node that goes by its name.
fn filter(world: &World, pod: &PodInfo, node_name: &str) -> Status {
    let (cycle, status) = pre_filter(world, pod);
    assert!(status.is_success(), "{status:?}");
    plugin(world).filter(&cycle, pod, &info(&node(node_name, "4")))
}
