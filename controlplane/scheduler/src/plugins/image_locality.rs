//! ImageLocality: nodes that have the images already start the pod sooner. An image counts the less
//! the fewer nodes have it: else the first node that has it would get all pods.
//!
//! Source: `pkg/scheduler/framework/plugins/imagelocality/image_locality.go` at v1.37.

use std::collections::BTreeMap;

use crate::{
    framework::{CycleState, MAX_NODE_SCORE, Plugin, PluginName, PreScore, Score, Status},
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
};

/// Below this many bytes in place a node gets nothing for it.
const MIN_BYTES: i64 = 23 << 20;
/// Above this many bytes a node gets no more, an image.
const MAX_BYTES: i64 = 1000 << 20;

pub(super) struct ImageLocality;

/// Put together once, not for each node.
struct Wanted {
    images: Vec<Image>,
    /// How many images the pod has, equal ones included.
    count: i64,
}

struct Image {
    /// How many of the pod's containers have it.
    times: i64,
    /// The names under which nodes list it, and the share of nodes that do.
    names: Vec<(String, f64)>,
}

impl Plugin for ImageLocality {
    fn name(&self) -> PluginName {
        PluginName::ImageLocality
    }
}

impl PreScore for ImageLocality {
    #[allow(clippy::cast_precision_loss, reason = "counts of nodes")]
    fn pre_score(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        _: &[&NodeInfo],
        snapshot: &Snapshot<'_>,
    ) -> Status {
        let share = |name: String| {
            let nodes = snapshot.images().nodes_with(&name);
            (nodes > 0).then(|| (name, nodes as f64 / snapshot.nodes().len() as f64))
        };
        let mut times = BTreeMap::<&str, i64>::new();
        pod.images
            .iter()
            .for_each(|image| *times.entry(image).or_default() += 1);
        let count = times.values().sum();
        let listed = times.into_iter().map(|(image, times)| {
            let names = names(image).into_iter().filter_map(share).collect();
            Image { times, names }
        });
        let images: Vec<Image> = listed.filter(|image| !image.names.is_empty()).collect();
        if images.is_empty() {
            return Status::SKIP;
        }
        cycle.write(Wanted { images, count });
        Status::SUCCESS
    }
}

impl Score for ImageLocality {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "sizes of images"
    )]
    fn score(&self, cycle: &CycleState, _: &PodInfo, node: &NodeInfo) -> i64 {
        let Some(Wanted { images, count }) = cycle.read() else {
            return 0;
        };
        let scaled = |image: &Image| {
            let mut names = image.names.iter();
            let (size, share) =
                names.find_map(|(name, share)| Some((*node.images.get(name)?, share)))?;
            Some((size as f64 * share) as i64 * image.times)
        };
        let present: i64 = images.iter().filter_map(scaled).sum();
        let max = MAX_BYTES * (*count).max(1);
        MAX_NODE_SCORE * (present.clamp(MIN_BYTES, max) - MIN_BYTES) / (max - MIN_BYTES)
    }
}

