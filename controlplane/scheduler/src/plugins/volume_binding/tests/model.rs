//! What VolumeBinding decides of random small clusters, against the naive answer: try every way to
//! give the claims volumes.

use proptest::prelude::*;

use super::*;

/// The nodes are `n0` to `n2`.
const NODES: usize = 3;
const SIZES: [&str; 3] = ["1Gi", "2Gi", "3Gi"];

/// A volume of the class `static`.
#[derive(Debug, Clone)]
struct Volume {
    size: usize,
    /// Where it is; everywhere if there is no such node.
    node: usize,
    /// Whether it is somebody else's.
    is_taken: bool,
}

/// A claim of the pod.
#[derive(Debug, Clone)]
enum Claim {
    /// It is bound to a volume of its own, that is on a node or gone.
    Bound { node: usize, is_gone: bool },
    /// It waits for a volume of this size at least.
    Static { size: usize },
    /// One may be made for it; only on a node, if there is such a one.
    Dynamic { selected: usize },
}

fn volume() -> impl Strategy<Value = Volume> {
    (0..SIZES.len(), 0..=NODES, prop::bool::weighted(0.2)).prop_map(|(size, node, is_taken)| {
        Volume {
            size,
            node,
            is_taken,
        }
    })
}

fn claim() -> impl Strategy<Value = Claim> {
    prop_oneof![
        1 => (0..=NODES, prop::bool::weighted(0.1))
            .prop_map(|(node, is_gone)| Claim::Bound { node, is_gone }),
        3 => (0..SIZES.len()).prop_map(|size| Claim::Static { size }),
        1 => (0..=NODES * 2).prop_map(|selected| Claim::Dynamic { selected }),
    ]
}

fn name_of(node: usize) -> Option<String> {
    (node < NODES).then(|| format!("n{node}"))
}

/// Whether the static claims get volumes on the node, tried in every way.
fn can_match(sizes: &[usize], volumes: &[&Volume]) -> bool {
    let Some((size, rest)) = sizes.split_first() else {
        return true;
    };
    (0..volumes.len()).any(|chosen| {
        let mut left = volumes.to_vec();
        let volume = left.remove(chosen);
        volume.size >= *size && can_match(rest, &left)
    })
}

fn naive(claims: &[Claim], volumes: &[Volume], node: usize) -> bool {
    let is_on = |place: usize| place >= NODES || place == node;
    let reached: Vec<&Volume> = volumes
        .iter()
        .filter(|volume| !volume.is_taken && is_on(volume.node))
        .collect();
    let sizes: Vec<usize> = claims
        .iter()
        .filter_map(|claim| match claim {
            Claim::Static { size } => Some(*size),
            _ => None,
        })
        .collect();
    let others = claims.iter().all(|claim| match claim {
        Claim::Bound { node, is_gone } => !is_gone && is_on(*node),
        Claim::Static { .. } => true,
        Claim::Dynamic { selected } => is_on(*selected),
    });
    others && can_match(&sizes, &reached)
}

fn world(claims: &[Claim], volumes: &[Volume]) -> (World, PodInfo) {
    let world = World::default();
    world.waiting_class("static", "kubernetes.io/no-provisioner");
    world.waiting_class("dynamic", "example.org/p");
    for (number, volume) in volumes.iter().enumerate() {
        let mut spec = free(
            "static",
            SIZES[volume.size],
            name_of(volume.node).as_deref(),
        );
        if volume.is_taken {
            spec["claimRef"] = json!({"namespace": "default", "name": "other", "uid": "u"});
        }
        world.volume_with(&format!("v{number}"), spec);
    }
    for (number, claim) in claims.iter().enumerate() {
        let (name, own) = (format!("c{number}"), format!("own-{number}"));
        match claim {
            Claim::Bound { node, is_gone } => {
                world.bound_claim(&name, &own);
                let mut spec = free("static", "1Gi", name_of(*node).as_deref());
                spec["claimRef"] = json!({"namespace": "default", "name": name});
                if !is_gone {
                    world.volume_with(&own, spec);
                }
            }
            Claim::Static { size } => world.claim(&name, "static", SIZES[*size]),
            Claim::Dynamic { selected } => {
                let metadata = match name_of(*selected) {
                    Some(node) => {
                        json!({"annotations": {"volume.kubernetes.io/selected-node": node}})
                    }
                    None => json!({}),
                };
                world.claim_with(&name, metadata, unbound("dynamic", "1Gi"));
            }
        }
    }
    let names: Vec<String> = (0..claims.len())
        .map(|number| format!("c{number}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (world, pod_using("p", &names))
}

proptest! {
    #[test]
    fn a_node_will_do_exactly_if_there_is_a_way(
        claims in prop::collection::vec(claim(), 1..5),
        volumes in prop::collection::vec(volume(), 0..6),
    ) {
        let (world, pod) = world(&claims, &volumes);
        for node in 0..NODES {
            let name = name_of(node).expect("it is one");
            let status = filter(&world, &pod, &name);
            prop_assert_eq!(
                status.is_success(),
                naive(&claims, &volumes, node),
                "{}: {}", name, status.message()
            );
        }
    }

    #[test]
    fn what_is_reserved_belongs_together(
        claims in prop::collection::vec(claim(), 1..5),
        volumes in prop::collection::vec(volume(), 0..6),
    ) {
        let (world, pod) = world(&claims, &volumes);
        for number in 0..NODES {
            let node = info(&node(&name_of(number).expect("it is one"), "4"));
            let (mut cycle, _) = pre_filter(&world, &pod);
            let plugin = plugin(&world);
            if !plugin.filter(&cycle, &pod, &node).is_success() {
                continue;
            }
            prop_assert!(plugin.reserve(&mut cycle, &pod, &node).is_success());
            let reserved = cycle.read::<reserve::Reserved>().expect("it is reserved");
            let mut given: Vec<_> = reserved
                .matches
                .iter()
                .map(|one| one.volume.metadata.name.clone())
                .collect();
            given.sort();
            given.dedup();
            prop_assert_eq!(given.len(), reserved.matches.len(), "no volume twice");
            let waiting = claims
                .iter()
                .filter(|claim| !matches!(claim, Claim::Bound { .. }))
                .count();
            prop_assert_eq!(reserved.matches.len() + reserved.provisions.len(), waiting);
            // Nothing is left of it afterwards: the next node is decided as the first.
            plugin.unreserve(&mut cycle, &pod, &node.name);
        }
    }
}
