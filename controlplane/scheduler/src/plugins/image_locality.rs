//! ImageLocality: nodes that have the images already start the pod sooner.
//!
//! Source: `pkg/scheduler/framework/plugins/imagelocality/image_locality.go` at v1.37. There an image counts less
//! the fewer nodes have it; here it counts whole, which on clusters of this size is the better guess.

use crate::{
    framework::{CycleState, MAX_NODE_SCORE, Plugin, PluginName, PreScore, Score, Status},
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
};

/// Below this many bytes in place a node gets nothing for it, a container.
const MIN_BYTES: i64 = 23 << 20;
/// Above this many bytes a node gets no more, a container.
const MAX_BYTES: i64 = 1000 << 20;

pub(super) struct ImageLocality;

/// The names under which nodes may list each image of the pod: put together once, not for each node.
struct Names(Vec<[String; 3]>);

impl Plugin for ImageLocality {
    fn name(&self) -> PluginName {
        PluginName::ImageLocality
    }
}

impl PreScore for ImageLocality {
    fn pre_score(&self, cycle: &mut CycleState, pod: &PodInfo, _: &[&NodeInfo], _: &Snapshot<'_>) -> Status {
        cycle.write(Names(pod.images.iter().map(|image| names(image)).collect()));
        Status::SUCCESS
    }
}

impl Score for ImageLocality {
    fn score(&self, cycle: &CycleState, _: &PodInfo, node: &NodeInfo) -> i64 {
        let Some(Names(images)) = cycle.read() else { return 0 };
        let size = |names: &[String; 3]| names.iter().find_map(|name| node.images.get(name)).copied();
        let present: i64 = images.iter().filter_map(size).sum();
        let max = MAX_BYTES * i64::try_from(images.len().max(1)).unwrap_or(1);
        MAX_NODE_SCORE * (present.clamp(MIN_BYTES, max) - MIN_BYTES) / (max - MIN_BYTES)
    }

    fn weight(&self) -> i64 {
        1
    }
}

/// Nodes list images in full form; manifests name them in short form, too.
fn names(image: &str) -> [String; 3] {
    let tagged = if image.rsplit('/').next().is_some_and(|last| last.contains([':', '@'])) {
        image.to_owned()
    } else {
        format!("{image}:latest")
    };
    let (library, hub) = (format!("docker.io/library/{tagged}"), format!("docker.io/{tagged}"));
    [tagged, library, hub]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Nodes, info, node_with, pod_with};

    #[test]
    fn a_node_with_the_image_scores_higher_whatever_form_the_name_has() {
        let status = json!({"images": [{"names": ["docker.io/library/nginx:latest"], "sizeBytes": 500 << 20}]});
        let with = info(&node_with("with", json!({}), status));
        let without = info(&node_with("without", json!({}), json!({})));
        for image in ["nginx", "nginx:latest", "docker.io/library/nginx:latest"] {
            let pod = pod_with("p", json!({"containers": [{"name": "c", "image": image}]}));
            let (mut cycle, nodes) = (CycleState::default(), Nodes::of(&[]));
            ImageLocality.pre_score(&mut cycle, &pod, &[], &nodes.snapshot());
            assert!(ImageLocality.score(&cycle, &pod, &with) > ImageLocality.score(&cycle, &pod, &without), "{image}");
        }
    }
}
