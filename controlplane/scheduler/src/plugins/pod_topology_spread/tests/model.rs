//! Property tests: counts decide as the rule says, and no event is missed.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

proptest! {
    /// Against the definition: with the pod on it, no place has more than `maxSkew` above the place
    /// with the fewest.
    #[test]
    fn counts_decide_as_the_rule_says(
        zones in proptest::collection::vec(proptest::option::of(0..3_usize), 1..6),
        placed in proptest::collection::vec((0..6_usize, any::<bool>()), 0..12),
        skew in 1..3_i32,
        min_domains in 1..4_i32,
        is_of_kind in any::<bool>(),
    ) {
        let mut cache = Cache::default();
        for (number, zone) in zones.iter().enumerate() {
            let labels = zone.map_or_else(|| json!({}), |zone| json!({ZONE: zone.to_string()}));
            cache.set_node(&node_of(&number.to_string(), labels));
        }
        for (number, (place, web)) in placed.iter().enumerate() {
            let pod = pod_in("default", &number.to_string(), if *web { "web" } else { "db" }, json!({}));
            cache.observe(Arc::new(pod), &(place % zones.len()).to_string());
        }
        let spread = json!({"topologySpreadConstraints": [constraint(ZONE, skew, json!({"minDomains": min_domains}))]});
        let pod = pod_in("default", "p", if is_of_kind { "web" } else { "db" }, spread);
        let refused = refused(&pod, &cache);
        let in_zone = |wanted: usize| {
            let webs = placed.iter().filter(|(place, web)| *web && zones[place % zones.len()] == Some(wanted));
            i32::try_from(webs.count()).expect("few")
        };
        let mut known: Vec<usize> = zones.iter().copied().flatten().collect();
        known.sort_unstable();
        known.dedup();
        let is_enough = known.len() >= usize::try_from(min_domains).expect("positive");
        let fewest = known.iter().map(|zone| in_zone(*zone)).min().filter(|_| is_enough).unwrap_or(0);
        for (number, zone) in zones.iter().enumerate() {
            let fits = zone.is_some_and(|zone| in_zone(zone) + i32::from(is_of_kind) - fewest <= skew);
            prop_assert_eq!(!refused.contains(&number.to_string()), fits, "node {}", number);
        }
    }

    /// An event after which the pod fits where it did not must not be taken for one that does not
    /// help.
    #[test]
    fn no_event_that_helps_is_missed(
        zones in proptest::collection::vec(proptest::option::of(0..3_usize), 1..5),
        placed in proptest::collection::vec((0..5_usize, any::<bool>()), 0..8),
        changing in (0..5_usize, any::<bool>()),
        coming in proptest::option::of(0..3_usize),
        min_domains in 1..4_i32,
    ) {
        let labels = |zone: &Option<usize>| zone.map_or_else(|| json!({}), |zone| json!({ZONE: zone.to_string()}));
        let other = pod_in("default", "other", if changing.1 { "web" } else { "db" }, json!({}));
        let cluster = |has_other: bool, has_node: bool| {
            let mut cache = Cache::default();
            for (number, zone) in zones.iter().enumerate() {
                cache.set_node(&node_of(&number.to_string(), labels(zone)));
            }
            if has_node {
                cache.set_node(&node_of("coming", labels(&coming)));
            }
            for (number, (place, web)) in placed.iter().enumerate() {
                let pod = pod_in("default", &number.to_string(), if *web { "web" } else { "db" }, json!({}));
                cache.observe(Arc::new(pod), &(place % zones.len()).to_string());
            }
            if has_other {
                cache.observe(Arc::new(other.clone()), &(changing.0 % zones.len()).to_string());
            }
            cache
        };
        let spread = json!({"topologySpreadConstraints": [constraint(ZONE, 1, json!({"minDomains": min_domains}))]});
        let waiting = pod_in("default", "p", "web", spread);
        let fits = |cache: &Cache| statuses(&waiting, cache).iter().any(|(_, status)| status.is_success());
        let hint = |event: ClusterEvent<'_>| PodTopologySpread::default().hint(&waiting, &event);
        let [neither, pod_too, node_too] = [(false, false), (true, false), (false, true)].map(|(a, b)| fits(&cluster(a, b)));
        if pod_too && !neither {
            prop_assert_eq!(hint(ClusterEvent::AssignedPodAdded(&other)), QueueingHint::Queue);
        }
        if neither && !pod_too {
            prop_assert_eq!(hint(ClusterEvent::AssignedPodDeleted(&other)), QueueingHint::Queue);
        }
        let node = info(&node_of("coming", labels(&coming)));
        if node_too && !neither {
            prop_assert_eq!(hint(ClusterEvent::NodeAdded(&node)), QueueingHint::Queue);
        }
        if neither && !node_too {
            prop_assert_eq!(hint(ClusterEvent::NodeDeleted(&node)), QueueingHint::Queue);
        }
    }

    /// What is kept from one pod to the next is what would be counted anew, whatever has happened
    /// in between.
    #[test]
    fn what_is_kept_is_what_would_be_counted(
        steps in proptest::collection::vec((0..6_usize, 0..6_usize, 0..4_usize, any::<bool>()), 1..40),
    ) {
        let mut kept = Cache::default();
        let spread = json!({"topologySpreadConstraints": [
            constraint(ZONE, 1, json!({})),
            constraint("kubernetes.io/hostname", 1, json!({})),
        ]});
        let waiting = pod_in("default", "p", "web", spread);
        let (mut nodes, mut pods) = (BTreeMap::new(), BTreeMap::new());
        for (what, which, zone, web) in steps {
            match what {
                0 | 1 => {
                    let labels = match zone {
                        3 => json!({"kubernetes.io/hostname": which.to_string()}),
                        _ => json!({ZONE: zone.to_string(), "kubernetes.io/hostname": which.to_string()}),
                    };
                    let node = node_of(&which.to_string(), labels);
                    kept.set_node(&node);
                    nodes.insert(which, node);
                }
                2 if zone == 0 => {
                    kept.remove_node(&which.to_string());
                    nodes.remove(&which);
                }
                3 if zone == 0 => {
                    if let Some((uid, _)) = pods.pop_first() {
                        kept.remove_pod(&uid);
                    }
                }
                _ => {
                    let name = format!("{which}-{zone}");
                    let mut pod = pod_in("default", &name, if web { "web" } else { "db" }, json!({}));
                    pod.terminating = zone == 3;
                    let on = (which + zone) % 6;
                    kept.remove_pod(&pod.uid);
                    pods.insert(pod.uid.clone(), (on, pod.clone()));
                    kept.observe(Arc::new(pod), &on.to_string());
                }
            }
            let mut anew = Cache::default();
            nodes.values().for_each(|node| drop(anew.set_node(node)));
            for (on, pod) in pods.values() {
                anew.observe(Arc::new(pod.clone()), &on.to_string());
            }
            let mut both = [refused(&waiting, &kept), refused(&waiting, &anew)];
            both.iter_mut().for_each(|names| names.sort());
            prop_assert_eq!(&both[0], &both[1]);
        }
    }
}
