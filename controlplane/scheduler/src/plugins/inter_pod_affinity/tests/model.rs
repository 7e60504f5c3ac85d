//! Property tests: counts decide as the rules say, and no event is missed.

use proptest::prelude::*;

use super::*;
use crate::pod_info::PodUid;

/// A pod of the property test: its namespace, its app, and the apps that it requires near and
/// apart, by which key, in which namespace.
#[derive(Debug, Clone)]
struct Simple {
    namespace: usize,
    app: usize,
    near: Vec<(usize, usize, usize)>,
    apart: Vec<(usize, usize, usize)>,
}

const NAMESPACES: [&str; 2] = ["default", "other"];
const APPS: [&str; 3] = ["x", "y", "z"];
const KEYS: [&str; 2] = [ZONE, "rack"];

impl Simple {
    fn pod(&self, name: &str) -> PodInfo {
        let terms = |terms: &[(usize, usize, usize)]| {
            let terms = terms.iter().map(|(namespace, app_of, key)| {
                let mut one = term(KEYS[*key], app(APPS[*app_of]));
                one["namespaces"] = json!([NAMESPACES[*namespace]]);
                one
            });
            terms.collect::<Vec<_>>()
        };
        let affinity = json!({
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms(&self.near)},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms(&self.apart)},
        });
        labelled(
            name,
            NAMESPACES[self.namespace],
            &json!({"app": APPS[self.app]}),
            &affinity,
        )
    }

    fn is_meant(&self, (namespace, app, _): &(usize, usize, usize)) -> bool {
        self.namespace == *namespace && self.app == *app
    }
}

/// The pod with a hundred more terms that mean nobody.
fn with_many_terms(pod: &PodInfo) -> PodInfo {
    let nobodys = (0..100).map(|number| term(KEYS[number % 2], app(&format!("nobodys-{number}"))));
    let wishes = nobodys
        .clone()
        .map(|term| json!({"weight": 1, "podAffinityTerm": term}));
    let more = labelled(
        "more",
        &pod.namespace,
        &json!({}),
        &json!({"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": nobodys.collect::<Vec<_>>(),
            "preferredDuringSchedulingIgnoredDuringExecution": wishes.collect::<Vec<_>>(),
        }}),
    );
    PodInfo {
        terms: Arc::new(pod.terms.with(&more.terms)),
        ..pod.clone()
    }
}

/// What PreScore and Score say of each node.
fn scores(pod: &PodInfo, cache: &Cache) -> Vec<i64> {
    let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
    InterPodAffinity::default().pre_score(&mut cycle, pod, &[], &snapshot);
    snapshot
        .nodes()
        .iter()
        .map(|node| InterPodAffinity::default().score(&cycle, pod, node))
        .collect()
}

/// The values of a node's labels, if it has them.
type SimpleNode = [Option<usize>; 2];

/// Word for word what the API promises, without any count.
fn allows(
    pod: &Simple,
    node: &SimpleNode,
    nodes: &[SimpleNode],
    placed: &[(Simple, usize)],
) -> bool {
    let together = |other: usize, key: usize| node[key].is_some() && node[key] == nodes[other][key];
    let meant_by_all = |other: &Simple| pod.near.iter().all(|term| other.is_meant(term));
    let has_company = |term: &(usize, usize, usize)| {
        placed
            .iter()
            .any(|(other, place)| meant_by_all(other) && together(*place, term.2))
    };
    let in_places = pod.near.iter().all(|term| node[term.2].is_some());
    let is_first = !placed.iter().any(|(other, place)| {
        meant_by_all(other) && pod.near.iter().any(|term| nodes[*place][term.2].is_some())
    });
    let near = in_places && (pod.near.iter().all(has_company) || is_first && meant_by_all(pod));
    let apart = placed.iter().all(|(other, place)| {
        let by_own = pod
            .apart
            .iter()
            .any(|term| other.is_meant(term) && together(*place, term.2));
        let by_other = other
            .apart
            .iter()
            .any(|term| pod.is_meant(term) && together(*place, term.2));
        !by_own && !by_other
    });
    near && apart
}