/// Nodes list images in full form; manifests name them in short form, too.
fn names(image: &str) -> [String; 3] {
    let tagged = if image
        .rsplit('/')
        .next()
        .is_some_and(|last| last.contains([':', '@']))
    {
        image.to_owned()
    } else {
        format!("{image}:latest")
    };
    let (library, hub) = (
        format!("docker.io/library/{tagged}"),
        format!("docker.io/{tagged}"),
    );
    [tagged, library, hub]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        cache::Cache,
        framework::Code,
        testing::{node_with, pod_with},
    };

    const MIB: i64 = 1 << 20;

    /// A node for each list of images: name and size in MiB.
    fn cluster(nodes: &[Vec<(&str, i64)>]) -> Cache {
        let mut cache = Cache::default();
        for (number, images) in nodes.iter().enumerate() {
            let images: Vec<Value> = images
                .iter()
                .map(|(name, size)| json!({"names": [name], "sizeBytes": size * MIB}))
                .collect();
            cache.set_node(&node_with(
                &number.to_string(),
                json!({}),
                json!({"images": images}),
            ));
        }
        cache
    }

    fn scores(cache: &Cache, spec: Value) -> Vec<i64> {
        let (pod, mut cycle, snapshot) =
            (pod_with("p", spec), CycleState::default(), cache.snapshot());
        let status = ImageLocality.pre_score(&mut cycle, &pod, &[], &snapshot);
        assert!(status.is_success() || status.code() == Code::Skip);
        snapshot
            .nodes()
            .iter()
            .map(|node| ImageLocality.score(&cycle, &pod, node))
            .collect()
    }

    fn containers(images: &[&str]) -> Value {
        json!(
            images
                .iter()
                .map(|image| json!({"name": "c", "image": image}))
                .collect::<Vec<_>>()
        )
    }

    #[allow(clippy::cast_possible_truncation, reason = "sizes of images")]
    fn scaled(size: i64, have: usize, nodes: usize) -> i64 {
        (size as f64 * (have as f64 / nodes as f64)) as i64
    }

    /// After the cases of `image_locality_test.go`.
    #[test]
    fn an_image_counts_by_its_size_and_by_the_share_of_nodes_that_have_it() {
        let two = [
            vec![("a:1", 40), ("b:1", 300), ("c:1", 2000)],
            vec![("d:1", 250), ("e:1", 10)],
        ];
        for (images, expected) in [
            (vec!["a:1", "d:1"], [0, 5]),
            (vec!["a:1", "b:1"], [7, 0]),
            (vec!["a:1", "c:1"], [50, 0]),
            (vec!["a:1", "e:1"], [0, 0]),
            (vec!["none:1"], [0, 0]),
        ] {
            assert_eq!(
                scores(&cluster(&two), json!({"containers": containers(&images)})),
                expected,
                "{images:?}"
            );
        }
        // The more nodes have it, the more it counts; alone it is worth little.
        let of_ten = |have: usize| {
            let nodes: Vec<_> = (0..10)
                .map(|node| {
                    if node < have {
                        vec![("a:1", 500)]
                    } else {
                        vec![]
                    }
                })
                .collect();
            scores(
                &cluster(&nodes),
                json!({"containers": containers(&["a:1"])}),
            )[0]
        };
        assert_eq!([1, 2, 5, 10].map(of_ten), [2, 7, 23, 48]);
    }

    #[test]
    fn every_image_that_the_pod_needs_counts() {
        let cache = cluster(&[vec![("a:1", 500), ("i:1", 500), ("v:1", 500)]]);
        let plain = json!({"containers": containers(&["a:1"])});
        let init =
            json!({"containers": containers(&["a:1"]), "initContainers": containers(&["i:1"])});
        let volume = json!({"containers": containers(&["none:1"]),
            "volumes": [{"name": "v", "image": {"reference": "v:1"}}, {"name": "w", "emptyDir": {}}]});
        assert_eq!(
            [plain, init, volume].map(|spec| scores(&cache, spec)),
            [vec![48], vec![49], vec![24]]
        );
    }

    #[test]
    fn a_node_with_the_image_scores_higher_whatever_form_the_name_has() {
        let cache = cluster(&[vec![("docker.io/library/nginx:latest", 500)], vec![]]);
        for image in ["nginx", "nginx:latest", "docker.io/library/nginx:latest"] {
            let scores = scores(&cache, json!({"containers": containers(&[image])}));
            assert!(scores[0] > scores[1], "{image}: {scores:?}");
        }
    }

    proptest! {
        /// Against the formula, whatever nodes have pulled and thrown away, and whichever have come
        /// and gone.
        #[test]
        fn shares_are_those_of_the_nodes_that_are_there(
            lists in proptest::collection::vec(proptest::collection::btree_map(0..4_usize, 0..2000_i64, 0..4), 1..6),
            again in proptest::collection::vec(proptest::collection::btree_map(0..4_usize, 0..2000_i64, 0..4), 0..6),
            gone in proptest::option::of(0..6_usize),
            asked in proptest::collection::vec(0..4_usize, 1..4),
        ) {
            let names = ["a:1", "b:1", "c:1", "d:1"];
            let mut cache = Cache::default();
            let mut nodes: Vec<_> = lists.clone();
            for (number, list) in lists.iter().enumerate().chain(again.iter().take(lists.len()).enumerate()) {
                let images: Vec<Value> = list.iter()
                    .map(|(image, size)| json!({"names": [names[*image]], "sizeBytes": size * MIB})).collect();
                cache.set_node(&node_with(&number.to_string(), json!({}), json!({"images": images})));
                nodes[number] = list.clone();
            }
            if let Some(gone) = gone.filter(|gone| nodes.len() > 1 && *gone < nodes.len()) {
                cache.remove_node(&gone.to_string());
                nodes.swap_remove(gone);
            }
            let images: Vec<&str> = asked.iter().map(|image| names[*image]).collect();
            let expected: Vec<i64> = nodes.iter().map(|list| {
                let sum: i64 = asked.iter().filter_map(|image| Some((image, list.get(image)? * MIB))).map(|(image, size)| {
                    let have = nodes.iter().filter(|list| list.contains_key(image)).count();
                    scaled(size, have, nodes.len())
                }).sum();
                let max = 1000 * MIB * asked.len() as i64;
                100 * (sum.clamp(23 * MIB, max) - 23 * MIB) / (max - 23 * MIB)
            }).collect();
            prop_assert_eq!(scores(&cache, json!({"containers": containers(&images)})), expected);
        }
    }
}
