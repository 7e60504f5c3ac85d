//! ImageLocality: nodes that have the images already start the pod sooner.
//!
//! Source: `pkg/scheduler/framework/plugins/imagelocality/image_locality.go` at v1.37. There an image counts less
//! the fewer nodes have it; here it counts whole, which on clusters of this size is the better guess.

use crate::{
    framework::{MAX_NODE_SCORE, Score},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

/// Below this many bytes in place a node gets nothing for it, a container.
const MIN_BYTES: i64 = 23 << 20;
/// Above this many bytes a node gets no more, a container.
const MAX_BYTES: i64 = 1000 << 20;

pub(super) struct ImageLocality;

impl Score for ImageLocality {
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _nodes_total: usize) -> i64 {
        let present: i64 = pod.images.iter().filter_map(|image| size(node, image)).sum();
        let max = MAX_BYTES * i64::try_from(pod.images.len().max(1)).unwrap_or(1);
        MAX_NODE_SCORE * (present.clamp(MIN_BYTES, max) - MIN_BYTES) / (max - MIN_BYTES)
    }

    fn weight(&self) -> i64 {
        1
    }
}

/// Nodes list images in full form; manifests name them in short form, too.
fn size(node: &NodeInfo, image: &str) -> Option<i64> {
    let tagged = if image.rsplit('/').next().is_some_and(|last| last.contains([':', '@'])) {
        image.to_owned()
    } else {
        format!("{image}:latest")
    };
    [tagged.clone(), format!("docker.io/library/{tagged}"), format!("docker.io/{tagged}")]
        .iter()
        .find_map(|name| node.images.get(name))
        .copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::framework::testing::{info, node_with, pod_with};

    #[test]
    fn a_node_with_the_image_scores_higher_whatever_form_the_name_has() {
        let status = json!({"images": [{"names": ["docker.io/library/nginx:latest"], "sizeBytes": 500 << 20}]});
        let with = info(&node_with("with", json!({}), status));
        let without = info(&node_with("without", json!({}), json!({})));
        for image in ["nginx", "nginx:latest", "docker.io/library/nginx:latest"] {
            let pod = pod_with("p", json!({"containers": [{"name": "c", "image": image}]}));
            assert!(ImageLocality.score(&pod, &with, 2) > ImageLocality.score(&pod, &without, 2), "{image}");
        }
    }
}