fn simple() -> impl Strategy<Value = Simple> {
    let terms = || proptest::collection::vec((0..2_usize, 0..3_usize, 0..2_usize), 0..3);
    (0..2_usize, 0..3_usize, terms(), terms()).prop_map(|(namespace, app, near, apart)| Simple {
        namespace,
        app,
        near,
        apart,
    })
}

proptest! {
    #[test]
    fn counts_decide_as_the_rules_say(
        nodes in proptest::collection::vec([proptest::option::of(0..2_usize), proptest::option::of(0..2_usize)], 1..5),
        placed in proptest::collection::vec((simple(), 0..4_usize), 0..8),
        pod in simple(),
    ) {
        let placed: Vec<_> = placed.into_iter().map(|(pod, place)| (pod, place % nodes.len())).collect();
        let mut cache = Cache::default();
        for (number, labels) in nodes.iter().enumerate() {
            let known = KEYS.iter().zip(labels).filter_map(|(key, value)| Some(((*key).to_owned(), json!(value.as_ref()?.to_string()))));
            cache.set_node(&node_of(&number.to_string(), Value::Object(known.collect())));
        }
        for (number, (pod, place)) in placed.iter().enumerate() {
            cache.observe(Arc::new(pod.pod(&number.to_string())), &place.to_string());
        }
        let few = pod.pod("p");
        let refused = refused(&few, &cache);
        // However much is said beside that means nobody.
        let many = with_many_terms(&few);
        prop_assert_eq!(&self::refused(&many, &cache), &refused);
        prop_assert_eq!(scores(&many, &cache), scores(&few, &cache));
        for (number, node) in nodes.iter().enumerate() {
            let is_refused = refused.iter().any(|(name, _)| *name == number.to_string());
            prop_assert_eq!(!is_refused, allows(&pod, node, &nodes, &placed), "node {}: {:?}", number, refused);
        }
        for number in 0..placed.len() {
            cache.remove_pod(&PodUid(number.to_string().into()));
        }
        prop_assert!(cache.snapshot().affinity_index().is_empty() && cache.snapshot().label_counts().is_empty());
    }

    /// An event after which the pod fits where it did not must not be taken for one that does not
    /// help.
    #[test]
    fn no_event_that_helps_is_missed(
        nodes in proptest::collection::vec([proptest::option::of(0..2_usize), proptest::option::of(0..2_usize)], 1..4),
        placed in proptest::collection::vec((simple(), 0..4_usize), 0..5),
        changing in (simple(), 0..4_usize),
        pod in simple(),
    ) {
        let cluster = |placed: &[&(Simple, usize)]| {
            let mut cache = Cache::default();
            for (number, labels) in nodes.iter().enumerate() {
                let known = KEYS.iter().zip(labels).filter_map(|(key, value)| {
                    Some(((*key).to_owned(), json!(value.as_ref()?.to_string())))
                });
                cache.set_node(&node_of(&number.to_string(), Value::Object(known.collect())));
            }
            for (number, (pod, place)) in placed.iter().enumerate() {
                cache.observe(Arc::new(pod.pod(&number.to_string())), &(place % nodes.len()).to_string());
            }
            cache
        };
        let waiting = pod.pod("p");
        let fits = |cache: &Cache| refused(&waiting, cache).len() < nodes.len();
        let without: Vec<_> = placed.iter().collect();
        let with: Vec<_> = placed.iter().chain([&changing]).collect();
        let (without, with) = (fits(&cluster(&without)), fits(&cluster(&with)));
        let other = changing.0.pod("other");
        if with && !without {
            prop_assert_eq!(InterPodAffinity::default().hint(&waiting, &ClusterEvent::AssignedPodAdded(&other)), QueueingHint::Queue);
        }
        if without && !with {
            prop_assert_eq!(InterPodAffinity::default().hint(&waiting, &ClusterEvent::AssignedPodDeleted(&other)), QueueingHint::Queue);
        }
    }
}
